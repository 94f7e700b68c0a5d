"""Penalties on a model's weights, added to the training loss."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .nn import MLP, Hyperparameter
from .pooling import Attention


class Regulariser(eqx.Module):
    """A penalty of `weight` times `measure` of the model."""

    weight: Hyperparameter

    def __call__(self, model: Any) -> Float[Array, ""]:
        return self.weight * self.measure(model)

    @abstractmethod
    def measure(self, model: Any) -> Float[Array, ""]: ...


class L2(Regulariser):
    """Σ w²/2 over all weight matrices except those of an attention's a, as in the authors' program."""

    def measure(self, model: Any) -> Float[Array, ""]:
        parts = jax.tree.leaves(model, is_leaf=lambda part: isinstance(part, (MLP, Attention)))
        matrices = [w for part in parts if isinstance(part, MLP) for w in part.weights]
        return sum((jnp.square(w).sum() / 2 for w in matrices), jnp.zeros(()))


class Orthogonality(Regulariser):
    """The mean of (C − I)², C the cosines between the rows of the last matrix that decodes rᵏ into weights."""

    def measure(self, model: Any) -> Float[Array, ""]:
        w = model.decode.linear.weights[0]
        rows = w / jnp.linalg.norm(w, axis=1, keepdims=True)
        return jnp.square(rows @ rows.T - jnp.eye(len(w))).mean()


def regularisers(l2: float, orthogonality: float) -> tuple[Regulariser, ...]:
    """The penalties whose weight is not 0.

    Args:
        l2: weight of `L2`.
        orthogonality: weight of `Orthogonality`.
    """
    weights = ((L2, l2), (Orthogonality, orthogonality))
    return tuple(penalty(weight) for penalty, weight in weights if weight)
