"""Functional pooling, Δr(·) = Σᵢ k(·, xᵢ) uᵢ: local updates become a function (Definition 2.1)."""

import math
from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .nn import MLP


class Pooling(eqx.Module):
    """The similarity k(x, xᵢ), in two steps: keys are embedded once when encoding, queries when predicting."""

    # Whether k(x, xᵢ) depends on x and xᵢ alone, not on the other keys.
    is_kernel: ClassVar[bool] = False

    @abstractmethod
    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n da"]:
        """a(x): queries and keys share it."""

    @abstractmethod
    def weights(
        self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]
    ) -> Float[Array, "*h m n"]:
        """k(x, xᵢ), for each head if there are several.

        Args:
            q: embedded queries a(x).
            k: embedded keys a(xᵢ).
            mask: False for padded keys; their weight is 0.
        """

    def logits(
        self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]
    ) -> Float[Array, "*h m n"] | None:
        """log k(x, xᵢ) up to a term of x alone, −∞ for padded keys, where that is all that the weights depend on.

        Weights that are a softmax of logits can be computed from a few keys at a time, and so can those of a kernel,
        which needs no logits. Unless overridden, None: other weights are computed from all keys at once.
        """
        return None


def pool(weights: Float[Array, "*h m n"], u: Float[Array, "n *k dr"]) -> Float[Array, "m *k dr"]:
    """Σᵢ k(x, xᵢ) uᵢ; with several heads, each one pools its slice of u.

    Args:
        weights: k(x, xᵢ).
        u: local updates, in classification one for each of the k classes.
    """
    if weights.ndim == 2:
        return jnp.tensordot(weights, u, 1)
    heads, m, _ = weights.shape
    slices = u.reshape(*u.shape[:-1], heads, u.shape[-1] // heads)
    return jnp.einsum("hmn,n...hd->m...hd", weights, slices).reshape(m, *u.shape[1:])


class Mean(Pooling):
    """k = 1/n: all context points weigh the same at every x. With one update, conditional neural processes."""

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n dx"]:
        return x

    def weights(self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]) -> Float[Array, "m n"]:
        return jnp.broadcast_to(mask / jnp.maximum(mask.sum(), 1), (q.shape[0], k.shape[0]))

    def logits(self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]) -> Float[Array, "m n"]:
        return jnp.broadcast_to(jnp.where(mask, jnp.zeros((), q.dtype), -jnp.inf), (q.shape[0], k.shape[0]))


class Attention(Pooling):
    """DFP: k = softmaxᵢ(a(x)·a(xᵢ)/√d), d the length of a head's slice of a(x).

    Args:
        a: transformation of inputs.
        heads: number of slices that a(x) and r are divided into.
    """

    a: MLP
    heads: int = eqx.field(static=True, default=1)

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n da"]:
        return self.a(x)

    def weights(
        self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]
    ) -> Float[Array, "*h m n"]:
        logits = self.logits(q, k, mask)
        # An empty context has no largest logit and no sum to divide by: its weights are all 0.
        top = jnp.max(logits, axis=-1, keepdims=True, initial=jnp.finfo(logits.dtype).min)
        exp = jnp.exp(logits - jax.lax.stop_gradient(top))
        return exp / jnp.maximum(exp.sum(-1, keepdims=True), jnp.finfo(logits.dtype).tiny)

    def logits(
        self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]
    ) -> Float[Array, "*h m n"]:
        q, k = split_heads(q, self.heads), split_heads(k, self.heads)
        return jnp.where(mask, q @ jnp.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1]), -jnp.inf)


class SquaredExponential(Pooling):
    """k = σ² exp(−‖x−x'‖²/2ℓ²), on the inputs themselves.

    Args:
        scale: initial σ.
        lengthscale: initial ℓ.
    """

    is_kernel: ClassVar[bool] = True
    log_scale: Float[Array, "*h"]
    log_lengthscale: Float[Array, "*h"]

    def __init__(self, scale: float, lengthscale: float):
        self.log_scale = jnp.log(scale)
        self.log_lengthscale = jnp.log(lengthscale)

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n dx"]:
        return x

    def weights(self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]) -> Float[Array, "m n"]:
        # Distances come from inner products. Without centring and full precision, large inputs would cancel to
        # rounding error.
        centre = jax.lax.stop_gradient(jnp.where(mask, k.T, 0).sum(-1) / jnp.maximum(mask.sum(), 1))
        q, k = q - centre, k - centre
        products = jnp.matmul(q, k.T, precision=jax.lax.Precision.HIGHEST)
        distances = jnp.square(q).sum(-1)[:, None] + jnp.square(k).sum(-1) - 2 * products
        scaled = jnp.maximum(distances, 0) * jnp.exp(-2 * self.log_lengthscale)
        return jnp.where(mask, jnp.exp(2 * self.log_scale - scaled / 2), 0)


class DeepKernel(Pooling):
    """KFP: k = σ² exp(−‖a(x)−a(x')‖²/2ℓ²).

    Args:
        a: transformation of inputs.
        kernel: the kernel on a(x); each head gets a copy with its own σ and ℓ.
        heads: number of slices that a(x) and r are divided into.
    """

    is_kernel: ClassVar[bool] = True
    a: MLP
    kernel: SquaredExponential
    heads: int = eqx.field(static=True, default=1)

    def __init__(self, a: MLP, kernel: SquaredExponential, heads: int = 1):
        self.a, self.heads = a, heads
        self.kernel = kernel if heads == 1 else jax.tree.map(lambda p: jnp.full(heads, p), kernel)

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n da"]:
        return self.a(x)

    def weights(
        self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]
    ) -> Float[Array, "*h m n"]:
        if self.heads == 1:
            return self.kernel.weights(q, k, mask)
        q, k = split_heads(q, self.heads), split_heads(k, self.heads)
        return jax.vmap(lambda kernel, q, k: kernel.weights(q, k, mask))(self.kernel, q, k)


def split_heads(a: Float[Array, "n da"], heads: int) -> Float[Array, "*h n d"]:
    """Each head's slice of a(x), along a leading axis; with a single head, a(x) itself."""
    return a if heads == 1 else jnp.moveaxis(a.reshape(a.shape[0], heads, a.shape[1] // heads), 1, 0)
