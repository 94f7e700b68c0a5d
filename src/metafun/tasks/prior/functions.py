"""Random functions of several inputs: Gaussian processes, networks, sparse linear ones, steps, and sums of them."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

FREQUENCIES = 128
HIDDEN = 32
TREES, SPLITS = 4, 4


def draw(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Functions of one kind or a mixture of kinds, at x, with mean 0 and deviation 1. Columns that are 0 are unused."""
    key_shares, key_alone, *keys = jax.random.split(key, 2 + len(KINDS))
    each = jnp.stack([_even(kind(k, x, outputs)) for kind, k in zip(KINDS, keys, strict=True)])
    shares = jax.nn.softmax(2 * jax.random.normal(key_shares, (len(KINDS),)))
    alone = jax.nn.one_hot(shares.argmax(), len(KINDS))
    shares = jnp.where(jax.random.bernoulli(key_alone, 0.7), alone, shares)
    return _even(jnp.tensordot(shares, each, 1))


def fourier(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Gaussian processes by random frequencies, with a length scale for each column.

    Frequencies of many sizes make rough functions, as Matérn kernels do, and frequencies of one size smooth ones.
    """
    key_w, key_phase, key_scale, key_each, key_rough, key_sizes, key_sum = jax.random.split(key, 7)
    d = x.shape[1]
    scale = jnp.exp(jax.random.uniform(key_scale, minval=jnp.log(0.5), maxval=jnp.log(8.0)))
    lengths = scale * jnp.exp(0.7 * jax.random.normal(key_each, (d, 1)))
    sizes = jnp.exp(jax.random.uniform(key_rough) * jax.random.normal(key_sizes, (FREQUENCIES,)))
    frequencies = jax.random.normal(key_w, (d, FREQUENCIES)) * sizes / lengths
    phase = jax.random.uniform(key_phase, (FREQUENCIES,), maxval=2 * jnp.pi)
    return jnp.cos(x @ frequencies + phase) @ jax.random.normal(key_sum, (FREQUENCIES, outputs))


def network(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Two hidden layers, most of whose connections may be missing."""
    keys = jax.random.split(key, 7)
    h, keep = x, jax.random.uniform(keys[5], minval=0.1, maxval=1.0)
    gain = jnp.exp(jax.random.uniform(keys[6], minval=jnp.log(0.5), maxval=jnp.log(4.0)))
    bends = jnp.array([0, 1, 2])
    kind = jax.random.choice(keys[4], bends)
    for k, size in zip(jax.random.split(keys[0]), (HIDDEN, HIDDEN), strict=True):
        key_w, key_b, key_keep = jax.random.split(k, 3)
        w = jax.random.normal(key_w, (h.shape[1], size)) * jax.random.bernoulli(key_keep, keep, (h.shape[1], size))
        h = gain * h @ w / jnp.sqrt(1 + jnp.square(w).sum(0)) + jax.random.normal(key_b, (size,))
        h = jnp.where(kind == 0, jnp.tanh(h), jnp.where(kind == 1, jax.nn.relu(h), jnp.sin(h)))
    return h @ jax.random.normal(keys[1], (HIDDEN, outputs))


def linear(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Of all columns or of few."""
    key_w, key_keep, key_rate = jax.random.split(key, 3)
    rate = jax.random.uniform(key_rate, minval=0.2, maxval=1.0)
    w = jax.random.normal(key_w, (x.shape[1], outputs))
    return x @ jnp.where(jax.random.bernoulli(key_keep, rate, (x.shape[1], 1)), w, 0.1 * w)


def steps(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """A few trees that split by the same columns and thresholds on a level; from one split to some."""
    key_column, key_at, key_leaf, key_depth, key_trees = jax.random.split(key, 5)
    weight = (jnp.square(x).sum(0) > 0) + 1e-6
    columns = jax.random.categorical(key_column, jnp.log(weight), shape=(TREES, SPLITS))
    above = x[:, columns] > jax.random.normal(key_at, (TREES, SPLITS))
    used = jnp.arange(SPLITS) < jax.random.randint(key_depth, (TREES, 1), 1, SPLITS + 1)
    leaf = ((above & used) * 2 ** jnp.arange(SPLITS)).sum(-1)
    values = jax.random.normal(key_leaf, (TREES, 2**SPLITS, outputs))
    trees = jnp.arange(TREES) < jax.random.randint(key_trees, (), 1, TREES + 1)
    return (values[jnp.arange(TREES), leaf] * trees[:, None]).sum(1)


KINDS: tuple[Callable[[PRNGKeyArray, Float[Array, "n d"], int], Float[Array, "n o"]], ...] = (
    fourier,
    network,
    linear,
    steps,
)


def _even(values: Float[Array, "n o"]) -> Float[Array, "n o"]:
    return (values - values.mean(0)) / (values.std(0) + 1e-6)
