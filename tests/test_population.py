"""Tasks of one population: the Gaussian process that MetaFun corrects, and the ensemble that is fitted in folds."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from sklearn.exceptions import NotFittedError

from metafun import MetaFunRegressor
from metafun.config import load_config
from metafun.errors import InvalidConfig
from metafun.model.likelihoods import Mixture, Normal
from metafun.model.population import CONTEXT_SIZES, Calibration
from metafun.model.process import PopulationProcess
from metafun.model.task import Points, Task
from metafun.model.whitening import whiten

SMALL = {
    "model.iterations": 2,
    "model.representation": 8,
    **{f"model.{part}.width": 8 for part in ("pooling", "update", "decoder", "population")},
    "model.population.features": 4,
    "training.batch": 4,
    "training.validation_tasks": 20,
}


def random_covariance(n, key):
    a = jax.random.normal(key, (n, n))
    return a @ a.T / n + 0.1 * jnp.eye(n)


def random_process(dx=2, seed=0):
    return PopulationProcess(dx, 4, 8, 1, "gelu", 0.05, key=jax.random.key(seed))


@functools.cache
def build(dy=1):
    config = load_config("collected", (), {**SMALL, "model.population.members": 3})
    model = eqx.filter_jit(lambda key: config.model.build(2, dy, key))(jax.random.key(0))
    # An untrained correction is 0.
    return eqx.tree_at(lambda m: m.members.gain, model, jnp.ones(3))


@eqx.filter_jit
def predict(model, context, x):
    return model.predict(model.encode(context), x)


def random_task(n=5, m=4, dy=1, fold=None):
    keys = jax.random.split(jax.random.key(1), 4)
    shapes = ((n, 2), (n, dy), (m, 2), (m, dy))
    x, y, u, v = (jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))
    fold = None if fold is None else jnp.asarray(fold)
    return Task(Points(x, y, jnp.ones(n, bool)), Points(u, v, jnp.ones(m, bool)), fold)


@pytest.mark.parametrize("n", [1, 7, 70])
def test_whitening_is_the_inverse_of_the_cholesky_factor(n):
    with jax.enable_x64(True):
        covariance = random_covariance(n, jax.random.key(n))
        np.testing.assert_allclose(whiten(covariance) @ np.linalg.cholesky(covariance), np.eye(n), atol=1e-10)
        check_grads(jax.jit(lambda a: whiten((a + a.T) / 2)), (covariance,), order=1, modes=["rev"])


def test_the_conditioned_process_is_the_textbook_posterior():
    process, rng = random_process(), np.random.default_rng(0)
    x, y, at = rng.normal(size=(6, 2)), rng.normal(size=6), rng.normal(size=(4, 2))
    prior, there = process.prior(jnp.asarray(x)), process.prior(jnp.asarray(at))
    among = np.asarray(process.covariance(prior, prior)) + np.diag(prior.noise)
    across = np.asarray(process.covariance(there, prior))
    conditioned = process.condition(jnp.asarray(x), jnp.asarray(y), jnp.ones(6, bool))
    mean, std, _ = conditioned(jnp.asarray(at))
    np.testing.assert_allclose(mean, there.mean + across @ np.linalg.solve(among, y - prior.mean), rtol=1e-3, atol=1e-4)
    variance = there.variance - np.einsum("mn,nm->m", across, np.linalg.solve(among, across.T)) + there.noise
    np.testing.assert_allclose(std, np.sqrt(variance), rtol=1e-3)
    np.testing.assert_allclose(np.diag(process.covariance(there, there)), there.variance, rtol=1e-5)


def test_leaving_one_out_is_conditioning_on_the_others():
    process, rng = random_process(), np.random.default_rng(1)
    x, y = jnp.asarray(rng.normal(size=(5, 2))), jnp.asarray(rng.normal(size=5))
    scores, spread = process.condition(x, y, jnp.ones(5, bool)).leave_one_out()
    for i in range(5):
        mean, std, _ = process.condition(x, y, jnp.arange(5) != i)(x[i : i + 1])
        np.testing.assert_allclose(spread[i], std[0], rtol=1e-3)
        np.testing.assert_allclose(scores[i], (y[i] - mean[0]) / std[0], rtol=2e-3, atol=1e-3)


def test_an_untrained_correction_leaves_the_process_as_it_is():
    model, task = build(), random_task()
    model = eqx.tree_at(lambda m: m.members.gain, model, jnp.zeros(3))
    member = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, model.members)
    both = eqx.filter_jit(lambda m, task: m.predict_both(m.encode(task.context), task.target.x))
    base, corrected = both(member, task)
    np.testing.assert_array_equal(base.mean, corrected.mean)
    np.testing.assert_array_equal(base.std, corrected.std)


@pytest.mark.parametrize("dy", [1, 2])
def test_padding_and_order_of_the_context_do_not_matter(dy):
    model, task = build(dy=dy), random_task(dy=dy)
    x, y = (jnp.concatenate([a, 7 * jnp.ones_like(a)]) for a in (task.context.x, task.context.y))
    padded = Points(x, y, jnp.arange(10) < 5)
    turned = jax.tree.map(lambda a: a[::-1], task.context)
    expected = predict(model, task.context, task.target.x)
    for context in (padded, turned):
        found = predict(model, context, task.target.x)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-3)
    one = predict(model, task.context, task.target.x[1:2])
    np.testing.assert_allclose(one.mean, expected.mean[1:2], rtol=1e-4, atol=1e-5)


def test_a_member_never_learns_from_the_fold_that_it_leaves_out():
    model = build()
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m, task: m.loss(task)))(model, random_task(fold=1))
    sizes = [float(abs(leaf).max()) for leaf in jax.tree.leaves(jax.tree.map(lambda a: a[1], gradient.members))]
    assert max(sizes) == 0, "member 1"
    assert all(float(abs(gradient.members.gain[k])) > 0 for k in (0, 2))
    n = int(np.searchsorted(CONTEXT_SIZES, 5, side="right")) - 1
    assert gradient.calibration.log_scale[n] != 0 and gradient.calibration.trust[n] != 0
    assert (jnp.delete(gradient.calibration.log_scale, n) == 0).all(), "other sizes of the context"


def test_validation_uses_the_member_that_was_not_trained_on_the_task():
    model, task = build(), random_task(fold=2)
    found = predict(model.held_out(task), task.context, task.target.x)
    everyone = predict(model, task.context, task.target.x)
    np.testing.assert_allclose(found.mean, everyone.components.mean[2], rtol=1e-4, atol=1e-5)
    assert model.held_out(random_task()) is model


def test_calibration_moves_from_the_process_to_the_correction():
    base, corrected = Normal(jnp.zeros((1, 1)), jnp.ones((1, 1))), Normal(jnp.ones((1, 1)), jnp.full((1, 1), 4.0))
    calibration = eqx.tree_at(
        lambda c: (c.trust, c.log_scale), Calibration(), (jnp.array([-9.0, 0, 9, 0, 0]), jnp.ones(5))
    )
    none = eqx.tree_at(lambda c: c.log_scale, calibration, jnp.zeros(5))
    for points, mean, std in ((0, 0, 1), (1, 0.5, 2), (2, 0.5, 2), (4, 1, 4)):
        found = none(base, corrected, jnp.asarray(points))
        np.testing.assert_allclose((found.mean[0, 0], found.std[0, 0]), (mean, std), atol=1e-6)
    assert calibration(base, corrected, jnp.asarray(3)).std[0, 0] == pytest.approx(4 * np.exp(4), rel=1e-5)


def test_samples_of_a_mixture_have_its_moments():
    mixture = Mixture(Normal(jnp.array([[[0.0]], [[3.0]]]), jnp.array([[[1.0]], [[2.0]]])))
    values = mixture.sample(jax.random.key(0), 20_000)
    assert values.shape == (20_000, 1, 1)
    assert float(values.mean()) == pytest.approx(float(mixture.mean[0, 0]), abs=4 * float(mixture.std[0, 0]) / 141)
    assert float(values.std()) == pytest.approx(float(mixture.std[0, 0]), rel=0.03)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tasks.folds": 4}, "tasks.folds = 4, but model.population.members = 5"),
        ({"model.loss.kind": "squared-error"}, "needs model.loss.kind = 'gaussian'"),
        ({"model.update.kind": "gradient"}, "model.update.kind = 'mlp', not 'gaussian' and 'gradient'"),
        ({"model.latent.kind": "global"}, "works on r alone"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, message):
    with pytest.raises(InvalidConfig, match=message):
        load_config("collected", (), settings)


def test_few_tasks_of_few_points_can_be_learned_from():
    rng = np.random.default_rng(0)
    tasks = [(rng.normal(size=(n, 1)), rng.normal(size=n)) for n in (2, 2, 3)]
    model = MetaFunRegressor().meta_fit(tasks, steps=4, settings=SMALL, progress=False)
    assert np.isfinite(model.fit(*tasks[0]).predict(tasks[1][0], return_std=True)).all()


def test_before_fit_the_population_is_predicted():
    rng = np.random.default_rng(0)
    tasks = [(x, 3 * x[:, 0] + shift) for shift in rng.normal(5, 1, 8) for x in [rng.normal(size=(6, 1))]]
    model = MetaFunRegressor().meta_fit(tasks, steps=4, settings=SMALL, progress=False)
    (mean, std), x = model.predict([[0.0], [1.0]], return_std=True), jnp.asarray([[0.0], [1.0]])
    trained, scaling = model.checkpoint, model.checkpoint.tasks.scaling(np.empty((0, 1)), np.empty((0, 1)))
    nothing = Points(jnp.zeros((0, 1)), jnp.zeros((0, 1)), jnp.zeros(0, bool))
    expected = trained.model.predict(trained.model.encode(nothing), jnp.asarray(scaling.scale_inputs(x)))
    np.testing.assert_allclose(mean, scaling.outputs.inverse(np.asarray(expected.mean))[:, 0], rtol=1e-4)
    np.testing.assert_allclose(std, np.asarray(expected.std)[:, 0] * scaling.outputs.deviation, rtol=1e-4)
    assert not hasattr(model, "X_") and model.sample_y([[0.0]], 3, 0).shape == (1, 3)
    with pytest.raises(NotFittedError):
        MetaFunRegressor("sinusoid").predict([[0.0]])
