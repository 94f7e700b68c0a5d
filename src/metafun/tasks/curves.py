"""Curves drawn from Gaussian processes (Section 4.1, "Predictive uncertainties")."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.likelihoods import Normal
from ..model.task import Points, Task, join
from .base import Oracle, Tasks
from .gp import KERNELS, GaussianProcess

Range = tuple[float, float]


class Curves(Tasks):
    """Noisy points of functions f ∼ GP(0, k), x uniform in [low, high]ᵈ; each task draws k's hyperparameters.

    There are n context points, n uniform in `context` = (least, most), and m targets, m uniform in `targets` but with
    n + m ≤ `points`.
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
        y = self._process(key_process).sample(key_y, x)
        # The first n points are the context and the next m the target, wherever in the arrays n may fall.
        i = jnp.arange(self.points)
        context, target = Points(x, y, i < n), Points(x, y, (n <= i) & (i < n + m))
        return Task(jax.tree.map(lambda a: a[:most], context), jax.tree.map(lambda a: a[least:], target))

    def oracle(self, key: PRNGKeyArray, task: Task) -> Oracle:
        """The exact posterior of the process that `key` drew."""
        process = self._process(jax.random.split(key, 5)[0])
        joint = process.log_prob(join(task.context, task.target)) - process.log_prob(task.context)
        return Oracle(process.predict(task.context, task.target.x), joint)

    def curve(self, key: PRNGKeyArray, n: int, x: Float[Array, "m dx"]) -> tuple[Task, Normal]:
        """A task to look at: n context points, targets along x, and the exact prediction there."""
        key_process, key_x, key_y = jax.random.split(key, 3)
        process = self._process(key_process)
        given = jax.random.uniform(key_x, (n, self.dx), minval=self.low, maxval=self.high)
        y = process.sample(key_y, jnp.concatenate([given, x]))
        context, target = Points(given, y[:n], jnp.ones(n, bool)), Points(x, y[n:], jnp.ones(len(x), bool))
        return Task(context, target), process.predict(context, x)

    def _process(self, key: PRNGKeyArray) -> GaussianProcess:
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
