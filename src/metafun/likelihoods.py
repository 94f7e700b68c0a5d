"""Predictive distributions, and the losses ℓ(f(x), y) they are judged by."""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Normal(eqx.Module):
    """P(y|x) = 𝒩(mean, std²), independently for each output."""

    mean: Float[Array, "*m dy"]
    std: Float[Array, "*m dy"]

    def log_prob(self, y: Float[Array, "*m dy"]) -> Float[Array, "*m"]:
        z = (y - self.mean) / self.std
        return -(z**2 / 2 + jnp.log(self.std) + math.log(2 * math.pi) / 2).sum(-1)


class Likelihood(eqx.Module):
    """Turns the decoder's numbers into a Normal, and says what a wrong one costs.

    The numbers are (μ, s), and σ = σ₀ + (1 − σ₀)·softplus(s) with σ₀ = `min_std`.
    """

    min_std: float = eqx.field(static=True)

    def __call__(self, raw: Float[Array, "*m two_dy"]) -> Normal:
        mean, s = jnp.split(raw, 2, axis=-1)
        return Normal(mean, self.min_std + (1 - self.min_std) * jax.nn.softplus(s))

    @abstractmethod
    def loss(self, prediction: Normal, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        """ℓ(f(xⱼ), yⱼ) for each point."""

    @abstractmethod
    def metrics(self, prediction: Normal, y: Float[Array, "m dy"]) -> dict[str, Float[Array, " m"]]:
        """What an evaluation reports of each point."""


class SquaredError(Likelihood):
    """ℓ = (μ − y)², averaged over the outputs; the std is left untrained."""

    def loss(self, prediction: Normal, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        return jnp.square(prediction.mean - y).mean(-1)

    def metrics(self, prediction: Normal, y: Float[Array, "m dy"]) -> dict[str, Float[Array, " m"]]:
        return {"mse": self.loss(prediction, y)}


class Gaussian(Likelihood):
    """ℓ = −log 𝒩(y; μ, σ²)."""

    def loss(self, prediction: Normal, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        return -prediction.log_prob(y)

    def metrics(self, prediction: Normal, y: Float[Array, "m dy"]) -> dict[str, Float[Array, " m"]]:
        return {"mse": jnp.square(prediction.mean - y).mean(-1), "log_likelihood": prediction.log_prob(y)}


def masked_mean(values: Float[Array, " n"], mask: Bool[Array, " n"]) -> Float[Array, ""]:
    """The mean where the mask holds, 0 where it never does."""
    return jnp.where(mask, values, 0).sum() / jnp.maximum(mask.sum(), 1)
