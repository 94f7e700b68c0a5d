"""A linear map of features."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .base import Embedding


class LinearMap(Embedding):
    """e(x) = z + (z₁…ₛ)W with z = xD: W is trained and 0 at the start, D is fixed.

    Args:
        size: dim(x).
        leading: s, the number of leading directions that W combines; if not given, D = 1 and W combines all of x.
    """

    weights: Float[Array, "s s"]
    directions: Float[Array, "dx dx"] | None = None

    def __init__(self, size: int, leading: int | None = None):
        learned = size if leading is None else min(leading, size)
        self.weights = jnp.zeros((learned, learned))
        self.directions = None if leading is None else jnp.eye(size)

    @property
    def size(self) -> int:
        return self.weights.shape[-1] if self.directions is None else self.directions.shape[-1]

    def along(self, directions: Float[Array | np.ndarray, "dx dx"]) -> Self:
        if self.directions is None:
            return self
        return eqx.tree_at(lambda each: each.directions, self, jnp.asarray(directions, self.directions.dtype))

    def __call__(self, x: Float[Array, "m dx"], summary: Any) -> Float[Array, "m dx"]:
        if self.directions is None:
            return x + x @ self.weights
        z = x @ jax.lax.stop_gradient(self.directions)
        learned = z[:, : len(self.weights)] @ self.weights
        return z + jnp.pad(learned, ((0, 0), (0, self.size - len(self.weights))))
