"""The local update uᵢ = u(xᵢ, yᵢ, r(xᵢ)): what each context point asks of the representation."""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .nn import MLP
from .task import Points

ContextLoss = Callable[[Float[Array, "n *k dr"]], Float[Array, ""]]


class Update(eqx.Module):
    """u, shared by all context points. The representation moves against it: r ← r − α·pool(u)."""

    @abstractmethod
    def __call__(self, context: Points, r: Float[Array, "n *k dr"], loss: ContextLoss) -> Float[Array, "n *k dr"]:
        """`r` holds r(xᵢ), a part for each class in classification; `loss` is the mean context loss in terms of it."""


class MLPUpdate(Update):
    """uᵢ = MLP([xᵢ, yᵢ, r(xᵢ)])."""

    mlp: MLP

    def __call__(self, context: Points, r: Float[Array, "n dr"], loss: ContextLoss) -> Float[Array, "n dr"]:
        return self.mlp(jnp.concatenate([context.x, context.y, r], axis=-1))


class ClasswiseUpdate(Update):
    """uᵢᵏ = yᵢᵏ u₊(m(rᵏ), m̄) + (1 − yᵢᵏ) u₋(m(rᵏ), m̄): the label chooses the network (Equation 10).

    m̄ is the mean of m(rᵏ(xᵢ)) over the classes of the task, where the paper has the sum: so a model trained
    with few classes meets the same range of numbers in a task with many. If u₊ `sees_inputs`, it is given xᵢ too, and
    r can hold what the class looks like, as the prototypes of Snell et al. do.
    """

    m: MLP
    positive: MLP
    negative: MLP
    sees_inputs: bool = eqx.field(static=True, default=False)

    def __call__(self, context: Points, r: Float[Array, "n k dr"], loss: ContextLoss) -> Float[Array, "n k dr"]:
        m, classes = self.m(r), context.classes[:, None]
        mean = jnp.where(classes, m, 0).sum(1, keepdims=True) / jnp.maximum(classes.sum(), 1)
        pair = jnp.concatenate([m, jnp.broadcast_to(mean, m.shape)], axis=-1)
        y = context.y[..., None]
        # u₊ is asked for one class of each point only: its own.
        own = (y * pair).sum(1)
        if self.sees_inputs:
            own = jnp.concatenate([own, context.x], axis=-1)
        return y * self.positive(own)[:, None] + (1 - y) * self.negative(pair)


class GradientUpdate(Update):
    """uᵢ = λ ⊙ ∂L/∂r(xᵢ), L the mean context loss through the decoder, λ trainable and shared by all classes."""

    scale: Float[Array, " dr"]

    def __init__(self, size: int):
        self.scale = jnp.ones(size)

    def __call__(self, context: Points, r: Float[Array, "n *k dr"], loss: ContextLoss) -> Float[Array, "n *k dr"]:
        return self.scale * jax.grad(loss)(r)
