"""Pooling with memory linear in the numbers of queries and keys: a large matrix of weights is never whole."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim
from jaxtyping import Array, Bool, Float

from .pooling import Pooling, pool


class Size(NamedTuple):
    """When weights are computed in blocks, and in which.

    Args:
        most: pairs of a query and a key whose weights are computed at once.
        queries: most queries of a block.
        keys: most keys of a block.
    """

    most: int
    queries: int
    keys: int


# Blocks stay in the cache of a processor. A GPU needs many pairs at a time to be busy.
ON_CPU, ON_GPU = Size(2**18, 256, 512), Size(2**24, 4096, 4096)


def size_here() -> Size:
    """The sizes for the device that programs are compiled for."""
    return ON_CPU if jax.default_backend() == "cpu" else ON_GPU


def pooling_at(
    pooling: Pooling, q: Float[Array, "m da"], k: Float[Array, "n da"], mask: Bool[Array, " n"]
) -> Callable[[Float[Array, "n *k dr"]], Float[Array, "m *k dr"]]:
    """Σᵢ k(x, xᵢ) uᵢ as a function of u; the weights are computed here if they fit, and otherwise at every call.

    Args:
        pooling: k.
        q: embedded queries a(x).
        k: embedded keys a(xᵢ).
        mask: False for padded keys.
    """
    if weights_fit(q.shape[0], k.shape[0]):
        return partial(pool, pooling.weights(q, k, mask))
    return partial(pool_in_blocks, pooling, q, k, mask)


def weights_fit(queries: Any, keys: int) -> bool:
    """Whether the weights of all queries and keys are computed at once.

    Args:
        queries: their number, a symbol where a program is exported for any number.
        keys: their number.
    """
    here = size_here()
    return keys * (here.queries if is_symbolic_dim(queries) else queries) <= here.most


def pool_in_blocks(
    pooling: Pooling,
    q: Float[Array, "m da"],
    k: Float[Array, "n da"],
    mask: Bool[Array, " n"],
    u: Float[Array, "n *k dr"],
    size: Size | None = None,
) -> Float[Array, "m *k dr"]:
    """Σᵢ k(x, xᵢ) uᵢ, block by block; its gradient computes the weights of each block again.

    Args:
        pooling: k.
        q: embedded queries a(x).
        k: embedded keys a(xᵢ).
        mask: False for padded keys.
        u: local updates.
        size: of the blocks; None for that of this device.
    """
    size = size or size_here()
    if pooling.is_kernel or jax.eval_shape(pooling.logits, q[:1], k[:1], mask[:1]) is not None:
        keys = jax.tree.map(partial(_split, most=size.keys), (k, mask, u))

        def at(q: Float[Array, "b da"]) -> Float[Array, "b *k dr"]:
            return _running_sum(pooling, q, keys)
    else:  # the weights depend on all keys in a way of their own

        def at(q: Float[Array, "b da"]) -> Float[Array, "b *k dr"]:
            return pool(pooling.weights(q, k, mask), u)

    if is_symbolic_dim(q.shape[0]):
        return at(q)
    return jax.lax.map(jax.checkpoint(at), _split(q, size.queries)).reshape(-1, *u.shape[1:])[: q.shape[0]]


class _Sums(NamedTuple):
    """Sums over the keys so far: of eˡ⁻ᵗ u and of eˡ⁻ᵗ, with l the logits and t the largest; for a kernel of k u."""

    pooled: Float[Array, "h m width"]
    total: Float[Array, "h m one"]
    top: Float[Array, "h m one"]


def _running_sum(
    pooling: Pooling, q: Float[Array, "m da"], keys: tuple[Array, Array, Array]
) -> Float[Array, "m *k dr"]:
    """Σᵢ k(x, xᵢ) uᵢ over blocks of keys (a(xᵢ), mask, uᵢ), along a leading axis."""
    similarity: Callable[..., Array] = pooling.weights if pooling.is_kernel else pooling.logits  # type: ignore[assignment]
    shape = jax.eval_shape(similarity, q, *(a[0] for a in keys[:2])).shape
    heads, u = 1 if len(shape) == 2 else shape[0], keys[2]
    classes, size = u.shape[2:-1], u.shape[-1] // heads

    def add(sums: _Sums, block: tuple[Array, Array, Array]) -> tuple[_Sums, None]:
        k, mask, u = block
        values = jnp.moveaxis(u.reshape(len(u), -1, heads, size), 2, 0).reshape(heads, len(u), -1)
        found = similarity(q, k, mask).reshape(heads, q.shape[0], k.shape[0])
        if pooling.is_kernel:
            return sums._replace(pooled=sums.pooled + found @ values), None
        top = jax.lax.stop_gradient(jnp.maximum(sums.top, found.max(-1, keepdims=True)))
        kept, exp = jnp.exp(sums.top - top), jnp.exp(found - top)
        return _Sums(kept * sums.pooled + exp @ values, kept * sums.total + exp.sum(-1, keepdims=True), top), None

    zero = jnp.zeros((heads, q.shape[0], u[0, 0].size // heads), u.dtype)
    least = jnp.finfo(u.dtype).min
    start = _Sums(zero, zero[..., :1], jnp.full_like(zero[..., :1], least))
    sums, _ = jax.lax.scan(jax.checkpoint(add), start, keys)
    pooled = sums.pooled if pooling.is_kernel else sums.pooled / jnp.maximum(sums.total, jnp.finfo(u.dtype).tiny)
    return jnp.moveaxis(pooled.reshape(heads, q.shape[0], -1, size), 0, 2).reshape(q.shape[0], *classes, heads * size)


def _split(rows: Array, most: int) -> Array:
    """Rows in equal blocks of at most so many, or of 8; the last one is filled with zeros."""
    count = max(1, -(-len(rows) // most))
    size = 8 * -(-len(rows) // (8 * count))
    filled = jnp.pad(rows, [(0, count * size - len(rows))] + [(0, 0)] * (rows.ndim - 1))
    return filled.reshape(count, size, *rows.shape[1:])
