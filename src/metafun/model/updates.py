"""The local update uᵢ = u(xᵢ, yᵢ, r(xᵢ)): the change that each context point asks for."""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..errors import InvalidTask
from .nn import MLP
from .task import Points

ContextLoss = Callable[[Float[Array, "n *k dr"]], Float[Array, ""]]


class Update(eqx.Module):
    """u, shared by all context points. The representation moves against it: r ← r − α·pool(u)."""

    # Whether uᵢ depends on the point i alone, not on which other points there are.
    is_pointwise: ClassVar[bool] = False
    # Whether no parameter belongs to a class.
    is_for_any_classes: ClassVar[bool] = True

    @abstractmethod
    def __call__(self, context: Points, r: Float[Array, "n *k dr"], loss: ContextLoss) -> Float[Array, "n *k dr"]:
        """uᵢ for each context point.

        Args:
            context: the points (xᵢ, yᵢ).
            r: r(xᵢ), in classification a part for each of the k classes.
            loss: the mean context loss as a function of r.
        """


class MLPUpdate(Update):
    """uᵢ = MLP([xᵢ, yᵢ, r(xᵢ)])."""

    is_pointwise: ClassVar[bool] = True
    mlp: MLP

    def __call__(self, context: Points, r: Float[Array, "n dr"], loss: ContextLoss) -> Float[Array, "n dr"]:
        return self.mlp(jnp.concatenate([context.x, context.y, r], axis=-1))


def sum_over_classes(m: Float[Array, "n k dm"], classes: Bool[Array, " k"]) -> Float[Array, "n 1 dm"]:
    """m̄ᵢ = Σₖ m(rᵏ(xᵢ)) over the classes of the task, as Equation 11 prints it."""
    return jnp.where(classes[:, None], m, 0).sum(1, keepdims=True)


def mean_over_classes(m: Float[Array, "n k dm"], classes: Bool[Array, " k"]) -> Float[Array, "n 1 dm"]:
    """m̄ᵢ = 1/K Σₖ m(rᵏ(xᵢ)), as in the authors' program: its range is the same for few classes and for many."""
    return sum_over_classes(m, classes) / jnp.maximum(classes.sum(), 1)


SUMMARIES: dict[str, Callable] = {"mean": mean_over_classes, "sum": sum_over_classes}


class ClasswiseUpdate(Update):
    """uᵢᵏ = yᵢᵏ u₊(m(rᵏ), m̄) + (1 − yᵢᵏ) u₋(m(rᵏ), m̄): the label selects the network (Equation 11).

    Args:
        m: network from dim(r) to dim(m).
        positive: u₊, from 2·dim(m) (plus dim(x) with `sees_inputs`) to dim(r).
        negative: u₋, from 2·dim(m) to dim(r).
        sees_inputs: whether u₊ also sees xᵢ; rᵏ can then hold a prototype of the class, as in Snell et al. (2017).
        summary: m̄ as a function of all m(rᵏ), a value of `SUMMARIES`.
    """

    m: MLP
    positive: MLP
    negative: MLP
    sees_inputs: bool = eqx.field(static=True, default=False)
    summary: Callable = eqx.field(static=True, default=mean_over_classes)

    def __call__(self, context: Points, r: Float[Array, "n k dr"], loss: ContextLoss) -> Float[Array, "n k dr"]:
        m = self.m(r)
        summary = self.summary(m, context.classes)
        pair = jnp.concatenate([m, jnp.broadcast_to(summary, m.shape)], axis=-1)
        y = context.y[..., None]
        # u₊ is needed only for the class that a point is labelled with.
        labelled = (y * pair).sum(1)
        if self.sees_inputs:
            labelled = jnp.concatenate([labelled, context.x], axis=-1)
        return y * self.positive(labelled)[:, None] + (1 - y) * self.negative(pair)


class GradientUpdate(Update):
    """uᵢ = λ ⊙ ∂L/∂r(xᵢ), L the mean context loss through the decoder, λ trainable, of length `size` = dim(r)."""

    scale: Float[Array, " dr"]

    def __init__(self, size: int):
        self.scale = jnp.ones(size)

    def __call__(self, context: Points, r: Float[Array, "n *k dr"], loss: ContextLoss) -> Float[Array, "n *k dr"]:
        return self.scale * jax.grad(loss)(r)


class GradientUpdatePerClass(Update):
    """uᵢᵏ = λᵏ ⊙ ∂L/∂rᵏ(xᵢ), with a trainable λᵏ for each class, as in the authors' program.

    The number of classes is fixed, and their order matters.

    Args:
        classes: number of classes of every task, padding included.
        size: dim(r).
    """

    is_for_any_classes: ClassVar[bool] = False
    scale: Float[Array, "k dr"]

    def __init__(self, classes: int, size: int):
        self.scale = jnp.ones((classes, size))

    def __call__(self, context: Points, r: Float[Array, "n c dr"], loss: ContextLoss) -> Float[Array, "n c dr"]:
        if r.shape[1] != len(self.scale):
            raise InvalidTask(
                f"the task has {r.shape[1]} classes, but the model has a λ for each of {len(self.scale)}; use tasks of "
                f"{len(self.scale)} classes, or train a model without model.update.classes."
            )
        return self.scale * jax.grad(loss)(r)
