"""Sinusoids of random amplitude and phase (Section 4.1, after Finn et al. 2017)."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..errors import InvalidConfig
from ..model.task import Points, Task
from ..values import PointCount, PointCountOrZero
from .base import TaskDistribution, TaskSource, check_ranges


class Wave(eqx.Module):
    """y = A sin(x − b)."""

    amplitude: Float[Array, ""]
    phase: Float[Array, ""]

    @classmethod
    def draw(cls, key: PRNGKeyArray) -> "Wave":
        """A ∼ U(0.1, 5), b ∼ U(0, π)."""
        a, b = jax.random.uniform(key, (2,))
        return cls(0.1 + 4.9 * a, math.pi * b)

    def points(self, x: Float[Array, "n 1"], size: int | Int[Array, ""]) -> Points:
        """The wave at x; the first `size` points count, the others are padding."""
        return Points(x, self.amplitude * jnp.sin(x - self.phase), jnp.arange(len(x)) < size)


class Sinusoid(TaskDistribution):
    """Noiseless points of one wave, x ∼ U(−5, 5).

    Args:
        context: (least, most) context points n, uniform.
        targets: number of targets, fewer where n + `targets` exceeds `points`.
        points: maximum number of points.
    """

    context: tuple[int, int] = eqx.field(static=True)
    targets: int = eqx.field(static=True)
    points: int = eqx.field(static=True)

    low, high = -5.0, 5.0

    def sample(self, key: PRNGKeyArray) -> Task:
        key_wave, key_n, key_x = jax.random.split(key, 3)
        least, most = self.context
        n = jax.random.randint(key_n, (), least, most + 1)
        x = jax.random.uniform(key_x, (most + self.targets, 1), minval=self.low, maxval=self.high)
        wave = Wave.draw(key_wave)
        return Task(wave.points(x[:most], n), wave.points(x[most:], jnp.minimum(self.targets, self.points - n)))

    @eqx.filter_jit
    def curve(
        self, key: PRNGKeyArray, n: int, low: float, x: Float[Array, "m 1"], amplitude: float | None = None
    ) -> Task:
        """A task for a figure: n context points, none left of `low`, and the wave at x as target.

        Args:
            key: source of the wave and of the points.
            n: number of context points.
            low: least x of the context.
            x: inputs of the targets.
            amplitude: amplitude of the wave; drawn if not given.
        """
        key_wave, key_x = jax.random.split(key)
        wave = Wave.draw(key_wave)
        if amplitude is not None:
            wave = Wave(jnp.asarray(amplitude), wave.phase)
        return Task(
            wave.points(jax.random.uniform(key_x, (n, 1), minval=low, maxval=self.high), n),
            wave.points(x, len(x)),
        )


@dataclass(frozen=True)
class SinusoidTasks(TaskSource):
    """Sinusoids of random amplitude and phase.

    Args:
        context: minimum and maximum number of context points; their number is uniform.
        targets: number of targets.
        points: maximum number of context and target points together; default: no limit.
    """

    kind: Literal["sinusoid"] = "sinusoid"
    context: tuple[PointCountOrZero, PointCountOrZero] = (1, 10)
    targets: PointCount = 10
    points: PointCount | None = None

    problem = "regression"
    sizes = (1, 1)
    trained_on = "new sinusoids"
    input_bounds = (Sinusoid.low, Sinusoid.high)
    output_bounds = (-5.0, 5.0)

    @property
    def most_context(self) -> int:
        return self.context[1]

    def check(self, validates: bool) -> None:
        check_ranges(self, "context")
        most = self.context[1]
        if self.points is not None and self.points <= most:
            raise InvalidConfig(f"tasks.points = {self.points} leaves no target beside {most} context points.")

    def training(self) -> Sinusoid:
        points = self.points if self.points is not None else self.context[1] + self.targets
        return Sinusoid(self.context, self.targets, points)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, TaskDistribution]]:
        m = targets or 100
        return self._by_context_size(shots or (5, 10), ways, lambda context: Sinusoid(context, m, context[0] + m))
