"""Classification: the class-wise update, the softmax decoder, the cross-entropy and calibration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import CLASSES, CLASSIFIERS, TINY_EPISODES, build, loss, random_task
from metafun.config import Experiment, load_config
from metafun.model.decoders import Logits, SoftmaxWeights
from metafun.model.initial import Zero
from metafun.model.likelihoods import Categorical, CrossEntropy, calibration_error, reliability
from metafun.model.metafun import MetaFun
from metafun.model.nn import MLP, dropout
from metafun.model.pooling import SquaredExponential
from metafun.model.updates import ClasswiseUpdate, GradientUpdate, mean_over_classes, sum_over_classes


def test_cross_entropy_descent_is_a_special_case_of_the_classwise_update(float64):
    """Section 3: m = exp, u₊ = m/Σm − 1, u₋ = m/Σm give the gradient of the cross-entropy."""
    n = 5
    gradient = MetaFun(
        initial=Zero(1),
        update=GradientUpdate(1),
        pool=SquaredExponential(1.3, 0.7),
        decode=Logits(),
        likelihood=CrossEntropy(0.0),
        step_size=0.2 * n,
        iterations=4,
        context_weight=1.0,
        target_weight=1.0,
    )
    task = random_task(CLASSIFIERS[0], seed=3)

    def positive(pair):
        return pair[..., :1] / pair[..., 1:] - 1

    def negative(pair):
        return pair[..., :1] / pair[..., 1:]

    specified = eqx.tree_at(lambda m: m.step_size, gradient, jnp.asarray(0.2))
    specified = eqx.tree_at(lambda m: m.updates, specified, (ClasswiseUpdate.__new__(ClasswiseUpdate),))
    parts = {"m": jnp.exp, "positive": positive, "negative": negative, "summary": sum_over_classes}
    for part, function in parts.items():
        object.__setattr__(specified.updates[0], part, function)

    represent = eqx.filter_jit(lambda model: model.encode(task.context)(task.target.x))
    found, expected = represent(specified), represent(gradient)
    shown = task.context.classes
    np.testing.assert_allclose(found[:, shown], expected[:, shown], atol=1e-12)


def test_summaries_are_over_the_classes_of_the_task():
    m, classes = jnp.array([[[1.0, 2.0], [3.0, 5.0], [100.0, 100.0]]]), jnp.array([True, True, False])
    np.testing.assert_array_equal(sum_over_classes(m, classes), [[[4.0, 7.0]]])
    np.testing.assert_array_equal(mean_over_classes(m, classes), [[[2.0, 3.5]]])


def test_the_sum_over_classes_is_their_mean_times_their_number(float64):
    """A u₊ and u₋ that divide m̄ by K turn the one update into the other."""
    variant = CLASSIFIERS[0]
    task = random_task(variant)
    mean, total = (build(variant, update={"kind": "classwise", "width": 7, "summary": s}) for s in ("mean", "sum"))
    k, width = int(task.context.classes.sum()), 7

    def divided(u: MLP) -> MLP:
        first = u.weights[0].at[width:].divide(k)
        return eqx.tree_at(lambda mlp: mlp.weights[0], u, first)

    nets = lambda m: (m.updates[0].positive, m.updates[0].negative)  # noqa: E731
    total = eqx.tree_at(nets, total, tuple(divided(u) for u in nets(total)))
    assert k > 1
    np.testing.assert_allclose(loss(total, task), loss(mean, task), rtol=1e-12)


def test_smoothed_cross_entropy_by_hand(float64):
    prediction = Categorical(jnp.log(jnp.array([[0.7, 0.2, 0.1, 0.5]])), jnp.array([True, True, True, False]))
    loss = CrossEntropy(0.3).loss(prediction, jnp.array([[1.0, 0, 0, 0]]))
    np.testing.assert_allclose(loss, [-(0.8 * np.log(0.7) + 0.1 * np.log(0.2) + 0.1 * np.log(0.1))])


def softmax_weights(bias: bool = False, hidden: MLP | None = None) -> tuple[SoftmaxWeights, jax.Array, jax.Array]:
    """A decoder with x [4, dx] and r [4, k, dr] for it."""
    keys = jax.random.split(jax.random.key(0), 3)
    linear = MLP([6, 2 * (3 + bias)], "tanh", key=keys[0])
    return (
        SoftmaxWeights(linear, dropout=0.0, bias=bias, hidden=hidden),
        jax.random.normal(keys[1], (4, CLASSES, 6)),
        jax.random.normal(keys[2], (4, 3)),
    )


def test_logits_are_drawn_as_if_the_weights_were():
    """A logit drawn directly has the distribution of x·w with w drawn."""
    decode, r, x = softmax_weights()
    w, s = np.split(np.asarray(decode.linear(r)), 2, axis=-1)
    std = np.maximum(np.exp(s) - (1 - np.sqrt(2 / (CLASSES + 3))), 1e-10)
    np.testing.assert_allclose(decode(r, x), np.einsum("md,mkd->mk", x, w), atol=1e-5)

    count = 20_000
    drawn = jax.jit(jax.vmap(lambda key: decode(r, x, key)))(jax.random.split(jax.random.key(1), count))
    literal = np.einsum("md,cmkd->cmk", x, w + std * np.random.default_rng(0).normal(size=(count, *w.shape)))
    assert literal.std(0).min() > 0.01
    np.testing.assert_allclose(drawn.mean(0), literal.mean(0), atol=8 * literal.std(0).max() / np.sqrt(count))
    np.testing.assert_allclose(drawn.std(0), literal.std(0), rtol=8 / np.sqrt(2 * count))


def test_a_bias_is_a_constant_input_of_one():
    decode, r, x = softmax_weights(bias=True)
    w, _ = np.split(np.asarray(decode.linear(r)), 2, axis=-1)
    np.testing.assert_allclose(decode(r, x), np.einsum("md,mkd->mk", x, w[..., :3]) + w[..., 3], atol=1e-5)


def test_the_mean_and_deviation_of_the_weights_may_be_an_mlp():
    """Hidden layers before the linear map are those of one MLP, in evaluation and in training."""
    hidden = MLP([6, 5, 6], "tanh", key=jax.random.key(7))
    deep, r, x = softmax_weights(hidden=hidden)
    linear = softmax_weights()[0]
    whole = eqx.tree_at(
        lambda mlp: (mlp.weights, mlp.biases),
        MLP([6, 5, 6, 6], "tanh", key=jax.random.key(8)),
        (hidden.weights + linear.linear.weights, hidden.biases + linear.linear.biases),
    )
    w, _ = np.split(np.asarray(whole(r)), 2, axis=-1)
    np.testing.assert_allclose(deep(r, x), np.einsum("md,mkd->mk", x, w), atol=1e-5)
    key = jax.random.key(1)
    np.testing.assert_allclose(deep(r, x, key), linear(jnp.tanh(hidden(r)), x, key), atol=1e-6)


@pytest.mark.parametrize("layers", [0, 1, 3])
def test_training_starts_from_a_representation_of_zeros(layers):
    """With ReLU, r⁽⁰⁾ = 0 and biases of 0, hidden layers of the decoder would leave every update without a gradient."""
    settings = [*TINY_EPISODES, f"model.decoder.layers={layers}", "tasks.features=3"]
    model, task = (
        Experiment(load_config("features", settings)).build_model(jax.random.key(0)),
        random_task(CLASSIFIERS[0]),
    )
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: m.loss(task)))(model)
    assert gradient.updates[0].positive.biases[-1].any()


def test_an_input_of_zeros_has_a_gradient():
    decode, r, x = softmax_weights()
    gradient = jax.grad(lambda r: decode(r, 0 * x, jax.random.key(0)).sum())(r)
    assert np.isfinite(gradient).all()


def test_dropout_keeps_the_mean_and_is_off_without_a_key():
    x = jnp.ones(10_000)
    np.testing.assert_array_equal(dropout(x, 0.4, None), x)
    dropped = dropout(x, 0.4, jax.random.key(0))
    np.testing.assert_allclose(np.unique(dropped), [0, 1 / 0.6], rtol=1e-6)
    np.testing.assert_allclose(dropped.mean(), 1, atol=5 * np.sqrt(0.4 / 0.6 / x.size))


def test_accuracy_and_likelihood_are_reported():
    prediction = Categorical(jnp.array([[2.0, 0.0], [2.0, 0.0]]), jnp.ones(2, bool))
    metrics = CrossEntropy(0.2).metrics(prediction, jnp.eye(2))
    np.testing.assert_array_equal(metrics["accuracy"], [1, 0])
    np.testing.assert_allclose(metrics["log_likelihood"], [-np.log1p(np.exp(-2)), -np.log1p(np.exp(2))], rtol=1e-5)


def test_reliability_by_hand():
    """Four predictions in two bins: (0.9, right), (0.92, wrong), (0.55, right), (0.55, wrong)."""
    confidence, right = jnp.array([0.9, 0.92, 0.55, 0.55]), jnp.array([1.0, 0, 1, 0])
    table = np.asarray(reliability(confidence, right)).mean(0)
    np.testing.assert_allclose(table[13], [0.5, 0.455, 0.25], rtol=1e-5)
    np.testing.assert_allclose(table[8], [0.5, 0.275, 0.25], rtol=1e-5)
    np.testing.assert_allclose(np.delete(table, [8, 13], axis=0), 0)
    np.testing.assert_allclose(calibration_error(table), 0.205 + 0.025, rtol=1e-4)


def test_a_confidence_of_one_is_in_the_last_bin():
    table = np.asarray(reliability(jnp.array([1.0]), jnp.array([1.0])))[0]
    np.testing.assert_array_equal(table[-1], [1, 1, 1])
