"""Columns and outputs as nodes of one random graph: causes, effects and what they have in common."""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .draws import integers, log_uniform, normals
from .functions import standardise

DEPTH = 3


def graph(key: PRNGKeyArray, rows: int, columns: int, outputs: int) -> tuple[Float[Array, "n d"], Float[Array, "n o"]]:
    """Columns and outputs, all of them nodes of a layered graph in random order.

    A node is a function of a few nodes of the layer before, with noise.

    Args:
        key: source of randomness.
        rows: number of rows.
        columns: number of columns.
        outputs: number of outputs.
    """
    key_normal, key_kept, key_rate, key_noise, key_kind, key_order = jax.random.split(key, 6)
    width = math.ceil((columns + outputs) / DEPTH)
    weights, noise, h = normals(key_normal, (DEPTH, width, width), (DEPTH, rows, width), (rows, width))
    kept = jax.random.bernoulli(key_kept, jax.random.uniform(key_rate, minval=1.5, maxval=6.0) / width, weights.shape)
    kept = kept | jnp.eye(width, dtype=bool)
    size, nodes = log_uniform(key_noise, 0.03, 1.0), []
    kinds = integers(key_kind, 0, 3, (DEPTH, width))
    for w, keep, own, kind in zip(weights, kept, noise, kinds, strict=True):
        h = standardise(h @ (w * keep))
        bent = jnp.stack([h, jnp.tanh(2 * h), jax.nn.relu(h), jnp.sin(2 * h)])
        h = bent[kind, :, jnp.arange(width)].T + size * own
        nodes.append(h)
    order = jax.random.permutation(key_order, DEPTH * width)
    found = standardise(jnp.concatenate(nodes, axis=1)[:, order])
    return found[:, :columns], found[:, columns : columns + outputs]
