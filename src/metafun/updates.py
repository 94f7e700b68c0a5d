"""The local update uᵢ = u(xᵢ, yᵢ, r(xᵢ)): what each context point asks of the representation."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .nn import MLP
from .task import Points

ContextLoss = Callable[[Float[Array, "n dr"]], Float[Array, ""]]


class Update(eqx.Module):
    """u, shared by all context points. The representation moves against it: r ← r − α·pool(u)."""

    @abstractmethod
    def __call__(self, context: Points, r: Float[Array, "n dr"], loss: ContextLoss) -> Float[Array, "n dr"]:
        """`r` holds r(xᵢ); `loss` is the mean context loss as a function of it."""


class MLPUpdate(Update):
    """uᵢ = MLP([xᵢ, yᵢ, r(xᵢ)])."""

    mlp: MLP

    def __call__(self, context: Points, r: Float[Array, "n dr"], loss: ContextLoss) -> Float[Array, "n dr"]:
        return self.mlp(jnp.concatenate([context.x, context.y, r], axis=-1))


class GradientUpdate(Update):
    """uᵢ = λ ⊙ ∂L/∂r(xᵢ), L the mean context loss through the decoder, λ trainable."""

    scale: Float[Array, " dr"]

    def __init__(self, size: int):
        self.scale = jnp.ones(size)

    def __call__(self, context: Points, r: Float[Array, "n dr"], loss: ContextLoss) -> Float[Array, "n dr"]:
        return self.scale * jax.grad(loss)(r)
