"""Pooling at inputs that are known in advance, when outputs at them become known one after the other."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .blocks import weights_fit
from .pooling import Pooling


class KnownWeights(Pooling):
    """k(x, xᵢ) between fixed inputs: a(x) is computed once, and so are the weights of a kernel.

    Where a weight depends on all keys, as in a softmax, the weights are computed from a(x) at every call.

    Args:
        pooling: k.
        queries: a(x) at the inputs that are queried.
        kernel: k(x, xᵢ) between the queries and all inputs; None if `pooling` is not a kernel, or they are too many.
    """

    pooling: Pooling
    queries: Float[Array, "m da"]
    kernel: Float[Array, "*h m n"] | None

    @classmethod
    def between(cls, pooling: Pooling, x: Float[Array, "n dx"], mask: Bool[Array, " n"]) -> "KnownWeights":
        """The weights between all inputs.

        Args:
            pooling: k.
            x: all inputs.
            mask: False where a row is padding.
        """
        a = pooling.embed(x)
        is_known = pooling.is_kernel and weights_fit(len(a), len(a))
        return cls(pooling, a, pooling.weights(a, a, mask) if is_known else None)

    def at(self, rows: Int[Array, " b"]) -> "KnownWeights":
        """The same with only these rows as queries."""
        kernel = None if self.kernel is None else self.kernel[..., rows, :]
        return KnownWeights(self.pooling, self.queries[rows], kernel)

    def embed(self, x: Float[Array, "m dx"]) -> Float[Array, "m da"]:
        return self.queries

    def weights(
        self, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]
    ) -> Float[Array, "*h m n"]:
        return self.pooling.weights(q, k, mask) if self.kernel is None else jnp.where(mask, self.kernel, 0)
