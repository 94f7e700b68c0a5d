"""The similarity of an input to the labelled points: what a classifier knows before any learned update."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .task import Points


def class_means(context: Points) -> Float[Array, "k dx"]:
    """The mean input of each class; 0 for a class that does not occur."""
    labels = jnp.where(context.mask[:, None], context.y, 0)
    return labels.T @ context.x / jnp.maximum(labels.sum(0), 1)[:, None]


def cosines(x: Float[Array, "m d"], y: Float[Array, "n d"]) -> Float[Array, "m n"]:
    """cos(x, y) = x·y/(‖x‖‖y‖)."""
    return _unit(x) @ _unit(y).T


def negative_distances(x: Float[Array, "m d"], y: Float[Array, "n d"]) -> Float[Array, "m n"]:
    """−‖x − y‖²."""
    return 2 * x @ y.T - jnp.square(x).sum(-1)[:, None] - jnp.square(y).sum(-1)


class ClassMeanSimilarity(eqx.Module):
    """logitₖ = −‖z − z̄ᵏ‖²/(2τ) + learnedₖ with z = x/‖x‖ and its class means z̄ᵏ in the context.

    It is the nearest class mean if learnedₖ = 0. The first term is z·z̄ᵏ/τ, one step of functional gradient descent with
    a linear kernel (Section 3), and a bias of each class. With one context point of each class, it is cos(x, x̄ᵏ)/τ up
    to a constant. With more, z̄ᵏ is shorter the more its class scatters, and the distance takes that into account.

    Args:
        log_temperature: log τ, trainable.
    """

    log_temperature: Float[Array, ""]

    def summary(self, context: Points) -> Float[Array, "k dx"]:
        """What predictions need of the context: z̄ᵏ."""
        return class_means(dataclasses.replace(context, x=_unit(context.x)))

    def __call__(
        self, learned: Float[Array, "m k"], means: Float[Array, "k dx"], x: Float[Array, "m dx"]
    ) -> Float[Array, "m k"]:
        """The logits.

        Args:
            learned: logits of the decoder.
            means: z̄ᵏ.
            x: inputs.
        """
        return negative_distances(_unit(x), means) * jnp.exp(-self.log_temperature) / 2 + learned


def _unit(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).sum(-1, keepdims=True), 1e-12))
