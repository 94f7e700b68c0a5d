"""What holds for every pooling × update × decoder, and for the methods they are compared with."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import (
    BASELINES,
    CLASSES,
    CLASSIFIERS,
    EMBEDDED,
    OVER_COLUMNS,
    SIMILAR,
    STOCHASTIC,
    STOCHASTIC_CLASSIFIERS,
    VARIANTS,
    build,
    classifies,
    name,
    random_task,
)
from metafun.errors import InvalidTask
from metafun.model.likelihoods import Categorical
from metafun.model.metafun import MetaFun
from metafun.model.stochastic import StochasticMetaFun
from metafun.model.task import Points, Task, stack

METAFUN = [*VARIANTS, *CLASSIFIERS, *STOCHASTIC, *STOCHASTIC_CLASSIFIERS, *SIMILAR, *EMBEDDED, *OVER_COLUMNS]
EVERY = {name(variant): variant for variant in [*METAFUN, *BASELINES]}
FIXED = [name(variant) for variant in CLASSIFIERS if "update.classes" in variant]

every_variant = pytest.mark.parametrize("variant", list(EVERY))
every_metafun = pytest.mark.parametrize("variant", [name(v) for v in VARIANTS + CLASSIFIERS])
CLASSIFYING = [key for key, variant in EVERY.items() if classifies(variant)]
FOR_ANY_CLASSES = [key for key in CLASSIFYING if key not in FIXED]
every_classifier = pytest.mark.parametrize("variant", CLASSIFYING)
for_any_classes = pytest.mark.parametrize("variant", FOR_ANY_CLASSES)
# Classes that no task has.
EXTRA = 3


def outcome(model, task):
    """All that the contracts compare; of a prediction, without the mask of classes."""
    representation, x = model.encode(task.context), task.target.x
    found = model.predict(representation, x)
    is_metafun = isinstance(model, MetaFun)
    return {
        "prediction": found.log_probabilities if isinstance(found, Categorical) else (found.mean, found.std),
        "loss": model.loss(task),
        "representation": representation(x) if is_metafun else None,
        "initial": model.initial(x) if is_metafun else None,
    }


@eqx.filter_jit
def outcome_alone(model, task):
    return outcome(model, task)


@eqx.filter_jit
def outcomes(model, tasks):
    return jax.vmap(functools.partial(outcome, model))(tasks)


@eqx.filter_jit
@eqx.filter_value_and_grad
def training_loss(model, tasks):
    """With keys, because the variance of sampled weights matters in training alone."""
    return jax.vmap(model.loss)(tasks, jax.random.split(jax.random.key(0), len(tasks.context.x))).mean()


def with_labels(task: Task, change) -> Task:
    return Task(*(Points(p.x, jnp.asarray(change(np.asarray(p.y))), p.mask) for p in (task.context, task.target)))


class Case:
    """A model, a task and their outcomes; the contracts of a variant share its compiled programs.

    In batches and gradients, models for any number of classes get `EXTRA` classes that no task has.
    """

    def __init__(self, key):
        variant, self.extra = EVERY[key], EXTRA if key in FOR_ANY_CLASSES else 0
        self.model, self.task = build(variant), random_task(variant)
        self.tasks = {
            n: stack([self.with_extra(random_task(variant, seed, n=size)) for seed, size in ((0, n), (1, 5))])
            for n in (0, 5)
        }
        self.empty = self.with_extra(random_task(variant, 1, n=0, m=1))

    def with_extra(self, task):
        return with_labels(task, lambda y: np.pad(y, [(0, 0), (0, self.extra)]))

    @functools.cached_property
    def alone(self):
        return outcome_alone(self.model, self.task)

    @functools.cached_property
    def empty_alone(self):
        return outcome_alone(self.model, self.empty)

    @functools.cached_property
    def batch(self):
        """The outcomes of the task in different forms and of the empty task, as one batch padded to 9 and 8 points."""
        context, target = self.task.context, self.task.target
        padded = context.pad(9)
        # Both far from the context and amid it, where a kernel would not be 0.
        junk = Points(
            padded.x.at[5:].set(np.array([[7.0], [0.5], [7.0], [0.1]])), padded.y.at[5:].set(-3.0), padded.mask
        )
        shuffled = jax.tree.map(lambda a: a[np.array([3, 0, 4, 1, 2])], context)
        others = jax.tree.map(lambda a: np.repeat(a, 2, axis=0), target)
        others = eqx.tree_at(lambda points: points.x, others, others.x + 5 * (np.arange(8) % 2)[:, None])
        tasks = {
            "plain": self.task,
            "padded with junk": Task(junk, target),
            "shuffled": Task(shuffled, target),
            "among other targets": Task(context, jax.tree.map(jnp.asarray, others)),
        }
        known = stack([*map(self.with_extra, tasks.values()), self.empty])
        found = jax.tree.map(np.asarray, outcomes(self.model, known))
        tasks["empty"] = self.empty
        return {key: jax.tree.map(lambda a, i=i: a[i], found) for i, key in enumerate(tasks)}

    @functools.cache  # noqa: B019
    def gradient(self, n):
        """Of two tasks, the first with n context points."""
        return training_loss(self.model, self.tasks[n])


@functools.cache
def case(variant: str) -> Case:
    return Case(variant)


def assert_same(a, b, tolerance=1e-5):
    jax.tree.map(lambda p, q: np.testing.assert_allclose(p, q, rtol=tolerance, atol=tolerance), a, b)


def first(outcome, m=4):
    """The prediction at the first m targets, for the classes that a task may have."""
    return jax.tree.map(lambda a: a[:m, :CLASSES], outcome["prediction"])


@every_variant
def test_the_order_of_the_context_does_not_matter(variant):
    assert_same(first(case(variant).batch["shuffled"]), first(case(variant).batch["plain"]))


@every_variant
def test_targets_do_not_see_each_other(variant):
    among = jax.tree.map(lambda a: a[::2, :CLASSES], case(variant).batch["among other targets"]["prediction"])
    assert_same(among, first(case(variant).batch["plain"]))


@every_variant
def test_a_mask_equals_a_shorter_array(variant):
    padded, alone = case(variant).batch["padded with junk"], case(variant).alone
    assert_same(first(padded), alone["prediction"])
    np.testing.assert_allclose(padded["loss"], alone["loss"], rtol=1e-5)


@every_variant
def test_a_ragged_batch_equals_a_loop(variant):
    found = [case(variant).batch[key]["loss"] for key in ("plain", "empty")]
    expected = [case(variant).alone["loss"], case(variant).empty_alone["loss"]]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@every_metafun
@pytest.mark.parametrize("form", ["no rows", "all masked"])
def test_an_empty_context_gives_the_initial_representation(variant, form):
    found = case(variant).empty_alone if form == "no rows" else case(variant).batch["empty"]
    initial = found["initial"]
    if classifies(EVERY[variant]):
        initial = np.repeat(np.asarray(initial)[:, None], CLASSES + case(variant).extra, axis=1)
    np.testing.assert_array_equal(found["representation"], initial)


@every_variant
@pytest.mark.parametrize("n", [0, 5])
def test_gradients_are_finite(variant, n):
    value, gradient = case(variant).gradient(n)
    assert np.isfinite(value)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


@every_variant
def test_every_parameter_is_used(variant):
    _, gradient = case(variant).gradient(5)
    leaves = jax.tree_util.tree_leaves_with_path(gradient)
    unused = {jax.tree_util.keystr(path, simple=True, separator=".") for path, leaf in leaves if not leaf.any()}
    if variant.endswith("global-0"):  # without updates α scales nothing
        unused.remove("metafun.step_size")
    if not variant.startswith("attention"):  # a kernel of a(x) − a(x') does not depend on the last bias of a
        unused = {path for path in unused if not re.fullmatch(r"pools\.\d+\.a\.biases\.1", path)}
    assert not unused


@for_any_classes
def test_classes_in_another_order_are_predicted_in_that_order(variant):
    model, task, alone = case(variant).model, case(variant).task, case(variant).alone
    order = np.array([2, 0, 3, 1])
    found = outcome_alone(model, with_labels(task, lambda y: y[:, order]))
    np.testing.assert_allclose(found["loss"], alone["loss"], rtol=1e-5)
    # With a latent the classes would exchange their draws; test_stochastic.py compares what is not random.
    if not isinstance(model, StochasticMetaFun):
        np.testing.assert_allclose(np.exp(found["prediction"]), np.exp(alone["prediction"])[:, order], atol=1e-6)


@pytest.mark.parametrize("variant", FIXED)
def test_a_model_with_parameters_for_each_class_refuses_another_number(variant):
    model, task = case(variant).model, case(variant).task
    padded = with_labels(task, lambda y: np.pad(y, [(0, 0), (0, 3)]))
    with pytest.raises(
        InvalidTask, match="the task has 7 classes, but the model has a λ for each of 4; use tasks of 4"
    ):
        model.encode(padded.context)


@for_any_classes
def test_a_class_that_the_context_lacks_changes_nothing(variant):
    """One model serves any number of classes: padding them changes no prediction."""
    padded, alone = case(variant).batch["plain"], case(variant).alone
    probabilities = np.exp(padded["prediction"])[: len(alone["prediction"])]
    np.testing.assert_allclose(probabilities[:, :CLASSES], np.exp(alone["prediction"]), atol=1e-6)
    np.testing.assert_array_equal(probabilities[:, CLASSES:], np.zeros((len(probabilities), EXTRA)))
    np.testing.assert_allclose(padded["loss"], alone["loss"], rtol=1e-5)


@every_classifier
def test_probabilities_sum_to_one_over_the_classes_of_the_context(variant):
    predicted, shown = np.exp(case(variant).alone["prediction"]), np.asarray(case(variant).task.context.y).any(0)
    np.testing.assert_allclose(predicted.sum(-1), 1, rtol=1e-5)
    assert (predicted[:, ~shown] == 0).all() and not shown.all()
