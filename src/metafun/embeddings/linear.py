"""A linear map of features."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from .base import Embedding


class LinearMap(Embedding):
    """e(x) = x + xW with W = 0 at the start.

    Args:
        size: dim(x).
    """

    weights: Float[Array, "dx dx"]

    def __init__(self, size: int):
        self.weights = jnp.zeros((size, size))

    @property
    def size(self) -> int:
        return self.weights.shape[-1]

    def __call__(self, x: Float[Array, "m dx"], summary: Any) -> Float[Array, "m dx"]:
        return x + x @ self.weights
