"""From stored features to inputs of length one, and the choice among ways to do it."""

from collections.abc import Sequence
from typing import NamedTuple, Self

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
# Temperatures that are compared. Where all answers are right, less would fit ever better.
TEMPERATURES = np.geomspace(10**-1.5, 1, 31)


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


class NearestMeans(NamedTuple):
    """What a nearest class mean says of targets.

    Args:
        distances: minus half the squared distance of each target from each class mean.
        labels: one-hot.
    """

    distances: Float[np.ndarray, "count m k"]
    labels: Float[np.ndarray, "count m k"]

    @classmethod
    def of(cls, tasks: TaskDistribution, key: PRNGKeyArray, count: int) -> Self:
        """The nearest class means of random tasks.

        Args:
            tasks: the distribution of tasks.
            key: seeds the tasks.
            count: number of tasks.
        """
        return cls(*map(np.asarray, _nearest_means(tasks, jax.random.split(key, count))))

    @property
    def accuracies(self) -> Float[np.ndarray, " count"]:
        """The share of the targets of each task that are classified correctly."""
        return (self.distances.argmax(-1) == self.labels.argmax(-1)).mean(-1)

    def log_likelihoods(self, temperature: float) -> Float[np.ndarray, " count"]:
        """The mean log-likelihood of each task's targets if logits are distances/temperature."""
        logits = self.distances / temperature
        logits = logits - logits.max(-1, keepdims=True)
        return ((logits - np.log(np.exp(logits).sum(-1, keepdims=True))) * self.labels).sum(-1).mean(-1)


def best_temperature(found: Sequence[NearestMeans]) -> float:
    """Which of `TEMPERATURES` gives the highest likelihood, in the mean over several distributions of tasks."""
    means = [sum(each.log_likelihoods(t).mean() for each in found) for t in TEMPERATURES]
    return float(TEMPERATURES[np.argmax(means)])


def clearly_best(results: Sequence[Float[np.ndarray, " count"]]) -> int:
    """Which of several results on the same tasks is best; an earlier one unless a later is clearly better."""
    best = 0
    for i, result in enumerate(results):
        gain = result - results[best]
        if gain.mean() > STANDARD_ERRORS * gain.std() / np.sqrt(len(gain)):
            best = i
    return best


@eqx.filter_jit
def _nearest_means(tasks: TaskDistribution, keys: Key[Array, " count"]) -> tuple[Array, Array]:
    def nearest(key: PRNGKeyArray) -> tuple[Array, Array]:
        task = tasks.sample(key)
        return negative_distances(task.target.x, class_means(task.context)) / 2, task.target.y

    return jax.lax.map(nearest, keys, batch_size=TASKS_AT_ONCE)
