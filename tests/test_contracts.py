"""What holds for every pooling × update × decoder, and for what they are compared with."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import BASELINES, CLASSES, CLASSIFIERS, EMBEDDED, STOCHASTIC, VARIANTS, build, name, random_task
from metafun.model.likelihoods import Categorical
from metafun.model.task import Points, Task, stack

every_variant = pytest.mark.parametrize("variant", VARIANTS + CLASSIFIERS + STOCHASTIC + EMBEDDED + BASELINES, ids=name)


# Compiled whole: op by op, each of the thousand small shapes would be compiled by itself.
@eqx.filter_jit
def predict(model, context, x):
    return model.predict(model.encode(context), x)


@eqx.filter_jit
def represent(model, context, x):
    """Before all updates, and after them."""
    return model.initial(x), model.encode(context)(x)


@eqx.filter_jit
def loss(model, task):
    return model.loss(task)


@eqx.filter_jit
def losses(model, tasks):
    return jax.vmap(model.loss)(tasks)


def raw(prediction):
    """What a prediction says of each target; the classes of the task are not that."""
    return prediction.log_probabilities if isinstance(prediction, Categorical) else (prediction.mean, prediction.std)


def assert_same(a, b, tolerance=1e-5):
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=tolerance, atol=tolerance), a, b)


@every_variant
def test_the_order_of_the_context_does_not_matter(variant):
    model, task = build(variant), random_task(variant)
    shuffled = jax.tree.map(lambda a: a[jnp.array([3, 0, 4, 1, 2])], task.context)
    assert_same(predict(model, task.context, task.target.x), predict(model, shuffled, task.target.x))


@every_variant
def test_targets_do_not_see_each_other(variant):
    model, task = build(variant), random_task(variant)
    together = predict(model, task.context, task.target.x)
    alone = [raw(predict(model, task.context, x[None])) for x in task.target.x]
    assert_same(raw(together), jax.tree.map(lambda *parts: jnp.concatenate(parts), *alone))


@every_variant
def test_a_mask_equals_a_shorter_array(variant):
    model, task = build(variant), random_task(variant)
    padded = task.context.pad(9)
    # Whatever stands in the padding must not matter.
    junk = Points(padded.x.at[5:].set(7.0), padded.y.at[5:].set(-3.0), padded.mask)
    assert_same(predict(model, task.context, task.target.x), predict(model, junk, task.target.x))
    padded_task = Task(junk, task.target.pad(8))
    np.testing.assert_allclose(loss(model, task), loss(model, padded_task), rtol=1e-5)


@every_variant
def test_a_ragged_batch_equals_a_loop(variant):
    model = build(variant)
    tasks = [random_task(variant, seed, n, m) for seed, (n, m) in enumerate([(5, 4), (0, 1)])]
    np.testing.assert_allclose(losses(model, stack(tasks)), [loss(model, task) for task in tasks], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("variant", VARIANTS + CLASSIFIERS, ids=name)
@pytest.mark.parametrize("room", [0, 4], ids=["no-rows", "all-masked"])
def test_an_empty_context_gives_the_initial_representation(variant, room):
    model, task = build(variant), random_task(variant, n=0)
    initial, found = represent(model, task.context.pad(room), task.target.x)
    if variant in CLASSIFIERS:
        initial = jnp.repeat(initial[:, None], CLASSES, axis=1)
    np.testing.assert_array_equal(found, initial)


@eqx.filter_jit
@eqx.filter_value_and_grad
def training_loss(model, tasks):
    """With keys, because the spread of sampled weights counts only in training."""
    return jax.vmap(model.loss)(tasks, jax.random.split(jax.random.key(0), len(tasks.context.x))).mean()


@every_variant
@pytest.mark.parametrize("n", [0, 5])
def test_gradients_are_finite(variant, n):
    value, gradient = training_loss(build(variant), stack([random_task(variant, n=n), random_task(variant, 1)]))
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@every_variant
def test_every_parameter_is_used(variant):
    _, gradient = training_loss(build(variant), stack([random_task(variant), random_task(variant, 1)]))
    if isinstance(variant, dict) and variant.get("iterations") == 0:  # α has nothing to scale
        gradient = eqx.tree_at(lambda m: m.metafun.step_size, gradient, None)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))
