"""The process over the columns of a table: closed forms, and what it can learn in context without any training."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from metafun.config import load_config
from metafun.errors import InvalidConfig
from metafun.model.likelihoods import Normal, masked_mean
from metafun.model.responses import ITERATIONS, Numbers, Settings, Softmax
from metafun.model.table_kernel import SCALES, TERMS, Cells, Metric, evidence
from metafun.model.task import Points
from metafun.model.warping import Warp
from metafun.tasks.scaling import ClippedScaling
from metafun.training.trainer import shape_of_chunk
from test_tables import SMALL_WIDE

LINEAR = jnp.eye(TERMS)[1]


def rows_of(x, features=2) -> Cells:
    values = jnp.asarray(x)
    return Cells(values, values, jnp.tanh(values[..., None] * jnp.arange(1, 1 + features)))


def random_metric(columns, seed=0) -> Metric:
    rng = np.random.default_rng(seed)
    return Metric(jnp.asarray(rng.uniform(0.1, 1, (columns, SCALES))), jnp.asarray(rng.uniform(0.2, 1, TERMS)))


def settings(noise=0.0) -> Settings:
    return Settings(jnp.asarray(noise), jnp.zeros(()), jnp.zeros(()))


def test_the_covariance_is_one(float64):
    """Symmetric, positive, with its own diagonal, and of any order of columns."""
    x = np.random.default_rng(0).normal(size=(9, 4)).round(1)
    x[:, 3] = x[:, 3] > 0
    metric, cells = random_metric(4), rows_of(x)
    k = metric(cells, cells)
    np.testing.assert_allclose(k, k.T, rtol=1e-12)
    np.testing.assert_allclose(np.diag(k), metric.variance(cells), rtol=1e-12)
    assert np.linalg.eigvalsh(k).min() > -1e-9
    order = np.array([2, 0, 3, 1])
    turned = Metric(metric.scales[order], metric.amplitudes)
    np.testing.assert_allclose(turned(rows_of(x[:, order]), rows_of(x[:, order])), k, rtol=1e-12)


def test_a_linear_covariance_is_ridge_regression(float64):
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(12, 5)), rng.uniform(0.2, 2, 5)
    y, at = rng.normal(size=(12, 2)), rng.normal(size=(4, 5))
    metric = Metric(jnp.asarray(w)[:, None] * jnp.ones(SCALES), LINEAR)
    context, noise = Points(jnp.asarray(x), jnp.asarray(y), jnp.ones(12, bool)), np.log(0.7)
    fit = Numbers(0.0).fit(metric(rows_of(x), rows_of(x)), context, settings(noise))
    found, variance = fit(metric(rows_of(at), rows_of(x)), metric.variance(rows_of(at)))
    ridge = Ridge(alpha=0.7, fit_intercept=False).fit(x * np.sqrt(w), y)
    np.testing.assert_allclose(found, ridge.predict(at * np.sqrt(w)), rtol=1e-8)
    left, spread = fit.leave_one_out()
    for i in (0, 7):
        kept = np.arange(12) != i
        other = Ridge(alpha=0.7, fit_intercept=False).fit(x[kept] * np.sqrt(w), y[kept])
        np.testing.assert_allclose(left[i], other.predict(x[i : i + 1] * np.sqrt(w))[0], rtol=1e-7)
    assert (variance > 0).all() and (spread > 0).all()


def test_classes_are_fitted_as_logistic_regression_does(float64):
    """With a linear covariance and no offset, the penalised maximum likelihood."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 3))
    labels = np.argmax(x + rng.normal(size=x.shape), axis=1)
    metric = Metric(jnp.full((3, SCALES), 0.5), LINEAR)
    context = Points(jnp.asarray(x), jnp.eye(3)[labels], jnp.ones(30, bool))
    fit = Softmax().fit(metric(rows_of(x), rows_of(x)), context, settings(-40.0))
    found, _ = fit(metric(rows_of(x), rows_of(x)), metric.variance(rows_of(x)))
    logistic = LogisticRegression(C=0.5, fit_intercept=False, tol=1e-10).fit(x, labels)
    expected = logistic.decision_function(x)
    np.testing.assert_allclose(found, expected - expected.mean(1, keepdims=True), atol=0.02 * abs(expected).max())
    assert ITERATIONS < 20, "so few suffice"


def test_evidence_is_the_gradient_of_the_marginal_likelihood(float64):
    """For outputs of the scale that the covariance expects, of each weight of each column."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(8, 3)).round()
    cells, metric, noise = rows_of(x), random_metric(3), 0.5
    y = jnp.asarray(rng.normal(size=8))

    def log_likelihood(logs, y):
        k = Metric(jnp.exp(logs), metric.amplitudes.at[3].set(0.0))(cells, cells) + noise * jnp.eye(8)
        return -y @ jnp.linalg.solve(k, y) / 2 - jnp.linalg.slogdet(k)[1] / 2

    metric = Metric(metric.scales, metric.amplitudes.at[3].set(0.0))  # products share the weights of the linear term
    precision = jnp.linalg.inv(metric(cells, cells) + noise * jnp.eye(8))
    y = y * jnp.sqrt(jnp.trace(precision) / jnp.square(precision @ y).sum())
    found = jnp.sinh(evidence(metric, cells, (precision @ y)[:, None], precision)[:, :-1]) / 2
    expected = jax.grad(log_likelihood)(jnp.log(metric.scales), y)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@functools.cache
def untrained(kind):
    """The model before any training, whose correction is 0."""
    config = load_config(f"wide-tables-{kind}", SMALL_WIDE)
    dy = 0 if kind == "classification" else 1
    return eqx.filter_jit(lambda key: config.model.build(100, dy, key))(jax.random.key(0))


@eqx.filter_jit
def predict(model, context, x):
    return model.predict(model.encode(context), x)


def test_a_linear_function_of_twenty_columns_is_learned_in_context():
    """Of 64 rows, before any training: the process with its initial covariance."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(264, 20)).astype(np.float32), rng.normal(size=20)
    y = ClippedScaling.of((x @ w)[:64, None])((x @ w)[:, None])
    context = Points(jnp.asarray(x[:64]), jnp.asarray(y[:64], jnp.float32), jnp.ones(64, bool))
    found = predict(untrained("regression"), context, jnp.asarray(x[64:])).mean
    error = np.square(found - y[64:]).mean() / y[64:].var()
    assert error < 0.15
    classes = jnp.eye(2)[(y[:, 0] > 0).astype(int)]
    context = Points(context.x, classes[:64], context.mask)
    right = predict(untrained("classification"), context, jnp.asarray(x[64:])).log_probabilities.argmax(-1)
    assert (right == classes[64:].argmax(-1)).mean() > 0.8


@pytest.mark.parametrize("kind", ["regression", "classification"])
def test_the_correction_starts_at_zero(kind):
    model, rng = untrained(kind), np.random.default_rng(0)
    y = rng.normal(size=(6, 1)) if kind == "regression" else np.eye(3)[np.arange(6) % 3]
    context = Points(jnp.asarray(rng.normal(size=(6, 4)), jnp.float32), jnp.asarray(y, jnp.float32), jnp.ones(6, bool))
    base, corrected = eqx.filter_jit(lambda m, c: m.predict_both(m.encode(c), c.x))(model, context)
    jax.tree.map(np.testing.assert_array_equal, base, corrected)


def test_skewed_outputs_are_made_even(float64):
    rng = np.random.default_rng(0)
    for y in (np.exp(1.5 * rng.normal(size=(200, 1))), -np.exp(rng.normal(size=(200, 1)))):
        scaled = jnp.asarray(ClippedScaling.of(y)(y))
        warp = Warp.of(scaled, jnp.ones(200, bool))
        np.testing.assert_allclose(warp.inverse(warp(scaled)), scaled, rtol=1e-6, atol=1e-6)
        skewness = [abs(float((v**3).mean() / (v**2).mean() ** 1.5)) for v in (scaled - scaled.mean(), warp(scaled))]
        assert skewness[1] < skewness[0] / 2.5
    even = Warp.of(jnp.asarray(rng.normal(size=(200, 1))), jnp.ones(200, bool))
    assert abs(float(even.power[0]) - 1) < 0.2


def test_a_mapped_normal_has_the_moments_of_its_samples(float64):
    warp = Warp(jnp.array([0.3]), jnp.array([0.2]), jnp.array([0.8]))
    prediction = Normal(jnp.array([[0.5]]), jnp.array([[0.6]]))
    found = warp.unwarped(prediction)
    samples = warp.inverse(prediction.sample(jax.random.key(0), 100_000))
    assert float(found.mean[0, 0]) == pytest.approx(float(samples.mean()), rel=0.02)
    assert float(found.std[0, 0]) == pytest.approx(float(samples.std()), rel=0.05)
    straight = Warp(jnp.ones(1), jnp.zeros(1), jnp.ones(1)).unwarped(prediction)
    at = prediction.sample(jax.random.key(1), 5000)
    loss = jax.vmap(lambda y: prediction.log_prob(y) - straight.log_prob(y))(at)
    assert abs(float(masked_mean(loss[:, 0], jnp.ones(5000, bool)))) < 0.01


def test_large_shapes_are_rare():
    turns = [shape_of_chunk(chunk, 4) for chunk in range(80)]
    assert [turns.count(shape) for shape in range(4)] == [10, 10, 20, 40]
    assert {shape_of_chunk(chunk, 1) for chunk in range(9)} == {0}
    assert resolve_shapes() == [(100, (2, 1024)), (50, (2, 512)), (25, (2, 256)), (12, (2, 128))]


def resolve_shapes():
    shapes = load_config("wide-tables-regression").tasks.training_shapes()
    return [(tables.columns, tables.context) for tables in shapes]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["model.loss.kind=squared-error"], "predicts deviations; set model.loss.kind = 'gaussian'"),
        (["model.population.about=30"], "about = 30 cannot be divided among model.population.heads = 4"),
        (["tasks.prior=narrow"], "set tasks.prior = 'mixed'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes, message):
    with pytest.raises(InvalidConfig, match=message):
        load_config("wide-tables-regression", changes)
