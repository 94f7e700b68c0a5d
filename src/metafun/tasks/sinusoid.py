"""Sinusoids of random amplitude and phase (Section 4.1, after Finn et al. 2017)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..model.task import Points, Task
from .base import Tasks


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
        return Points(x, self.amplitude * jnp.sin(x - self.phase), jnp.arange(len(x)) < size)


class Sinusoid(Tasks):
    """Tasks of noiseless points on one wave, x ∼ U(−5, 5).

    Each task has n context points, n uniform in `context` = (least, most), and `targets` targets, fewer
    where n and they together would exceed `points`.
    """

    context: tuple[int, int] = eqx.field(static=True)
    targets: int = eqx.field(static=True)
    points: int = eqx.field(static=True)

    dx = dy = 1
    low, high = -5.0, 5.0

    def sample(self, key: PRNGKeyArray) -> Task:
        key_wave, key_n, key_x = jax.random.split(key, 3)
        least, most = self.context
        n = jax.random.randint(key_n, (), least, most + 1)
        x = jax.random.uniform(key_x, (most + self.targets, 1), minval=self.low, maxval=self.high)
        wave = Wave.draw(key_wave)
        return Task(wave.points(x[:most], n), wave.points(x[most:], jnp.minimum(self.targets, self.points - n)))

    def oracle(self, key: PRNGKeyArray, task: Task) -> None:
        return None

    def curve(self, key: PRNGKeyArray, n: int, low: float, x: Float[Array, "m 1"]) -> Task:
        """A task to look at: n context points not left of `low`, and the wave along x."""
        key_wave, key_x = jax.random.split(key)
        wave = Wave.draw(key_wave)
        return Task(
            wave.points(jax.random.uniform(key_x, (n, 1), minval=low, maxval=self.high), n),
            wave.points(x, len(x)),
        )
