"""r⁽⁰⁾: where the functional representation starts."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .nn import MLP, Hyperparameter, dropout


class Initial(eqx.Module):
    """r⁽⁰⁾(·), a function of x before any context is seen."""

    @abstractmethod
    def __call__(self, x: Float[Array, "n dx"], key: PRNGKeyArray | None = None) -> Float[Array, "n dr"]:
        """Dropout needs a key and is off without one."""


class Zero(Initial):
    """r⁽⁰⁾(x) = 0, a vector of length `size` = dim(r)."""

    size: int = eqx.field(static=True)

    def __call__(self, x: Float[Array, "n dx"], key: PRNGKeyArray | None = None) -> Float[Array, "n dr"]:
        return jnp.zeros((x.shape[0], self.size), x.dtype)


class Constant(Initial):
    """r⁽⁰⁾(x) = c, a trainable vector of length `size` = dim(r) that starts at 0."""

    value: Float[Array, " dr"]

    def __init__(self, size: int):
        self.value = jnp.zeros(size)

    def __call__(self, x: Float[Array, "n dx"], key: PRNGKeyArray | None = None) -> Float[Array, "n dr"]:
        return jnp.broadcast_to(self.value, (x.shape[0], *self.value.shape))


class Parametric(Initial):
    """r⁽⁰⁾(x) = MLP(x), with dropout on x in training.

    Args:
        mlp: network from dim(x) to dim(r).
        dropout: rate of the dropout.
    """

    mlp: MLP
    dropout: Hyperparameter

    def __call__(self, x: Float[Array, "n dx"], key: PRNGKeyArray | None = None) -> Float[Array, "n dr"]:
        return self.mlp(dropout(x, self.dropout, key))
