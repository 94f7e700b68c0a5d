"""A mixed model on a forest beside MetaFun: what it predicts, that no part sees its fold, and how much each counts."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from metafun import MetaFunRegressor
from metafun.config import load_config
from metafun.config.experiment import Experiment
from metafun.estimators.stacking import _with_trends, fit_forests, fit_processes, fit_stack, trees_of
from metafun.model.likelihoods import Normal
from metafun.model.mixed_process import MixedProcess
from metafun.model.stacked import Stack, Stacked, first_alone
from metafun.model.task import Points, Task
from metafun.tasks.collected import Collected
from test_population import SMALL, predict, random_task

FOLDS = 3


def process(dx=2):
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape) / 2, jnp.float32)  # noqa: E731
    return MixedProcess(draw(dx + 2), draw(dx + 2), draw(), draw(dx), draw())


def collected(changed=None, outputs=1):
    """7 tasks of 6 rows with 2 inputs; the outputs of the tasks of the fold `changed` are other ones."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 6, 2)), rng.normal(size=(7, 6, outputs))
    if changed is not None:
        y[changed::FOLDS] += 3 * rng.normal(size=y[changed::FOLDS].shape)
    rows = jnp.asarray(np.concatenate([x, y], 2).reshape(42, -1), jnp.float32)
    places = (jnp.arange(7) * 6, jnp.full(7, 6))
    return Collected(rows, *places, 6, outputs=outputs, context=(0, 5), targets=6, folds=FOLDS)


@functools.cache
def build(dy=1):
    sizes = {"members": FOLDS, "trees": 2, "nodes": 128}
    config = load_config("collected", (), {**SMALL, **{f"model.population.{k}": v for k, v in sizes.items()}})
    model = eqx.filter_jit(lambda key: config.model.build(2, dy, key))(jax.random.key(0))
    # Forests and processes that differ between members and outputs.
    rng = np.random.default_rng(0)
    random = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape) / 2, jnp.float32), model.second.processes)
    value = jnp.asarray(rng.normal(size=model.second.forest.value.shape), jnp.float32)
    return eqx.tree_at(lambda m: (m.second.processes, m.second.forest.value), model, (random, value))


def with_weight(model, weight):
    return eqx.tree_at(lambda m: m.stack.weight, model, jnp.full(5, weight))


def test_a_stack_is_the_product_of_powers():
    first, second = Normal(jnp.array([[0.0]]), jnp.array([[1.0]])), Normal(jnp.array([[3.0]]), jnp.array([[0.5]]))
    stack = Stack(jnp.array([1.0, 0.0, 0.25, 0.5, 0.5]), jnp.array([0, 0, 0, 0.5, 0]), jnp.zeros(()))
    for points, w in ((0, 1), (1, 0), (4, 0.25)):
        found, precision = stack(first, second, jnp.asarray(points)), w + (1 - w) * 4
        assert found.mean[0, 0] == pytest.approx(3 * (1 - w) * 4 / precision)
        assert found.std[0, 0] == pytest.approx(precision**-0.5)
    scaled, plain = (stack(first, second, jnp.asarray(n)) for n in (6, 12))
    assert scaled.std[0, 0] / plain.std[0, 0] == pytest.approx(np.exp(0.5)) and scaled.mean == plain.mean
    powered = eqx.tree_at(lambda s: s.power, stack, jnp.asarray(0.2))(first, second, jnp.asarray(12))
    assert powered.std[0, 0] == pytest.approx(float(plain.std[0, 0]) ** 1.2)


def test_with_all_weight_on_the_first_the_second_does_not_count():
    model, task = build(), random_task()
    found = predict(with_weight(model, 1.0), task.context, task.target.x)
    alone = predict(model.first, task.context, task.target.x)
    np.testing.assert_allclose(found.mean, alone.mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.std, alone.std, rtol=1e-3)
    assert abs(predict(with_weight(model, 0.0), task.context, task.target.x).mean - found.mean).max() > 0.01


def test_padding_and_order_of_the_context_do_not_matter():
    model, task = with_weight(build(), 0.5), random_task()
    x, y = (jnp.concatenate([a, 7 * jnp.ones_like(a)]) for a in (task.context.x, task.context.y))
    expected = predict(model, task.context, task.target.x)
    for context in (Points(x, y, jnp.arange(10) < 5), jax.tree.map(lambda a: a[::-1], task.context)):
        found = predict(model, context, task.target.x)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-3)


def test_each_output_has_its_own_process_and_forest():
    model, task = with_weight(build(2), 0.0), random_task(dy=2)
    context, at = task.context, task.target.x
    found = predict(model, context, at)
    for k in range(FOLDS):
        for j in range(2):
            forest, one = jax.tree.map(
                lambda a, k=k, j=j: a[k, j], (model.second.forest.value.swapaxes(1, 3), model.second.processes)
            )
            rows = [jnp.c_[x, jnp.full(len(x), forest[0].mean())] for x in (context.x, at)]  # trees of one leaf
            mean, std, _ = one.condition(rows[0], context.y[:, j], context.mask)(rows[1])
            np.testing.assert_allclose(found.components.mean[k, :, j], mean, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(found.components.std[k, :, j], std, rtol=1e-3)


def test_validation_uses_the_members_that_were_not_trained_on_the_task():
    model, task = with_weight(build(), 0.5), random_task(fold=2)
    found = predict(model.held_out(task), task.context, task.target.x)
    everyone = predict(model, task.context, task.target.x)
    np.testing.assert_allclose(found.mean, everyone.components.mean[2], rtol=1e-4, atol=1e-5)
    assert model.held_out(random_task()) is model


def test_the_mixed_process_has_the_stated_covariance():
    mixed, rng = process(), np.random.default_rng(1)
    a, b = (jnp.asarray(rng.normal(size=(n, 3)), jnp.float32) for n in (4, 5))
    z = [np.c_[np.ones(len(x)), x] for x in (a, b)]
    distance = (np.square(np.asarray(a)[:, None, :2] - np.asarray(b)[:, :2]) / np.exp(2 * mixed.log_length)).sum(-1)
    expected = z[0] * np.exp(2 * mixed.log_slope) @ z[1].T + np.exp(2 * mixed.log_amplitude - distance / 2)
    np.testing.assert_allclose(mixed.covariance(mixed.prior(a), mixed.prior(b)), expected, rtol=1e-4)
    np.testing.assert_allclose(mixed.prior(a).mean, z[0] @ mixed.fixed, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(mixed.prior(a).variance, np.diag(mixed.covariance(mixed.prior(a), mixed.prior(a))), 1e-4)


def test_the_trend_is_that_of_generalised_least_squares():
    mixed, rng = process(), np.random.default_rng(2)
    x, y = rng.normal(size=(4, 5, 3)), rng.normal(size=(4, 5))
    mask = np.arange(5) < np.array([5, 3, 5, 2])[:, None]
    weights = np.array([[1.0, 1, 0, 1]])
    with jax.enable_x64(True):
        start = jax.tree.map(lambda a: jnp.asarray(a, float)[None], mixed)
        found = _with_trends(start, *map(jnp.asarray, (weights, x, y, mask)))[1].fixed[0]
        one = jax.tree.map(lambda a: a[0], start)
        precision, right = np.eye(4), np.zeros(4)
        for t in (0, 1, 3):
            rows, seen = x[t][mask[t]], y[t][mask[t]]
            prior, z = one.prior(jnp.asarray(rows)), np.c_[np.ones(len(rows)), rows]
            inverse = np.linalg.inv(np.asarray(one.covariance(prior, prior)) + np.diag(prior.noise))
            precision, right = precision + z.T @ inverse @ z, right + z.T @ inverse @ seen
        np.testing.assert_allclose(found, np.linalg.solve(precision, right), rtol=1e-6)


def test_nothing_of_a_fold_reaches_what_predicts_it():
    """Forest and process of fold 1 are the same whatever the outputs of its tasks; the others are not."""
    found = []
    for changed in (None, 1):
        forests, folded = fit_forests(collected(changed), 4, seed=0)
        found.append((forests, fit_processes(folded, seed=0), folded.tasks.rows[:, 2]))
    (forests, processes, said), (other_forests, other_processes, other_said) = found
    is_in_fold = np.repeat(np.arange(7) % FOLDS, 6) == 1
    np.testing.assert_array_equal(forests.value[1], other_forests.value[1])
    np.testing.assert_array_equal(said[is_in_fold], other_said[is_in_fold])
    # The forests' predictions of the other folds, which differ, are inputs of this process too.
    assert all((forests.value[k] != other_forests.value[k]).any() for k in (0, 2))
    assert (processes.fixed[0] != other_processes.fixed[0]).any()
    predicted = jax.vmap(lambda forest: forest(folded.tasks.rows[:, :2]))(other_forests)[1, :, 0]
    np.testing.assert_allclose(predicted[is_in_fold], other_said[is_in_fold], atol=1e-6)


def test_a_process_learns_nothing_from_the_tasks_of_its_fold():
    tasks = collected()
    _, folded = fit_forests(tasks, 4, seed=0)
    changed = eqx.tree_at(lambda f: f.tasks.rows, folded, folded.tasks.rows.at[:, 3].set(collected(1).rows[:, 2]))
    a, b = fit_processes(folded, seed=0), fit_processes(changed, seed=0)
    for leaf, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(leaf[1], other[1], atol=1e-3)
    assert abs(a.fixed[0] - b.fixed[0]).max() > 0.01


def test_the_weight_goes_to_the_better_model_as_far_as_there_are_tasks():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(600, 3, 1))
    # Both are equally sure.
    good, bad = (Normal(jnp.asarray(y + s * rng.normal(size=y.shape)), jnp.full(y.shape, 0.1)) for s in (0.1, 0.3))
    mask = jnp.arange(16) < rng.integers(0, 17, 600)[:, None]
    none, here = jnp.zeros((16, 1)), jnp.ones(3, bool)
    task = jax.vmap(lambda y, seen: Task(Points(none, none, seen), Points(none[:3], y, here)))(jnp.asarray(y), mask)
    many, swapped, few = (
        fit_stack(*pair, task, n) for *pair, n in ((good, bad, 500), (bad, good, 500), (bad, good, 1))
    )
    assert many.weight.min() > 0.8 and swapped.weight.max() < 0.2
    assert few.weight.min() > 0.2 and few.weight.max() < 0.5
    worse = Normal(good.mean, good.std / 3)
    widened = jax.vmap(fit_stack(worse, worse, task, 500))(worse, worse, mask.sum(1)).std
    assert widened.min() > 0.08, "deviations that are too small are widened"


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    tasks = [(np.where(rng.random((6, 2)) < 0.1, np.nan, rng.normal(size=(6, 2))), rng.normal(size=(6, 2)))] * 4
    settings = {**SMALL, "model.population.trees": 3}
    return MetaFunRegressor().meta_fit(tasks, steps=4, settings=settings, progress=False)


def test_meta_fit_with_gaps_and_several_outputs(trained, tmp_path):
    model = trained.checkpoint.model
    assert isinstance(model, Stacked) and model.second.forest.value.shape[:2] == (4, 3)
    assert trained.checkpoint.experiment.config.model.population.nodes == model.second.forest.value.shape[2]
    x, y = np.array([[0.0, np.nan], [1.0, 2.0]]), np.zeros((2, 2))
    mean, std = trained.fit(x, y).predict(x, return_std=True)
    assert mean.shape == (2, 2) and (std > 0).all()
    trained.save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(MetaFunRegressor.load(tmp_path / "model.safetensors").predict(x), mean)


def test_forests_need_folds():
    for folds, trees in ((0, 0), (5, 7)):
        config = load_config("collected", (), {"tasks.folds": folds, "model.population.trees": 7})
        assert trees_of(Experiment(config)) == trees


def test_the_untrained_stack_is_the_first_model():
    assert (first_alone().weight == 1).all() and (build().stack.weight == 1).all()
