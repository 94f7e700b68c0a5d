"""Sinusoids of random amplitude and phase (Section 4.1, after Finn et al. 2017)."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from ..task import Points, Task


class Sinusoid(eqx.Module):
    """y = A sin(x − b), A ∼ U(0.1, 5), b ∼ U(0, π), x ∼ U(−5, 5), without noise.

    Each task has n context points, n uniform in `context` = (least, most), and `targets` targets, fewer
    where n and they together would exceed `points`.
    """

    context: tuple[int, int] = eqx.field(static=True)
    targets: int = eqx.field(static=True)
    points: int = eqx.field(static=True)

    dx = dy = 1
    low, high = -5.0, 5.0

    def sample(self, key: PRNGKeyArray) -> Task:
        key_a, key_b, key_n, key_x = jax.random.split(key, 4)
        amplitude = jax.random.uniform(key_a, minval=0.1, maxval=5.0)
        phase = jax.random.uniform(key_b, maxval=math.pi)
        least, most = self.context
        n = jax.random.randint(key_n, (), least, most + 1)
        x = jax.random.uniform(key_x, (most + self.targets, 1), minval=self.low, maxval=self.high)

        def points(x: Float[Array, "n 1"], size: Array) -> Points:
            return Points(x, amplitude * jnp.sin(x - phase), jnp.arange(len(x)) < size)

        return Task(points(x[:most], n), points(x[most:], jnp.minimum(self.targets, self.points - n)))
