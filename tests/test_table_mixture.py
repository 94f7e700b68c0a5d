"""What the shipped models for any table predict in a mixture with: a Gaussian process over all columns, and trees."""

import copy
import dataclasses
import functools
import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import examples
from metafun import MetaFunClassifier, MetaFunRegressor
from metafun.errors import InvalidCheckpoint, NotEnoughMemory
from metafun.estimators.padding import check_context
from metafun.estimators.trained import Trained, open_trained
from metafun.estimators.trees import fit_trees
from metafun.model import averaged_process, table_mixture
from metafun.model.averaged_process import TEMPERATURE, AveragedProcess, column_scales
from metafun.model.likelihoods import Categorical, Normal
from metafun.model.responses import Numbers
from metafun.model.task import Points
from test_tables import SMALL

condition = eqx.filter_jit(lambda process, context: process.condition(context))
predict = eqx.filter_jit(lambda process, given, x: process.predict(given, x))


@functools.cache
def mixed(kind: str) -> Trained:
    """A model of 5 columns, with random weights, as one of those that are shipped."""
    return dataclasses.replace(examples.untrained(kind, *SMALL), record={"mixture": True})


def wide_table(n=30, m=9):
    """Numbers, categories, a binary column and gaps; and new rows."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n + m, 9))
    x[:, 6:] = rng.integers(0, (4, 3, 2), (n + m, 3))
    y = np.array(["no", "yes", "maybe"])[(x[:, 0] + x[:, 6] > 1).astype(int) + (x[:, 1] > 0.5)]
    x[rng.random(x.shape) < 0.1] = np.nan
    return x[:n], y[:n], x[n:]


@pytest.fixture(scope="module")
def fitted():
    x, y, x_ = wide_table()
    model = MetaFunClassifier(mixed("tables-classification"), n_trees=5).fit(x, y)
    return model, x, y, x_, model.predict_proba(x_)


def task(y, rows, seed=0):
    """Rows of 24 columns, of which so many exist; all tests share the compiled programs of these sizes."""
    x = np.random.default_rng(seed).normal(size=(96, 24))
    return Points(jnp.asarray(x), jnp.asarray(y), jnp.arange(96) < rows)


def test_processes_count_by_how_well_they_predict_rows_left_out(float64):
    """Each row is left out in turn, and the others are fitted again."""
    n, numbers = 6, Numbers(averaged_process.MIN_STD)
    given = condition(AveragedProcess(False), task(np.random.default_rng(1).normal(size=(96, 1)), n))
    covariances = averaged_process._covariances(given.scales, given.amplitudes, given.cells, given.cells)
    covariances, x, y = covariances[:, :n, :n], given.context.x[:n], given.context.y[:n]

    @jax.jit
    @functools.partial(jax.vmap, in_axes=(0, 0, 0, None))
    @functools.partial(jax.vmap, in_axes=(None, None, None, 0))
    def score(covariance, factor, settings, i):
        others = jnp.arange(n) != i
        known = Points(x, y, others)
        fit = numbers.fit(jnp.where(others[:, None] & others, covariance, 0), known, settings)
        f, variance = fit(jnp.where(others, covariance[i], 0)[None], covariance[i, i][None])
        # The scale of y is that of all rows; without it, a row would be measured by another scale.
        one = eqx.tree_at(lambda fit: fit.factor, fit, factor)
        return numbers.predict(one, f, variance, known, settings).log_prob(y[i][None])[0]

    scores = score(covariances, given.fit.factor, given.settings, jnp.arange(n)).sum(1)
    np.testing.assert_allclose(given.weights, jax.nn.softmax(TEMPERATURE * scores), rtol=1e-6)
    assert given.weights.max() > 1.1 * given.weights.min()


def test_linear_functions_of_many_columns_are_learned(float64):
    """What does not exist changes nothing: padding, and entries of columns that have none in the context."""
    w, x_ = np.random.default_rng(2).normal(size=(24, 1)), np.random.default_rng(3).normal(size=(200, 24))
    known = task(np.zeros((96, 1)), 90)
    known = Points(known.x.at[:, 20:].set(jnp.nan), known.x[:, :20] @ w[:20], known.mask)
    found = predict(AveragedProcess(False), condition(AveragedProcess(False), known), jnp.asarray(x_))
    y_ = x_[:, :20] @ w[:20]
    assert ((found.mean - y_) ** 2).mean() < 0.1 * y_.var()
    x, y = known.x.at[90:].set(7.0), known.y.at[90:].set(1e3)
    given = condition(AveragedProcess(False), Points(x, y, known.mask))
    again = predict(AveragedProcess(False), given, jnp.asarray(x_).at[:, 20:].set(5.0))
    np.testing.assert_allclose((again.mean, again.std), (found.mean, found.std), rtol=1e-9)


def test_columns_count_by_what_they_have_in_common_with_y():
    rng = np.random.default_rng(0)
    x = np.c_[rng.normal(size=(40, 2)), rng.integers(0, 3, (40, 2)) ** 2]
    scales = eqx.filter_jit(lambda y: column_scales(Points(jnp.asarray(x), jnp.asarray(y), jnp.ones(40, bool))))
    for y in (np.eye(3)[x[:, 2].astype(int) // 2], (x[:, 2:3] == 1).astype(float)):
        linear, *_, categories, unequal = scales(y).T
        np.testing.assert_allclose((linear.sum(), categories.sum()), 1, rtol=1e-5)
        assert (categories[:2] == 0).all() and (unequal[:2] == 0).all(), "numbers that all differ are no categories"
        assert categories[2] > 5 * categories[3] > 0
    assert scales(x[:, :1])[0, 0] > 0.5


def test_the_order_of_rows_and_columns_does_not_matter(fitted):
    _, x, y, x_, expected = fitted
    rows, columns = np.random.default_rng(1).permutation(len(x)), np.random.default_rng(2).permutation(9)
    other = MetaFunClassifier(mixed("tables-classification"), n_trees=5).fit(x[rows][:, columns], y[rows])
    np.testing.assert_allclose(other.predict_proba(x_[:, columns]), expected, atol=1e-5)


def test_trees_are_half_of_the_prediction(fitted):
    model, x, y, x_, found = fitted
    without = MetaFunClassifier(mixed("tables-classification"), n_trees=0).fit(x, y)
    trees = model.representation_.forest(jnp.asarray(model.scaling_.scale_inputs(x_)[:, 5:], jnp.float32))[:, :3]
    np.testing.assert_allclose(trees.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(2 * found, without.predict_proba(x_) + trees, atol=1e-5)
    narrow = MetaFunClassifier(mixed("tables-classification"), n_trees=5).fit(x[:, :5], y)
    assert narrow.representation_.forest is None and without.representation_.forest is None


def test_they_are_saved_and_exported(fitted, tmp_path):
    model, _, _, x_, expected = fitted
    model.save(tmp_path / "model.safetensors")
    for other in (MetaFunClassifier.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        assert other.n_trees == 5
        np.testing.assert_array_equal(other.predict_proba(x_), expected)
    model.export(tmp_path / "program")
    program = jax.export.deserialize(bytearray((tmp_path / "program").read_bytes()))
    np.testing.assert_allclose(program.call(jnp.asarray(x_, jnp.float32)), expected, atol=1e-5)


@pytest.mark.parametrize("trees", [-1, 2.5, 10**9])
def test_numbers_of_trees_are_checked(fitted, trees, tmp_path):
    _, x, y, _, _ = fitted
    model = MetaFunClassifier(mixed("tables-classification"), n_trees=trees)
    with pytest.raises(ValueError, match="must be a whole number from 0 to 1,000"):
        model.fit(x, y)
    model = MetaFunClassifier(mixed("tables-classification"), n_trees=2).fit(x, y).set_params(n_trees=trees)
    model.save(tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match=r"damaged context: n_trees = .* must be a whole number"):
        MetaFunClassifier.load(tmp_path / "model.safetensors")


def test_the_memory_of_leaves_counts():
    model = open_trained("tables-classification").model
    check_context(model, 1000, 1, 10, 32)
    with pytest.raises(NotEnoughMemory):
        check_context(model, 1000, 1, 500, 1000)


def test_other_models_are_not_mixed(monkeypatch):
    """Those that are trained by a user, and large contexts."""
    assert not examples.untrained("tables-classification", *SMALL).is_mixed
    assert not open_trained("gp-rbf").is_mixed and open_trained("tables-regression").is_mixed
    monkeypatch.setattr(table_mixture, "MOST_ROWS", 10)
    learner, fields = mixed("tables-classification").learner, (((9,), "float32"), ((3,), "float32"), ((), "bool"))
    few, many = (
        eqx.filter_eval_shape(Points, *(jax.ShapeDtypeStruct((n, *axes), kind) for axes, kind in fields))
        for n in (10, 11)
    )
    assert eqx.filter_eval_shape(learner.encode, few).process is not None
    assert eqx.filter_eval_shape(learner.encode, many).process is None


def test_log_probabilities_are_averaged():
    classes, shares = jnp.array([True, True, False]), (jnp.array([[0.8, 0.2, 0.0]]), jnp.array([[0.5, 0.5, 0.0]]))
    found = table_mixture._mean_of_classes([Categorical(7 + jnp.log(each), classes) for each in shares])
    np.testing.assert_allclose(found.probabilities, [[2 / 3, 1 / 3, 0]], rtol=1e-5)


def test_numbers_have_the_mean_of_the_means():
    members = [Normal(jnp.array([[1.0]]), jnp.array([[1.0]])), Normal(jnp.array([[3.0]]), jnp.array([[4.0]]))]
    found = table_mixture._mean_of_numbers(members)
    np.testing.assert_allclose((found.mean, found.std), 2, rtol=1e-6)


def test_joint_samples_are_those_of_the_model_alone():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 7)), rng.normal(size=12)
    model = MetaFunRegressor(mixed("tables-regression")).fit(x, y)
    alone = copy.copy(model)
    alone.trained_ = dataclasses.replace(model.trained_, record={})
    alone.scaling_ = alone.trained_.scaling(x, y[:, None])
    drawn = [each.sample_y(x[:3], 4, random_state=0, joint=True) for each in (model, alone)]
    np.testing.assert_allclose(*drawn, rtol=1e-4)


def test_the_last_digit_of_an_entry_changes_no_tree():
    """Whether an entry is missing is decided by a comparison with the largest of the others."""
    x = np.tile(np.arange(4.0), 8).astype(np.float32)[:, None]
    x[16:] = np.nan
    forest = fit_trees(x, np.isnan(x[:, 0]).astype(int), 4, 2)
    np.testing.assert_array_equal(forest(jnp.asarray(x + 5e-6)), forest(jnp.asarray(x)))
