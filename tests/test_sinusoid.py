"""The distribution of sinusoid tasks (Section 4.1)."""

import jax
import numpy as np
import pytest

from metafun.tasks import Sinusoid

COUNT = 4000


@pytest.fixture(scope="module")
def tasks():
    keys = jax.random.split(jax.random.key(0), COUNT)
    return jax.jit(jax.vmap(Sinusoid(context=(1, 9), targets=9, points=10).sample))(keys)


def test_context_sizes_are_uniform_and_all_points_are_used(tasks):
    n, m = tasks.context.mask.sum(1), tasks.target.mask.sum(1)
    np.testing.assert_array_equal(n + m, 10)
    counts = np.bincount(n, minlength=10)[1:]
    assert len(counts) == 9
    # Each size has probability 1/9; the tolerance is five standard errors of a binomial count.
    np.testing.assert_allclose(counts, COUNT / 9, atol=5 * np.sqrt(COUNT * 8 / 81))


def test_inputs_are_uniform(tasks):
    x = np.asarray(tasks.target.x).ravel()
    assert x.min() >= -5 and x.max() <= 5
    np.testing.assert_allclose(x.mean(), 0, atol=5 * 10 / np.sqrt(12 * x.size))
    np.testing.assert_allclose(np.square(x).mean(), 25 / 3, rtol=0.02)


def test_every_task_is_one_sinusoid(tasks):
    """Noiseless points of A sin(x − b): linear in (sin x, cos x), with A and b in their ranges."""
    x, y = np.asarray(tasks.target.x, float), np.asarray(tasks.target.y, float)
    for xs, ys in zip(x[:200, :, 0], y[:200, :, 0], strict=True):
        basis = np.stack([np.sin(xs), np.cos(xs)], axis=1)
        (p, q), *_ = np.linalg.lstsq(basis, ys, rcond=None)
        np.testing.assert_allclose(basis @ [p, q], ys, atol=1e-5)
        amplitude, phase = np.hypot(p, q), np.arctan2(-q, p)
        assert 0.1 - 1e-3 <= amplitude <= 5 + 1e-3 and -1e-2 <= phase <= np.pi + 1e-2


def test_amplitudes_fill_their_range(tasks):
    # E[A²] for A in U(0.1, 5), times 1/2, the mean of sin² over phases and inputs.
    expected = (5**3 - 0.1**3) / (3 * 4.9) / 2
    squares = np.square(np.asarray(tasks.target.y)).mean((1, 2))
    np.testing.assert_allclose(squares.mean(), expected, atol=5 * squares.std() / np.sqrt(COUNT))


def test_the_same_key_gives_the_same_task():
    sample = Sinusoid(context=(0, 5), targets=3, points=8).sample
    a, b, c = (sample(jax.random.key(seed)) for seed in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert not np.array_equal(a.context.x, c.context.x)
