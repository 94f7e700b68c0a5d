"""The similarity term: a nearest class mean that learned updates start from."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import SIMILAR, build, random_task
from metafun.baselines.metric import Prototypes
from metafun.config import Experiment, load_config
from metafun.embeddings import Embedded
from metafun.embeddings.linear import LinearMap
from metafun.errors import InvalidConfig
from metafun.model.likelihoods import CrossEntropy
from metafun.model.similarity import class_means, cosines, negative_distances
from metafun.model.task import Points, Task
from metafun.tasks.preprocessing import unit

CLASS_MEAN = ["model.similarity.kind=class-mean", "model.similarity.temperature=0.2", "tasks.features=6"]


def untrained_model(*settings):
    """A model as training starts it."""
    return Experiment(load_config("features", [*CLASS_MEAN, *settings])).build_model(jax.random.key(0))


def is_points(node) -> bool:
    return isinstance(node, Points)


def features_task(seed: int = 0, ways: int = 4, shots: int = 3) -> Task:
    rng = np.random.default_rng(seed)
    y = np.repeat(np.eye(ways), shots, axis=0)
    return Task(Points.of(rng.normal(size=(ways * shots, 6)), y), Points.of(rng.normal(size=(5, 6)), y[:5], "target"))


def test_an_untrained_model_is_the_nearest_class_mean():
    nearest = Prototypes(None, jnp.log(0.4), CrossEntropy(0.0), cosine=False)
    for model in (untrained_model(), untrained_model("embedding.kind=linear")):
        for seed in range(3):
            task = features_task(seed)
            task = jax.tree.map(lambda points: replace(points, x=unit(points.x)), task, is_leaf=is_points)
            found, expected = (m.predict(m.encode(task.context), task.target.x) for m in (model, nearest))
            np.testing.assert_allclose(found.probabilities, expected.probabilities, rtol=1e-5)


def test_with_one_point_of_each_class_the_term_is_the_cosine():
    task, model = features_task(ways=5, shots=1), build(SIMILAR[0]).similarity
    zero = jnp.zeros((5, 5))
    found = model(zero, model.summary(task.context), task.target.x)
    expected = cosines(task.target.x, task.context.x) / jnp.exp(model.log_temperature)
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], rtol=1e-4, atol=1e-5)


def test_rows_that_are_padding_do_not_move_the_means():
    context = features_task().context
    padded = context.pad(20)
    padded = eqx.tree_at(lambda points: points.x, padded, padded.x.at[len(context.mask) :].set(100.0))
    np.testing.assert_allclose(class_means(padded), class_means(context), rtol=1e-6)
    first = np.asarray(context.x)[:3].mean(0)
    np.testing.assert_allclose(class_means(context)[0], first, rtol=1e-5)


def test_the_logits_of_the_decoder_are_added():
    model, task = build(SIMILAR[0]), random_task(SIMILAR[0])
    representation = model.encode(task.context)
    without = eqx.tree_at(lambda m: m.similarity, model, None)
    x = task.target.x
    learned = without.predict(without.encode(task.context), x).logits
    context = replace(task.context, x=unit(task.context.x))
    term = negative_distances(unit(x), class_means(context)) / (2 * jnp.exp(model.similarity.log_temperature))
    np.testing.assert_allclose(model.predict(representation, x).logits, learned + term, rtol=1e-4, atol=1e-5)
    last = jax.tree.map(lambda leaf: leaf[-1], model.predict_trajectory(representation, x).logits)
    np.testing.assert_allclose(last, learned + term, rtol=1e-4, atol=1e-5)


def test_gradient_updates_descend_from_the_similarity_term():
    model, task = build(SIMILAR[1]), random_task(SIMILAR[1])
    without = eqx.tree_at(lambda m: m.similarity, model, None)
    found, plain = (m.encode(task.context).updates[0] for m in (model, without))
    assert not np.allclose(found, plain), "where the term is right already, less is left to do"


def test_all_parts_are_trained_from_the_start():
    model, task = untrained_model("embedding.kind=linear", "model.decoder.dropout=0.0"), features_task()
    assert isinstance(model, Embedded) and isinstance(model.embedding, LinearMap)
    gradient = eqx.filter_grad(lambda m: m.loss(task))(model)
    last_biases = [u.biases[-1] for u in (gradient.learner.updates[0].positive, gradient.learner.updates[0].negative)]
    for part in (gradient.embedding.weights, gradient.learner.similarity.log_temperature, *last_biases):
        assert np.abs(part).max() > 1e-6


def test_distances_and_cosines():
    rng = np.random.default_rng(0)
    x, y = jnp.asarray(rng.normal(size=(3, 4))), jnp.asarray(rng.normal(size=(2, 4)))
    square = ((x[:, None] - y) ** 2).sum(-1)
    np.testing.assert_allclose(negative_distances(x, y), -square, rtol=1e-5)
    expected = x @ y.T / np.linalg.norm(x, axis=1, keepdims=True) / np.linalg.norm(y, axis=1)
    np.testing.assert_allclose(cosines(x, y), expected, rtol=1e-5)
    assert np.isfinite(cosines(jnp.zeros((1, 4)), y)).all(), "a row of zeros has no direction"


def test_regression_has_no_similarity_term():
    with pytest.raises(InvalidConfig, match=r"model\.similarity\.kind = 'class-mean' is for classification"):
        load_config("sinusoid", ["model.similarity.kind=class-mean"])
