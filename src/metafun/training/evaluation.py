"""Evaluation of trained models: metrics over fixed, seeded tasks."""

import zlib
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray

from ..config import Experiment
from ..model.learner import Learner
from ..model.likelihoods import Likelihood, Prediction, calibration_error, coverage, masked_mean
from ..model.task import Points, Task
from ..tasks import TaskDistribution
from ..tasks.preprocessing import NearestMeans
from .devices import AXIS, gathered, jit, local_keys, replicate, run_on_mesh, task_mesh

# Bounds on the memory of an evaluation: tasks predicted at once, and floats that these need.
MAX_TASKS_AT_ONCE = 250
MAX_FLOATS = 2**28
# The metrics that a progress display shows.
SHOWN = ("accuracy", "mse", "log_likelihood")


class Validation:
    """Each model's mean error over the validation tasks, the same tasks at every call.

    It is compiled in a thread, at the same time as training: either takes seconds on a GPU.

    Args:
        models: models of the shapes to come; the values of their parameters do not matter.
        experiment: the validation tasks.

    Attributes:
        metrics: means of the metrics in `SHOWN` over all models and tasks at the latest call, by name.
    """

    def __init__(self, models: Learner, experiment: Experiment):
        self.metrics: dict[str, float] = {}
        count = experiment.training.validation_tasks
        self._rest = (experiment.tasks.validation(), validation_key(experiment), count, "default")
        # Training may use fewer devices, since their number divides the batch.
        self._place = partial(replicate, mesh=task_mesh(count))
        pool = ThreadPoolExecutor(1)
        self._compiled = pool.submit(lambda: task_metrics.lower(self._place(models), *self._rest).compile())
        pool.shutdown(wait=False)

    def __call__(self, models: Learner) -> tuple[float, ...]:
        wait([self._compiled])
        found = gathered(task_metrics(self._place(models), *self._rest))
        self.metrics = {name: float(found[name].mean()) for name in SHOWN if name in found}
        return tuple(found["error"].mean(1).tolist())


def validation_key(experiment: Experiment) -> PRNGKeyArray:
    """Seeds the validation tasks."""
    return jax.random.fold_in(jax.random.key(experiment.evaluation.seed), 0)


def nearest_mean_accuracy(experiment: Experiment) -> float:
    """The accuracy of a nearest class mean of the preprocessed inputs on the validation tasks."""
    count = experiment.training.validation_tasks
    return float(NearestMeans.of(experiment.tasks.validation(), validation_key(experiment), count).accuracies.mean())


def evaluate(models: Learner, experiment: Experiment) -> dict[str, dict[str, Any]]:
    """A summary (see `summarise`) of each `<metric>_<kind of test tasks>`.

    Args:
        models: the models of all seeds as one, with a leading axis in every array.
        experiment: the test tasks.
    """
    results: dict[str, dict[str, Any]] = {}
    evaluation = experiment.evaluation
    for kind, tasks in experiment.test_tasks():
        # The tasks of a kind do not depend on the other kinds.
        key = jax.random.fold_in(jax.random.key(evaluation.seed), zlib.crc32(kind.encode()))
        # Full precision: a reported number must not depend on the device's fast matrix products.
        metrics = gathered(task_metrics(models, tasks, key, evaluation.tasks, "highest"))
        del metrics["error"]  # only validation needs it
        for name, values in metrics.items():
            results |= {f"{title}_{kind}": summary for title, summary in _summaries(name, values).items()}
    return results


def _summaries(name: str, values: Float[np.ndarray, "s count ..."]) -> dict[str, dict[str, Any]]:
    if name == "reliability":
        reliability = values.mean(1)
        error = summarise(calibration_error(reliability)[:, None])
        return {"ece": error | {"reliability": reliability.mean(0).tolist()}}
    if name.endswith("quantiles"):
        found = coverage(values.mean(1))
        error = summarise(abs(found - np.linspace(0, 1, found.shape[1] + 2)[1:-1]).mean(1, keepdims=True))
        return {name.replace("quantiles", "calibration_error"): error | {"coverage": found.mean(0).tolist()}}
    return {name: summarise(values)}


def summarise(values: Float[np.ndarray, "s count"]) -> dict[str, Any]:
    """Mean, standard deviation over the seeds, and the 95 % interval of the mean over the tasks."""
    seeds, tasks = values.mean(1), values.mean(0)
    return {
        "mean": float(values.mean()),
        "std": float(seeds.std(ddof=1)) if len(seeds) > 1 else None,
        "interval": float(1.96 * tasks.std(ddof=1) / np.sqrt(len(tasks))) if len(tasks) > 1 else None,
        "seeds": seeds.tolist(),
    }


@jit
def task_metrics(
    models: Learner, tasks: TaskDistribution, key: PRNGKeyArray, count: int, precision: str
) -> dict[str, Float[Array, "s count ..."]]:
    """The metrics of every task for every model.

    Args:
        models: the models of all seeds as one.
        tasks: the distribution of tasks; all models get the same tasks.
        key: seeds the tasks.
        count: number of tasks.
        precision: of matrix products.
    """
    mesh = task_mesh(count)

    def local_metrics(models: Learner, tasks: TaskDistribution, keys: Array) -> dict[str, Array]:
        def metrics(key: PRNGKeyArray) -> dict[str, Array]:
            task = tasks.sample(key)
            found = eqx.filter_vmap(lambda model: target_metrics(model, task))(models)
            if (oracle := tasks.oracle(key, task)) is not None:
                best = mean_metrics(models.likelihood, oracle.prediction, task.target)
                best |= joint_metric(oracle.joint_log_prob, task.target)
                seeds = len(found["error"])
                found |= {f"oracle_{name}": jnp.broadcast_to(a, (seeds, *a.shape)) for name, a in best.items()}
            return found

        return jax.lax.map(metrics, local_keys(keys, mesh), batch_size=tasks_at_once(models, tasks))

    with jax.default_matmul_precision(precision):
        by_task = run_on_mesh(local_metrics, mesh, PartitionSpec(AXIS))(models, tasks, jax.random.split(key, count))
    return jax.tree.map(lambda values: jnp.moveaxis(values, 1, 0), by_task)


def tasks_at_once(models: Learner, tasks: TaskDistribution) -> int:
    """How many tasks are predicted at once within the bounds on memory."""
    task = eqx.filter_eval_shape(tasks.sample, jax.random.key(0))
    each = models.peak_floats_per_task(task)
    return max(1, min(MAX_TASKS_AT_ONCE, MAX_FLOATS // max(each, 1)))


def target_metrics(model: Learner, task: Task) -> dict[str, Array]:
    """The error that validation compares and the metrics of an evaluation, for one task."""
    model = model.held_out(task)
    prediction = model.predict(model.encode(task.context), task.target.x)
    error = masked_mean(model.likelihood.error(prediction, task.target.y), task.target.mask)
    found = {"error": error} | mean_metrics(model.likelihood, prediction, task.target)
    if (joint := model.joint_log_prob(task)) is not None:
        found |= joint_metric(joint, task.target)
    return found


def joint_metric(log_prob: Float[Array, ""], target: Points) -> dict[str, Array]:
    """The joint log-likelihood of a task's targets, divided by their number."""
    return {"joint_log_likelihood": log_prob / jnp.maximum(target.mask.sum(), 1)}


def mean_metrics(likelihood: Likelihood, prediction: Prediction, target: Points) -> dict[str, Array]:
    """Means of the metrics over the targets of one task."""
    points = likelihood.metrics(prediction, target.y)
    return {name: masked_mean(values, target.mask) for name, values in points.items()}
