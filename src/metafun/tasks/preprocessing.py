"""From stored features to inputs of length one, and the choice among ways to do it."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PRNGKeyArray

from ..model.similarity import class_means, negative_distances
from .base import TaskDistribution
from .scaling import Rows

# Powers that are compared. One below 1 shortens the long tails of activations.
POWERS = (1.0, 0.75, 0.5)
# Tasks that are classified at once.
TASKS_AT_ONCE = 100
# A candidate replaces the one before it if it is better by this many standard errors.
STANDARD_ERRORS = 2.0


class Preprocessing(eqx.Module):
    """unit(sign(x)·|x|ᵖ − mean): a power, centring, and length one.

    Args:
        power: p.
        mean: subtracted from every row; nothing is if not given.
    """

    power: float = eqx.field(static=True, default=1.0)
    mean: Float[Array | np.ndarray, " dx"] | None = None

    def __call__(self, x: Rows) -> Rows:
        x = raised(x, self.power)
        return unit(x if self.mean is None else x - self.mean)


def raised(x: Rows, power: float) -> Rows:
    """sign(x)·|x|ᵖ."""
    return x if power == 1 else (abs(x) ** power) * ((x > 0) * 2.0 - 1).astype(x.dtype)


def unit(x: Rows) -> Rows:
    """Each row scaled to length one."""
    # The largest entry first: squares of numbers far from 1 would leave the range of float32.
    x = x / abs(x).max(-1, keepdims=True).clip(jnp.finfo(x.dtype).tiny)
    return x / ((x * x).sum(-1, keepdims=True) ** 0.5).clip(1e-12)


def nearest_mean_accuracies(tasks: TaskDistribution, count: int) -> Float[np.ndarray, " count"]:
    """The share of targets that a nearest class mean classifies correctly in each of `count` tasks."""
    return np.asarray(_accuracies(tasks, jax.random.split(jax.random.key(0), count)))


def clearly_best(results: Sequence[Float[np.ndarray, " count"]]) -> int:
    """Which of several results on the same tasks is best; an earlier one unless a later is clearly better."""
    best = 0
    for i, result in enumerate(results):
        gain = result - results[best]
        if gain.mean() > STANDARD_ERRORS * gain.std() / np.sqrt(len(gain)):
            best = i
    return best


@eqx.filter_jit
def _accuracies(tasks: TaskDistribution, keys: Key[Array, " count"]) -> Float[Array, " count"]:
    def accuracy(key: PRNGKeyArray) -> Float[Array, ""]:
        task = tasks.sample(key)
        found = negative_distances(task.target.x, class_means(task.context)).argmax(-1)
        return (found == task.target.y.argmax(-1)).mean()

    return jax.lax.map(accuracy, keys, batch_size=TASKS_AT_ONCE)
