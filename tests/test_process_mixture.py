"""The Gaussian processes of a model for any series: their weights, and that MetaFun corrects their mixture."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from metafun.config import load_config
from metafun.errors import InvalidConfig
from metafun.model.population import FARTHEST
from metafun.model.process_mixture import ProcessMixture
from metafun.model.task import Points, Task

SMALL = {
    "model.iterations": 2,
    "model.representation": 8,
    "model.population.processes": 3,
    **{f"model.{part}.width": 8 for part in ("pooling", "update", "decoder")},
}


def random_points(n=6, dx=2, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.uniform(-1, 1, (n, dx))), jnp.asarray(rng.normal(size=n))


@functools.cache
def build(dx=1, dy=1):
    config = load_config("curves", (), SMALL)
    model = eqx.filter_jit(lambda key: config.model.build(dx, dy, key))(jax.random.key(0))
    return eqx.tree_at(lambda m: m.member.gain, model, jnp.ones(()))  # an untrained correction is 0


def random_task(dy=1):
    rng = np.random.default_rng(1)
    shapes = ((5, 1), (5, dy), (4, 1), (4, dy))
    x, y, u, v = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes)
    return Task(Points(x, y, jnp.ones(5, bool)), Points(u, v, jnp.ones(4, bool)))


@eqx.filter_jit
def predict(model, context, x):
    return model.predict(model.encode(context), x)


def test_the_mixture_is_the_posterior_over_processes_and_functions():
    with jax.enable_x64(True):
        mixture = ProcessMixture(2, 4, 0.05, key=jax.random.key(0))
        mixture = eqx.tree_at(lambda m: m.log_weight, mixture, jnp.log(jnp.arange(1.0, 5)))
        (x, y), (at, _) = random_points(), random_points(3, seed=1)
        given = mixture.condition(x, y, jnp.ones(6, bool))
        mean, std, prior = given(at)
        context, there, noise = mixture.axis(x), mixture.axis(at), np.asarray(mixture.noise)
        among, across = np.asarray(mixture.covariance(context, context)), mixture.covariance(there, context)
        among = among + noise[:, None, None] * np.eye(6)
        densities = np.array([multivariate_normal.pdf(y, cov=k) for k in among]) * np.arange(1, 5)
        weights = densities / densities.sum()
        np.testing.assert_allclose(given.weights, weights, rtol=1e-6)
        across, each = np.asarray(across), range(4)
        means = np.array([across[j] @ np.linalg.solve(among[j], y) for j in each])
        before = np.diagonal(mixture.covariance(there, there), axis1=1, axis2=2) + noise[:, None]
        known = np.array([(across[j] * np.linalg.solve(among[j], across[j].T).T).sum(1) for j in each])
        np.testing.assert_allclose(mean, weights @ means, rtol=1e-6)
        np.testing.assert_allclose(std**2, weights @ (before - known + (means - weights @ means) ** 2), rtol=1e-5)
        np.testing.assert_allclose(prior.std**2, weights @ before, rtol=1e-5)


def test_leaving_one_out_is_conditioning_a_process_on_the_others():
    with jax.enable_x64(True):
        mixture, (x, y) = ProcessMixture(2, 1, 0.05, key=jax.random.key(1)), random_points()
        scores, spread = mixture.condition(x, y, jnp.ones(6, bool)).leave_one_out()
        for i in range(6):
            mean, std, _ = mixture.condition(x, y, jnp.arange(6) != i)(x[i : i + 1])
            np.testing.assert_allclose([spread[i], scores[i]], [std[0], (y[i] - mean[0]) / std[0]], rtol=1e-6)


def test_an_axis_is_stretched_at_one_end_and_straight_beyond_the_context():
    mixture = ProcessMixture(1, 3, 0.05, key=jax.random.key(0))
    mixture = eqx.tree_at(lambda m: m.warp, mixture, jnp.array([[-1.5], [0.0], [1.5]]))
    v = np.asarray(mixture.axis(jnp.linspace(-3, 3, 601)[:, None]))[..., 0]
    steps = np.diff(abs(v[:, 300:]), axis=1), np.diff(abs(v[:, :301]), axis=1)
    assert (steps[0] > 0).all() and (steps[1] < 0).all(), "v grows away from 0"
    np.testing.assert_allclose(abs(v[:, [200, 400]]).max(1), 1, atol=1e-3)
    np.testing.assert_allclose(np.diff(v, 2)[:, 401:], 0, atol=1e-4)
    np.testing.assert_allclose(v[0], v[2][::-1], atol=1e-5)


def test_padding_and_order_of_the_context_do_not_matter():
    model, task = build(dy=2), random_task(2)
    x, y = (jnp.concatenate([a, 7 * jnp.ones_like(a)]) for a in (task.context.x, task.context.y))
    expected = predict(model, task.context, task.target.x)
    assert expected.mean.shape == (4, 2)
    for context in (Points(x, y, jnp.arange(10) < 5), jax.tree.map(lambda a: a[::-1], task.context)):
        found = predict(model, context, task.target.x)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=2e-3, atol=1e-3)
        np.testing.assert_allclose(found.std, expected.std, rtol=2e-3)


def test_inputs_far_away_are_those_at_the_edge():
    model, task = build(), random_task()
    far = predict(model, task.context, jnp.array([[FARTHEST], [FARTHEST + 1], [1e30], [-1e30]]))
    np.testing.assert_allclose(far.mean[1:3], jnp.tile(far.mean[:1], (2, 1)), rtol=1e-5)
    assert jnp.isfinite(far.mean).all() and jnp.isfinite(far.std).all()


def test_gradients_are_finite_where_points_coincide():
    model, task = build(), random_task()
    same = eqx.tree_at(lambda t: (t.context.x, t.context.y), task, (jnp.zeros((5, 1)), jnp.ones((5, 1))))
    straight = eqx.tree_at(lambda m: m.member.process.warp, model, jnp.zeros((1, 3, 1)))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m, t: m.loss(t)))
    for each, here in ((model, task), (straight, same)):
        assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient(each, here)))


def test_training_moves_processes_and_their_correction():
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m, t: m.loss(t)))(build(), random_task())
    for part in (gradient.member.process, gradient.member.metafun.updates, gradient.member.metafun.decode):
        assert all(abs(leaf).max() > 0 for leaf in jax.tree.leaves(part) if leaf is not None)


def test_a_mixture_needs_a_normal_distribution_to_correct():
    with pytest.raises(InvalidConfig, match=r"kind = 'mixture' needs model\.loss\.kind = 'gaussian'"):
        load_config("curves", (), {"model.loss.kind": "squared-error"})
