"""What a trained model is worth: metrics over fixed, seeded tasks."""

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

from ..config import Config
from ..model.learner import Learner
from ..model.likelihoods import Likelihood, Prediction, calibration_error, coverage, masked_mean
from ..model.task import Points, Task
from ..tasks import Tasks
from .devices import AXIS, gathered, jit, local_keys, replicate, run_on_mesh, task_mesh

# These bound the memory of an evaluation: tasks that are predicted at a time, and numbers that they need for it.
MAX_TASKS_AT_ONCE = 250
MAX_FLOATS = 2**28


class Validation:
    """Each seed's mean error over the validation tasks, the same tasks at every call.

    Compiled in a thread of its own while training is: on a GPU either takes seconds.
    """

    def __init__(self, models: Learner, config: Config):
        """`models` are like those that will come; what their parameters are does not matter."""
        key = jax.random.fold_in(jax.random.key(config.evaluation.seed), 0)
        self._rest = (config.tasks.validation(), key, config.training.validation_tasks, "default")
        # Training may use fewer devices: as many as divide its batch.
        self._place = partial(replicate, mesh=task_mesh(config.training.validation_tasks))
        pool = ThreadPoolExecutor(1)
        self._compiled = pool.submit(lambda: task_metrics.lower(self._place(models), *self._rest).compile())
        pool.shutdown(wait=False)

    def __call__(self, models: Learner) -> tuple[float, ...]:
        wait([self._compiled])
        return tuple(gathered(task_metrics(self._place(models), *self._rest)["error"]).mean(1).tolist())


def evaluate(models: Learner, config: Config) -> dict[str, dict[str, Any]]:
    """A summary of each `<metric>_<kind of test tasks>`."""
    results: dict[str, dict[str, Any]] = {}
    for kind, tasks in config.tasks.test(config.evaluation):
        # The tasks of a kind are the same whichever other kinds are asked for.
        key = jax.random.fold_in(jax.random.key(config.evaluation.seed), zlib.crc32(kind.encode()))
        # Matrix products at full precision: a reported number must not depend on the device's fast mode.
        metrics = gathered(task_metrics(models, tasks, key, config.evaluation.tasks, "highest"))
        del metrics["error"]  # for validation; what it stands for is among the others
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
    """Mean and deviation over the seeds, and the 95 % interval of the mean over the tasks, all seeds together."""
    seeds, tasks = values.mean(1), values.mean(0)
    return {
        "mean": float(values.mean()),
        "std": float(seeds.std(ddof=1)) if len(seeds) > 1 else None,
        "interval": float(1.96 * tasks.std(ddof=1) / np.sqrt(len(tasks))) if len(tasks) > 1 else None,
        "seeds": seeds.tolist(),
    }


@jit
def task_metrics(
    models: Learner, tasks: Tasks, key: PRNGKeyArray, count: int, precision: str
) -> dict[str, Float[Array, "s count ..."]]:
    """The metrics of every task for every seed; all seeds meet the same tasks."""
    mesh = task_mesh(count)

    def share(models: Learner, tasks: Tasks, keys: Array) -> dict[str, Array]:
        def metrics(key: PRNGKeyArray) -> dict[str, Array]:
            task = tasks.sample(key)
            found = eqx.filter_vmap(lambda model: target_metrics(model, task))(models)
            if (oracle := tasks.oracle(key, task)) is not None:
                best = judge(models.likelihood, oracle.prediction, task.target)
                best |= joint_metric(oracle.joint_log_prob, task.target)
                seeds = len(found["error"])
                found |= {f"oracle_{name}": jnp.broadcast_to(a, (seeds, *a.shape)) for name, a in best.items()}
            return found

        return jax.lax.map(metrics, local_keys(keys, mesh), batch_size=tasks_at_once(models, tasks))

    with jax.default_matmul_precision(precision):
        by_task = run_on_mesh(share, mesh, PartitionSpec(AXIS))(models, tasks, jax.random.split(key, count))
    return jax.tree.map(lambda values: jnp.moveaxis(values, 1, 0), by_task)


def tasks_at_once(models: Learner, tasks: Tasks) -> int:
    """How many tasks fit."""
    task = eqx.filter_eval_shape(tasks.sample, jax.random.key(0))
    each = models.peak_floats_per_task(task)
    return max(1, min(MAX_TASKS_AT_ONCE, MAX_FLOATS // max(each, 1)))


def target_metrics(model: Learner, task: Task) -> dict[str, Array]:
    """What validation compares, and what is reported, of one task."""
    prediction = model.predict(model.encode(task.context), task.target.x)
    error = masked_mean(model.likelihood.error(prediction, task.target.y), task.target.mask)
    found = {"error": error} | judge(model.likelihood, prediction, task.target)
    if (joint := model.joint_log_prob(task)) is not None:
        found |= joint_metric(joint, task.target)
    return found


def joint_metric(log_prob: Float[Array, ""], target: Points) -> dict[str, Array]:
    """The log-likelihood of a task's targets together, for each of them."""
    return {"joint_log_likelihood": log_prob / jnp.maximum(target.mask.sum(), 1)}


def judge(likelihood: Likelihood, prediction: Prediction, target: Points) -> dict[str, Array]:
    """Means of the metrics over the targets of one task."""
    points = likelihood.metrics(prediction, target.y)
    return {name: masked_mean(values, target.mask) for name, values in points.items()}
