"""Curves drawn from Gaussian processes (Section 4.1, "Predictive uncertainties")."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InvalidConfig
from ..model.likelihoods import Normal
from ..model.task import Points, Task, join
from ..values import NonNegative, PointCount, PointCountOrZero, Positive, Real, Width
from .base import Oracle, TaskDistribution, TaskSource, check_ranges
from .gp import KERNELS, GaussianProcess

Range = tuple[float, float]


class Curves(TaskDistribution):
    """Noisy points of functions f ∼ GP(0, k), x uniform in [low, high]ᵈ; each task draws k's hyperparameters.

    Args:
        kernel: name of the kernel k.
        lengthscale, scale, period: (least, most) of its hyperparameters, uniform.
        noise: (least, most) standard deviation of the noise, uniform.
        dx: number of inputs d.
        low, high: range of each input.
        context: (least, most) context points n, uniform.
        targets: (least, most) targets m, uniform but with n + m ≤ `points`.
        points: maximum number of points.
    """

    kernel: Literal["rbf", "matern52", "periodic"] = eqx.field(static=True)
    lengthscale: Range = eqx.field(static=True)
    scale: Range = eqx.field(static=True)
    period: Range = eqx.field(static=True)
    noise: Range = eqx.field(static=True)
    dx: int = eqx.field(static=True)
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)
    context: tuple[int, int] = eqx.field(static=True)
    targets: tuple[int, int] = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray) -> Task:
        key_process, key_n, key_m, key_x, key_y = jax.random.split(key, 5)
        (least, most), (fewest, largest) = self.context, self.targets
        n = jax.random.randint(key_n, (), least, most + 1)
        m = jax.random.randint(key_m, (), fewest, jnp.minimum(largest, self.points - n) + 1)
        x = jax.random.uniform(key_x, (self.points, self.dx), minval=self.low, maxval=self.high)
        y = self.process(key_process).sample(key_y, x)
        # The first n points are the context and the next m the target.
        i = jnp.arange(self.points)
        context, target = Points(x, y, i < n), Points(x, y, (n <= i) & (i < n + m))
        return Task(jax.tree.map(lambda a: a[:most], context), jax.tree.map(lambda a: a[least:], target))

    def oracle(self, key: PRNGKeyArray, task: Task) -> Oracle:
        """The exact posterior of the process drawn with `key`."""
        process = self.process(jax.random.split(key, 5)[0])
        joint = process.log_prob(join(task.context, task.target)) - process.log_prob(task.context)
        return Oracle(process.predict(task.context, task.target.x), joint)

    @eqx.filter_jit
    def curve(self, key: PRNGKeyArray, n: int, x: Float[Array, "m dx"]) -> tuple[Task, Normal]:
        """A task for a figure: n context points, targets at x, and the exact prediction at x."""
        key_process, key_x, key_y = jax.random.split(key, 3)
        process = self.process(key_process)
        given = jax.random.uniform(key_x, (n, self.dx), minval=self.low, maxval=self.high)
        y = process.sample(key_y, jnp.concatenate([given, x]))
        context, target = Points(given, y[:n], jnp.ones(n, bool)), Points(x, y[n:], jnp.ones(len(x), bool))
        return Task(context, target), process.predict(context, x)

    def process(self, key: PRNGKeyArray) -> GaussianProcess:
        """The process of one task, with random hyperparameters."""
        keys = jax.random.split(key, 3)
        ranges = {"lengthscale": self.lengthscale, "scale": self.scale}
        if self.kernel == "periodic":
            ranges["period"] = self.period
        drawn = {
            name: jax.random.uniform(k, minval=low, maxval=high)
            for k, (name, (low, high)) in zip(keys, ranges.items(), strict=False)
        }
        least, most = self.noise
        noise = jax.random.uniform(jax.random.fold_in(key, 0), minval=least, maxval=most)
        return GaussianProcess(KERNELS[self.kernel](**drawn), noise)


@dataclass(frozen=True)
class CurveTasks(TaskSource):
    """Noisy curves drawn from a Gaussian process whose hyperparameters are drawn anew for every task.

    Args:
        kernel: covariance of the process.
        lengthscale: range of the length scale ℓ.
        scale: range of the standard deviation s of the process.
        period: range of the period, for the periodic kernel.
        noise: standard deviation of the noise.
        most_noise: if given, the noise is uniform between `noise` and this.
        dimensions: number of inputs.
        inputs: range of each input.
        context: minimum and maximum number of context points n.
        targets: minimum and maximum number of targets m, with n + m ≤ `points`.
        points: maximum number of points.
    """

    kind: Literal["curves"] = "curves"
    kernel: Literal["rbf", "matern52", "periodic"] = "rbf"
    lengthscale: tuple[Positive, Positive] = (0.6, 0.6)
    scale: tuple[Positive, Positive] = (1.0, 1.0)
    period: tuple[Positive, Positive] = (1.0, 1.0)
    noise: NonNegative = 0.1
    most_noise: NonNegative | None = None
    dimensions: Width = 1
    inputs: tuple[Real, Real] = (-2.0, 2.0)
    context: tuple[PointCountOrZero, PointCountOrZero] = (1, 20)
    targets: tuple[PointCount, PointCount] = (20, 20)
    points: PointCount = 40

    problem = "regression"
    test_settings = ("kernel", "lengthscale", "scale", "period", "noise", "most_noise", "dimensions", "inputs")
    anyshot_settings = ("context", "targets", "points")

    @property
    def sizes(self) -> tuple[int, int]:
        return self.dimensions, 1

    @property
    def trained_on(self) -> str:
        return f"new curves, {self.kernel} kernel"

    @property
    def input_bounds(self) -> tuple[float, float]:
        return self.inputs

    @property
    def output_bounds(self) -> tuple[float, float]:
        """Four standard deviations of the process with the largest scale."""
        return -4 * self.scale[1], 4 * self.scale[1]

    @property
    def most_context(self) -> int:
        return self.context[1]

    def check(self, validates: bool) -> None:
        check_ranges(self, "lengthscale", "scale", "period", "inputs", "context", "targets")
        if self.most_noise is not None and self.most_noise < self.noise:
            raise InvalidConfig(f"tasks.most_noise = {self.most_noise} is less than tasks.noise = {self.noise}.")
        if self.points < self.context[1] + self.targets[0]:
            raise InvalidConfig(
                f"tasks.points = {self.points} leaves fewer than {self.targets[0]} targets beside "
                f"{self.context[1]} context points."
            )

    def training(self) -> Curves:
        return self._curves(self.context, self.targets, self.points)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, TaskDistribution]]:
        m = targets or 50

        def curves(context: tuple[int, int] | None) -> Curves:
            return self.training() if context is None else self._curves(context, (m, m), context[1] + m)

        return self._by_context_size(shots, ways, curves)

    def _curves(self, context: tuple[int, int], targets: tuple[int, int], points: int) -> Curves:
        return Curves(
            kernel=self.kernel,
            lengthscale=self.lengthscale,
            scale=self.scale,
            period=self.period,
            noise=(self.noise, self.noise if self.most_noise is None else self.most_noise),
            dx=self.dimensions,
            low=self.inputs[0],
            high=self.inputs[1],
            context=context,
            targets=targets,
            points=points,
        )
