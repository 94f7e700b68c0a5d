"""Random functions of several inputs: Gaussian processes, networks, linear functions, trees, and mixtures of these."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .draws import categories, integers, log_uniform, normals

FREQUENCIES = 128
HIDDEN = 32
TREES, SPLITS = 4, 4


def draw(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Random functions at x, of one kind or a mixture, standardised. Columns of zeros are unused."""
    key_shares, key_alone, *keys = jax.random.split(key, 2 + len(KINDS))
    each = jnp.stack([_standardise(kind(k, x, outputs)) for kind, k in zip(KINDS, keys, strict=True)])
    (shares,) = normals(key_shares, (len(KINDS),))
    shares = jax.nn.softmax(2 * shares)
    alone = jax.nn.one_hot(shares.argmax(), len(KINDS))
    shares = jnp.where(jax.random.bernoulli(key_alone, 0.7), alone, shares)
    return _standardise(jnp.tensordot(shares, each, 1))


def fourier(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Gaussian processes by random Fourier features, with a length scale for each column.

    Widely spread frequencies make rough functions, as Matérn kernels do; equal ones make smooth functions.
    """
    key_normal, key_phase, key_scale, key_rough = jax.random.split(key, 4)
    d = x.shape[1]
    w, each, sizes, sums = normals(key_normal, (d, FREQUENCIES), (d, 1), (FREQUENCIES,), (FREQUENCIES, outputs))
    lengths = log_uniform(key_scale, 0.5, 8.0) * jnp.exp(0.7 * each)
    frequencies = w * jnp.exp(jax.random.uniform(key_rough) * sizes) / lengths
    phase = jax.random.uniform(key_phase, (FREQUENCIES,), maxval=2 * jnp.pi)
    return jnp.cos(x @ frequencies + phase) @ sums


def network(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Networks with two hidden layers and random sparsity."""
    key_normal, key_kept, key_keep, key_gain, key_kind = jax.random.split(key, 5)
    inner, outer = (x.shape[1], HIDDEN), (HIDDEN, HIDDEN)
    w1, w2, b1, b2, out = normals(key_normal, inner, outer, (HIDDEN,), (HIDDEN,), (HIDDEN, outputs))
    share = jax.random.uniform(key_keep, minval=0.1, maxval=1.0)
    kept = jax.random.bernoulli(key_kept, share, (x.shape[1] + HIDDEN, HIDDEN))
    gain, kind = log_uniform(key_gain, 0.5, 4.0), integers(key_kind, 0, 2)
    h = x
    for w, b, keep in ((w1, b1, kept[: x.shape[1]]), (w2, b2, kept[x.shape[1] :])):
        w = w * keep
        h = gain * h @ w / jnp.sqrt(1 + jnp.square(w).sum(0)) + b
        h = jnp.where(kind == 0, jnp.tanh(h), jnp.where(kind == 1, jax.nn.relu(h), jnp.sin(h)))
    return h @ out


def linear(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Linear functions of all columns, or mainly of a few."""
    key_w, key_keep, key_rate = jax.random.split(key, 3)
    rate = jax.random.uniform(key_rate, minval=0.2, maxval=1.0)
    (w,) = normals(key_w, (x.shape[1], outputs))
    return x @ jnp.where(jax.random.bernoulli(key_keep, rate, (x.shape[1], 1)), w, 0.1 * w)


def steps(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Sums of a few oblivious trees: all nodes of a level share one column and threshold."""
    key_column, key_normal, key_depth, key_trees = jax.random.split(key, 4)
    at, values = normals(key_normal, (TREES, SPLITS), (TREES, 2**SPLITS, outputs))
    columns = categories(key_column, (jnp.square(x).sum(0) > 0) + 1e-6, (TREES, SPLITS))
    above = x[:, columns] > at
    used = jnp.arange(SPLITS) < integers(key_depth, 1, SPLITS, (TREES, 1))
    leaf = ((above & used) * 2 ** jnp.arange(SPLITS)).sum(-1)
    trees = jnp.arange(TREES) < integers(key_trees, 1, TREES)
    return (values[jnp.arange(TREES), leaf] * trees[:, None]).sum(1)


KINDS: tuple[Callable[[PRNGKeyArray, Float[Array, "n d"], int], Float[Array, "n o"]], ...] = (
    fourier,
    network,
    linear,
    steps,
)


def _standardise(values: Float[Array, "n o"]) -> Float[Array, "n o"]:
    return (values - values.mean(0)) / (values.std(0) + 1e-6)
