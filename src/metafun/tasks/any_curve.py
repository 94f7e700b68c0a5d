"""Any short series or curve y(t), in any units: a prior for training, and the scaling of a user's series."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..model.population import FARTHEST
from ..model.task import Points, Task
from ..values import PointCount
from .base import TaskDistribution, TaskSource, check_ranges
from .prior import series
from .prior.draws import log_uniform, normals
from .scaling import OUTPUT_CLIP, MeanStdScaling, Rows, TaskScaling

# Differences below this share of the largest number are rounding.
ROUNDING = 1e-6


class AnyCurves(TaskDistribution):
    """Noisy points of random functions of time, scaled by their context as `fit` does.

    Args:
        context: (minimum, maximum) of the number of context points; the logarithm of their number is uniform.
        targets: number of targets.
    """

    context: tuple[int, int] = eqx.field(static=True)
    targets: int = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray) -> Task:
        key_n, key_t, key_f, key_noise, key_error, key_skew = jax.random.split(key, 6)
        least, most = self.context
        n = jnp.clip(log_uniform(key_n, least, most + 1).astype(int), least, most)
        t, own = self._times(key_t, n), jnp.arange(most) < n
        (errors,) = normals(key_error, t.shape)
        y = series.draw(key_f, t) + log_uniform(key_noise, 0.003, 1.0) * errors
        # Concentrations and counts are positive, with errors that grow with them.
        y = jnp.where(jax.random.bernoulli(key_skew, 0.1), jnp.exp(y), y)
        time, value = scaled_by(t[:most, None], own), scaled_by(y[:most, None], own, is_output=True)
        # The loss of a few outputs far outside the context's range would be that of all others together.
        x, y = (t[:, None] - time[0]) / time[1], jnp.clip((y[:, None] - value[0]) / value[1], -OUTPUT_CLIP, OUTPUT_CLIP)
        # So far outside it, there is nothing to learn.
        within = abs(x[most:, 0]) < FARTHEST
        return Task(Points(x[:most], y[:most], own), Points(x[most:], y[most:], within))

    def _times(self, key: PRNGKeyArray, n: Int[Array, ""]) -> Float[Array, " points"]:
        """Times of context and targets in [0, 1]: at random, evenly, or denser at one end; some end early."""
        key_kind, key_uniform, key_power, key_end, key_ends = jax.random.split(key, 5)
        most = self.context[1]
        kinds, random = jax.random.uniform(key_kind, (2,)), jax.random.uniform(key_uniform, (most + self.targets,))
        even = (jnp.arange(most) + 0.5 + kinds[1] * (random[:most] - 0.5)) / n
        denser = random[:most] ** log_uniform(key_power, 0.4, 2.5)
        context = jnp.where(kinds[0] < 0.4, random[:most], jnp.where(kinds[0] < 0.8, even, denser))
        ends_early = jax.random.bernoulli(key_ends, 0.3)
        end = jnp.where(ends_early, jax.random.uniform(key_end, minval=0.4, maxval=0.95), 1.0)
        return jnp.concatenate([end * context, random[most:]])


@dataclass(frozen=True)
class AnyCurveTasks(TaskSource):
    """Synthetic series of many kinds, in any units.

    Args:
        context: minimum and maximum number of context points; the logarithm of their number is uniform.
        targets: number of targets.
    """

    kind: Literal["any-curve"] = "any-curve"
    context: tuple[PointCount, PointCount] = (2, 32)
    targets: PointCount = 32

    problem = "regression"
    sizes = (1, 1)
    trained_on = "new series of many kinds"
    anyshot_settings = ("context",)
    least_rows = 2
    # Time grows with the third power of their number.
    most_rows = 1000

    @property
    def most_context(self) -> int:
        return self.context[1]

    @property
    def least_padded_context(self) -> int:
        return 16

    def check(self, validates: bool) -> None:
        check_ranges(self, "context")

    def training(self) -> AnyCurves:
        return AnyCurves(self.context, self.targets)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, TaskDistribution]]:
        m = targets or self.targets
        return self._by_context_size(shots, ways, lambda context: AnyCurves(context or self.context, m))

    @property
    def test_sizes(self) -> Mapping[str, Any]:
        return {"targets": self.targets}

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        """x to [−1, 1] and y to mean 0 and deviation 1 over the context."""
        outputs = np.zeros((len(X), 1)) if Y is None else Y
        middle, reach = scaled_by(np.asarray(X, float), np.ones(len(X), bool))
        mean, deviation = scaled_by(np.asarray(outputs, float), np.ones(len(X), bool), is_output=True)
        return TaskScaling(_scaling(middle, reach), _scaling(mean, deviation))


def scaled_by(
    rows: Float[Rows, "n one"], mask: Bool[Rows, " n"], *, is_output: bool = False
) -> tuple[Float[Rows, " one"], Float[Rows, " one"]]:
    """What is subtracted from a column, and what it is then divided by.

    Args:
        rows: x or y of the context.
        mask: False for padding.
        is_output: mean and standard deviation, as for y; otherwise the middle and half of the range, as for x.
    """
    xp, there = rows.__array_namespace__(), mask[:, None]
    if is_output:
        count = xp.maximum(mask.sum(), 1)
        middle = xp.where(there, rows, 0.0).sum(0) / count
        reach = xp.sqrt(xp.square(xp.where(there, rows - middle, 0.0)).sum(0) / count)
    else:
        low, high = xp.where(there, rows, xp.inf).min(0), xp.where(there, rows, -xp.inf).max(0)
        middle, reach = (low + high) / 2, (high - low) / 2
    size = xp.where(abs(middle) > 0, abs(middle), 1.0)
    return middle, xp.where(reach > ROUNDING * abs(middle), reach, size)


def _scaling(middle: Float[np.ndarray, " one"], reach: Float[np.ndarray, " one"]) -> MeanStdScaling:
    return MeanStdScaling(tuple(middle.tolist()), tuple(reach.tolist()))
