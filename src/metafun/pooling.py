"""Functional pooling, Δr(·) = Σᵢ k(·, xᵢ) uᵢ: local updates become a function (Definition 2.1)."""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .nn import MLP


class Pooling(eqx.Module):
    """The similarity k(x, xᵢ), split where encoding ends: keys are embedded once, queries when they come."""

    @abstractmethod
    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n da"]:
        """a(x): queries and keys share it."""

    @abstractmethod
    def weights(self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]) -> Float[Array, "m n"]:
        """k(x, xᵢ) for embedded queries and keys; 0 for keys that the mask leaves out."""


class Attention(Pooling):
    """DFP: softmaxᵢ(a(x)·a(xᵢ)/√d)."""

    a: MLP

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n da"]:
        return self.a(x)

    def weights(self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]) -> Float[Array, "m n"]:
        logits = jnp.where(mask, q @ k.T / math.sqrt(q.shape[-1]), -jnp.inf)
        # An empty context has no largest logit and nothing to normalise: its weights are all 0.
        top = jnp.max(logits, axis=-1, keepdims=True, initial=jnp.finfo(logits.dtype).min)
        exp = jnp.exp(logits - jax.lax.stop_gradient(top))
        return exp / jnp.maximum(exp.sum(-1, keepdims=True), jnp.finfo(logits.dtype).tiny)


class SquaredExponential(Pooling):
    """k = σ² exp(−‖x−x'‖²/2ℓ²), on the inputs themselves."""

    log_scale: Float[Array, ""]
    log_lengthscale: Float[Array, ""]

    def __init__(self, scale: float, lengthscale: float):
        self.log_scale = jnp.log(scale)
        self.log_lengthscale = jnp.log(lengthscale)

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n dx"]:
        return x

    def weights(self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]) -> Float[Array, "m n"]:
        # Distances come from inner products, a difference of squares: taken from amid the keys, and at full precision,
        # or the rounding of large numbers would be all that is left of it.
        centre = jax.lax.stop_gradient(jnp.where(mask, k.T, 0).sum(-1) / jnp.maximum(mask.sum(), 1))
        q, k = q - centre, k - centre
        products = jnp.matmul(q, k.T, precision=jax.lax.Precision.HIGHEST)
        distances = jnp.square(q).sum(-1)[:, None] + jnp.square(k).sum(-1) - 2 * products
        scaled = jnp.maximum(distances, 0) * jnp.exp(-2 * self.log_lengthscale)
        return jnp.where(mask, jnp.exp(2 * self.log_scale - scaled / 2), 0)


class DeepKernel(Pooling):
    """KFP: k = σ² exp(−‖a(x)−a(x')‖²/2ℓ²)."""

    a: MLP
    kernel: SquaredExponential

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n da"]:
        return self.a(x)

    def weights(self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]) -> Float[Array, "m n"]:
        return self.kernel.weights(q, k, mask)
