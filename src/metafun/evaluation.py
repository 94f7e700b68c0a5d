"""What a trained model is worth: metrics over fixed, seeded test tasks."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, PRNGKeyArray

from .config import Config
from .devices import AXIS, my_share, spread, task_mesh
from .likelihoods import masked_mean
from .model import MetaFun
from .task import Task
from .tasks import Sinusoid

# Bounds the memory of an evaluation: this many tasks are predicted at a time.
TASKS_AT_A_TIME = 250


def validate(models: MetaFun, config: Config) -> list[float]:
    """Each seed's mean target loss over the validation tasks, drawn as the training tasks are."""
    key = jax.random.fold_in(jax.random.key(config.evaluation.seed), 0)
    metrics = task_metrics(models, config.tasks.build(), key, config.training.validation_tasks)
    return metrics["loss"].mean(1).tolist()


def evaluate(models: MetaFun, config: Config) -> dict[str, Float[np.ndarray, " s"]]:
    """Each seed's mean over the test tasks, `<metric>_<k>shot`."""
    results: dict[str, np.ndarray] = {}
    for shots in config.evaluation.shots:
        tasks = dataclasses.replace(
            config.tasks, context=(shots, shots), targets=config.evaluation.targets, points=None
        )
        key = jax.random.fold_in(jax.random.key(config.evaluation.seed), 1 + shots)
        metrics = task_metrics(models, tasks.build(), key, config.evaluation.tasks)
        del metrics["loss"]  # what training minimises, of no meaning beside other models
        results |= {f"{name}_{shots}shot": np.asarray(values.mean(1)) for name, values in metrics.items()}
    return results


@eqx.filter_jit
def task_metrics(models: MetaFun, tasks: Sinusoid, key: PRNGKeyArray, count: int) -> dict[str, Float[Array, "s count"]]:
    """The metrics of every task for every seed; all seeds meet the same tasks."""
    mesh = task_mesh(count)

    def metrics(key: PRNGKeyArray) -> dict[str, Array]:
        task = tasks.sample(key)
        return eqx.filter_vmap(lambda model: target_metrics(model, task))(models)

    def share(keys: Array) -> dict[str, Array]:
        return jax.lax.map(metrics, my_share(keys, mesh), batch_size=TASKS_AT_A_TIME)

    # Matrix products at full precision: a reported number must not depend on the device's fast mode.
    with jax.default_matmul_precision("highest"):
        by_task = spread(share, mesh, PartitionSpec(AXIS))(jax.random.split(key, count))
    return jax.tree.map(jnp.transpose, by_task)


def target_metrics(model: MetaFun, task: Task) -> dict[str, Array]:
    """Means over the targets of one task: the loss and what the likelihood reports."""
    prediction = model.predict(model.encode(task.context), task.target.x)
    points = {"loss": model.likelihood.loss(prediction, task.target.y)} | model.likelihood.metrics(
        prediction, task.target.y
    )
    return {name: masked_mean(values, task.target.mask) for name, values in points.items()}
