"""Pooling in blocks equals pooling at once, for every pooling, and so do models that pool in blocks."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import CLASSIFIERS, VARIANTS, build, name, random_task
from metafun.model import blocks
from metafun.model.blocks import Size, pool_in_blocks
from metafun.model.nn import MLP
from metafun.model.pooling import Attention, DeepKernel, Mean, Pooling, SquaredExponential, pool

# Two blocks of queries, and three of keys of which the last is partly empty.
TINY = Size(most=0, queries=8, keys=8)
M, N, DX, DA, DR = 13, 19, 3, 8, 4


class FarPoints(Pooling):
    """A pooling that has weights alone, and needs all keys for them."""

    def embed(self, x):
        return x

    def weights(self, q, k, mask):
        distances = jnp.where(mask, abs(q[:, None] - k).sum(-1), 0)
        return distances / jnp.maximum(distances.sum(-1, keepdims=True), 1e-6)


def poolings():
    mlp, kernel = MLP([DX, DA], "gelu", key=jax.random.key(0)), SquaredExponential(scale=0.8, lengthscale=1.3)
    for heads in (1, 2):
        yield f"attention-{heads}", Attention(mlp, heads)
        yield f"deep-kernel-{heads}", DeepKernel(mlp, kernel, heads)
    yield from (("squared-exponential", kernel), ("mean", Mean()), ("weights-alone", FarPoints()))


def points(m=M, n=N, classes=()):
    rng = np.random.default_rng(0)
    return tuple(jnp.asarray(rng.normal(size=s)) for s in ((m, DX), (n, DX), (n, *classes, DR)))


@eqx.filter_jit
def both(pooling, x, context, mask, u):
    """The sum at once and in blocks, and the gradients of its squares by pooling, x, context and u."""

    def values(arguments, in_blocks):
        pooling, x, context, u = arguments
        q, k = pooling.embed(x), pooling.embed(context)
        if in_blocks:
            return pool_in_blocks(pooling, q, k, mask, u, TINY)
        return pool(pooling.weights(q, k, mask), u)

    def squares(arguments, in_blocks):
        return jnp.square(values(arguments, in_blocks)).sum()

    arguments = (pooling, x, context, u)
    return tuple((values(arguments, way), eqx.filter_grad(squares)(arguments, way)) for way in (False, True))


def assert_equal(at_once, in_blocks):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(b, a, rtol=1e-10, atol=1e-10), at_once, in_blocks)


@pytest.mark.parametrize("classes", [(), (3,)], ids=["numbers", "classes"])
@pytest.mark.parametrize("kind", dict(poolings()))
def test_blocks_equal_all_weights_at_once(kind, classes, float64):
    mask = jnp.arange(N) % 5 != 2
    assert_equal(*both(dict(poolings())[kind], *points(classes=classes)[:2], mask, points(classes=classes)[2]))


@pytest.mark.parametrize("kind", dict(poolings()))
def test_a_block_or_a_context_without_keys_adds_nothing(kind, float64):
    x, context, u = points()
    # The middle block is empty, and then all are.
    for mask in (jnp.abs(jnp.arange(N) - 12) > 4, jnp.zeros(N, bool)):
        found = both(dict(poolings())[kind], x, context, mask, u)
        assert_equal(*found)
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    np.testing.assert_array_equal(found[1][0], 0)


def test_large_logits_do_not_overflow_between_blocks(float64):
    x, context, u = points()
    at_once, in_blocks = both(dict(poolings())["attention-1"], 30 * x, 30 * context, jnp.ones(N, bool), u)
    assert_equal(at_once[0], in_blocks[0])


# Attention with parameters for each iteration, a kernel with classes.
MODELS = {name(variant): variant for variant in [VARIANTS[1], CLASSIFIERS[3]]}


@eqx.filter_jit
def outcome(model, task, is_blocked):
    """`is_blocked` only makes another program."""
    representation = model.encode(task.context)
    return {
        "loss": eqx.filter_value_and_grad(lambda model: model.loss(task))(model),
        "trajectory": representation.trajectory(task.target.x),
        "at": representation(task.target.x),
    }


@pytest.mark.parametrize("variant", MODELS)
def test_models_are_the_same_in_blocks(variant, monkeypatch, float64):
    model, task = build(MODELS[variant]), random_task(MODELS[variant], n=11, m=9)
    at_once = outcome(model, task, is_blocked=False)
    monkeypatch.setattr(blocks, "size_here", lambda: TINY)
    jaxpr = str(jax.make_jaxpr(lambda x: model.encode(task.context)(x))(task.target.x))
    assert "scan" in jaxpr
    assert_equal(at_once, outcome(model, task, is_blocked=True))


@pytest.mark.parametrize("pooling", ["attention", "deep-kernel"])
def test_gradients_of_a_large_context_need_less_memory_than_its_weights(pooling):
    variant, n = VARIANTS[0] | {"pooling": pooling}, 8192
    model, task = build(variant), random_task(variant, n=n, m=n)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda model, task: model.loss(task)))
    needed = gradient.lower(model, task).compile().compiled.memory_analysis().temp_size_in_bytes
    assert needed < 4 * n**2 / 4
