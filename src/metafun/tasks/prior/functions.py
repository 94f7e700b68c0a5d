"""Random functions of several inputs: Gaussian processes, networks, linear functions, trees, and mixtures of these."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .draws import categories, integers, log_uniform, normals

# A random function of rows with some number of outputs.
Kind = Callable[[PRNGKeyArray, Float[Array, "n d"], int], Float[Array, "n o"]]
FREQUENCIES = 128
HIDDEN = 32
TREES, SPLITS = 4, 4
FOREST, LEVELS, PRODUCTS = 8, 5, 4


def draw(
    key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int, kinds: tuple[Kind, ...] | None = None
) -> Float[Array, "n o"]:
    """Random functions at x, of one kind or a mixture, standardised. Columns of zeros are unused.

    Args:
        key: source of randomness.
        x: the rows.
        outputs: number of functions.
        kinds: what they are chosen from; `KINDS` by default.
    """
    kinds = KINDS if kinds is None else kinds
    key_shares, key_alone, *keys = jax.random.split(key, 2 + len(kinds))
    each = jnp.stack([standardise(kind(k, x, outputs)) for kind, k in zip(kinds, keys, strict=True)])
    (shares,) = normals(key_shares, (len(kinds),))
    shares = jax.nn.softmax(2 * shares)
    alone = jax.nn.one_hot(shares.argmax(), len(kinds))
    shares = jnp.where(jax.random.bernoulli(key_alone, 0.7), alone, shares)
    return standardise(jnp.tensordot(shares, each, 1))


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


def forest(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Sums of up to eight trees of up to five levels; each node has its own column and a row of it as threshold."""
    key_column, key_row, key_leaf, key_depth, key_trees = jax.random.split(key, 5)
    nodes = (FOREST, 2**LEVELS - 1)
    columns = categories(key_column, (jnp.square(x).sum(0) > 0) + 1e-6, nodes)
    at = x[integers(key_row, 0, len(x) - 1, nodes), columns]
    depth, trees = integers(key_depth, 1, LEVELS), jnp.arange(FOREST)
    node = jnp.zeros((len(x), FOREST), int)
    for level in range(LEVELS):
        entries = jnp.take_along_axis(x, columns[trees, node], axis=1)
        child = 2 * node + 1 + (entries > at[trees, node])
        node = jnp.where(level < depth, jnp.minimum(child, 2 ** (LEVELS + 1) - 2), node)
    (values,) = normals(key_leaf, (FOREST, 2 ** (LEVELS + 1) - 1, outputs))
    return (values[trees, node] * (trees < integers(key_trees, 1, FOREST))[:, None]).sum(1)


def products(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Sums of up to four products of two or three columns, or of their signs."""
    key_column, key_weights, key_kind, key_terms = jax.random.split(key, 4)
    columns = categories(key_column, (jnp.square(x).sum(0) > 0) + 1e-6, (PRODUCTS, 3))
    shift, w = normals(key_weights, (PRODUCTS, 3), (PRODUCTS, outputs))
    signed, third = jax.random.bernoulli(key_kind, 0.5, (2,))
    factors = x[:, columns] - 0.3 * shift
    factors = jnp.where(signed, jnp.sign(factors), factors)
    terms = factors[..., 0] * factors[..., 1] * jnp.where(third, factors[..., 2], 1)
    return terms @ (w * (jnp.arange(PRODUCTS) < integers(key_terms, 1, PRODUCTS))[:, None])


def additive(key: PRNGKeyArray, x: Float[Array, "n d"], outputs: int) -> Float[Array, "n o"]:
    """Sums over columns of waves or steps of each."""
    key_normal, key_kind, key_rate = jax.random.split(key, 3)
    d = x.shape[1]
    at, sharp, wave, w, mix = normals(key_normal, (d,), (d,), (d,), (d, outputs), (d, 3))
    bent = jnp.tanh(jnp.exp(1 + sharp) * (x - at))
    waves = jnp.sin(jnp.exp(0.5 * wave) * x + 3 * at)
    shares = jax.nn.softmax(2 * mix, axis=-1)
    each = shares[:, 0] * bent + shares[:, 1] * waves + shares[:, 2] * jnp.square(x) / 2
    used = (jnp.square(x).sum(0) > 0) & jax.random.bernoulli(key_kind, jax.random.uniform(key_rate, minval=0.3), (d,))
    return each @ jnp.where(used[:, None] | (~used.any() & (jnp.square(x).sum(0) > 0))[:, None], w, 0)


KINDS: tuple[Kind, ...] = (fourier, network, linear, steps)
MORE_KINDS: tuple[Kind, ...] = (*KINDS, forest, products, additive)


def standardise(values: Float[Array, "n o"]) -> Float[Array, "n o"]:
    """Mean 0 and standard deviation 1 of each column."""
    return (values - values.mean(0)) / (values.std(0) + 1e-6)
