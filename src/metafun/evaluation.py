"""What a trained model is worth: metrics over fixed, seeded tasks."""

import zlib
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray

from .config import Config
from .devices import AXIS, my_share, spread, task_mesh
from .likelihoods import Likelihood, Prediction, calibration_error, masked_mean
from .model import MetaFun
from .task import Points, Task
from .tasks import Tasks

# Bounds the memory of an evaluation: this many tasks are predicted at a time.
TASKS_AT_A_TIME = 250


def validate(models: MetaFun, tasks: Tasks, config: Config) -> list[float]:
    """Each seed's mean error over the validation tasks, the same at every call."""
    key = jax.random.fold_in(jax.random.key(config.evaluation.seed), 0)
    metrics = task_metrics(models, tasks, key, config.training.validation_tasks, "default")
    return metrics["error"].mean(1).tolist()


def evaluate(models: MetaFun, config: Config) -> dict[str, dict[str, Any]]:
    """A summary of each `<metric>_<kind of test tasks>`."""
    results: dict[str, dict[str, Any]] = {}
    for kind, tasks in config.tasks.test(config.evaluation):
        # The tasks of a kind are the same whichever other kinds are asked for.
        key = jax.random.fold_in(jax.random.key(config.evaluation.seed), zlib.crc32(kind.encode()))
        # Matrix products at full precision: a reported number must not depend on the device's fast mode.
        metrics = task_metrics(models, tasks, key, config.evaluation.tasks, "highest")
        del metrics["error"]  # for validation; what it stands for is among the others
        for name, values in metrics.items():
            results |= {f"{title}_{kind}": summary for title, summary in _summaries(name, np.asarray(values)).items()}
    return results


def _summaries(name: str, values: Float[np.ndarray, "s count ..."]) -> dict[str, dict[str, Any]]:
    if name != "reliability":
        return {name: summarise(values)}
    reliability = values.mean(1)
    error = summarise(calibration_error(reliability)[:, None])
    return {"ece": error | {"reliability": reliability.mean(0).tolist()}}


def summarise(values: Float[np.ndarray, "s count"]) -> dict[str, Any]:
    """Mean and deviation over the seeds, and the 95 % interval of the mean over the tasks, all seeds together."""
    seeds, tasks = values.mean(1), values.mean(0)
    return {
        "mean": float(values.mean()),
        "std": float(seeds.std(ddof=1)) if len(seeds) > 1 else None,
        "interval": float(1.96 * tasks.std(ddof=1) / np.sqrt(len(tasks))) if len(tasks) > 1 else None,
        "seeds": seeds.tolist(),
    }


@eqx.filter_jit
def task_metrics(
    models: MetaFun, tasks: Tasks, key: PRNGKeyArray, count: int, precision: str
) -> dict[str, Float[Array, "s count ..."]]:
    """The metrics of every task for every seed; all seeds meet the same tasks."""
    mesh = task_mesh(count)

    def share(models: MetaFun, tasks: Tasks, keys: Array) -> dict[str, Array]:
        def metrics(key: PRNGKeyArray) -> dict[str, Array]:
            task = tasks.sample(key)
            found = eqx.filter_vmap(lambda model: target_metrics(model, task))(models)
            if (oracle := tasks.oracle(key, task)) is not None:
                best = judge(models.likelihood, oracle, task.target)
                found |= {f"oracle_{name}": jnp.broadcast_to(best[name], found[name].shape) for name in best}
            return found

        return jax.lax.map(metrics, my_share(keys, mesh), batch_size=TASKS_AT_A_TIME)

    with jax.default_matmul_precision(precision):
        by_task = spread(share, mesh, PartitionSpec(AXIS))(models, tasks, jax.random.split(key, count))
    return jax.tree.map(lambda values: jnp.moveaxis(values, 1, 0), by_task)


def target_metrics(model: MetaFun, task: Task) -> dict[str, Array]:
    """What validation compares, and what is reported, of one task."""
    prediction = model.predict(model.encode(task.context), task.target.x)
    error = masked_mean(model.likelihood.error(prediction, task.target.y), task.target.mask)
    return {"error": error} | judge(model.likelihood, prediction, task.target)


def judge(likelihood: Likelihood, prediction: Prediction, target: Points) -> dict[str, Array]:
    """Means of the metrics over the targets of one task."""
    points = likelihood.metrics(prediction, target.y)
    return {name: masked_mean(values, target.mask) for name, values in points.items()}
