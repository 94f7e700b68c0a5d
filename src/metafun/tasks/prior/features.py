"""Columns as real tables have them: correlated, skewed, discrete, with missing entries."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ...model.likelihoods import masked_mean
from ..scaling import MIN_VARIANCE_RATIO
from .draws import categories, integers, normals

# Most levels of a discrete column.
LEVELS = 8


def correlated(key: PRNGKeyArray, rows: int, columns: int) -> Float[Array, "n d"]:
    """Standard normal columns; a few latent causes explain a random share of their variance, from 0 to 95 %."""
    key_normal, key_rank, key_share = jax.random.split(key, 3)
    own, causes, mixing = normals(key_normal, (rows, columns), (rows, columns), (columns, columns))
    rank = integers(key_rank, 1, columns)
    mixing = jnp.where(jnp.arange(columns)[:, None] < rank, mixing, 0)
    mixing = mixing / jnp.linalg.norm(mixing, axis=0)
    share = jnp.maximum(jax.random.uniform(key_share, minval=-1.0, maxval=0.95), 0)
    return jnp.sqrt(1 - share) * own + jnp.sqrt(share) * causes @ mixing


def warped(key: PRNGKeyArray, z: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Each normal column through a random map: most stay, others become uniform, skewed, heavy-tailed or discrete."""
    columns = z.shape[1]
    key_kind, key_strength, key_levels, key_order = jax.random.split(key, 4)
    strength = jax.random.uniform(key_strength, (columns,), minval=0.3, maxval=1.2)
    levels = integers(key_levels, 2, LEVELS, (columns,))
    even = jax.scipy.stats.norm.cdf(z)
    step = jnp.minimum(jnp.floor(even * levels), levels - 1).astype(int)
    # The codes of a categorical column have no order.
    names = jnp.argsort(jax.random.uniform(key_order, (columns, LEVELS)), axis=1)
    named = jnp.take_along_axis(names, step.T, axis=1).T
    kinds = jnp.stack([z, even, jnp.exp(strength * z), z + strength * z**3, step + 0.0 * z, named + 0.0 * z])
    kind = categories(key_kind, jnp.array([0.6, 0.08, 0.1, 0.06, 0.08, 0.08]), (columns,))
    return kinds[kind, :, jnp.arange(columns)].T


def principal(x: Float[Array, "n d"], own: Bool[Array, " n"], count: int) -> Float[Array, "n c"]:
    """Principal components over the rows of the context, divided by the standard deviation of the first.

    Args:
        x: all rows of a table.
        own: which rows are context.
        count: number of components; components without variance are missing.
    """
    centred = jnp.where(own[:, None], x - masked_mean(x, own), 0)
    variances, directions = _leading(centred.T @ centred / jnp.maximum(own.sum(), 1), count)
    found = x @ directions.T / jnp.sqrt(jnp.maximum(variances[0], 1e-12))
    return jnp.where((variances > MIN_VARIANCE_RATIO * variances[0]) & (variances[0] > 0), found, jnp.nan)


def _leading(spread: Float[Array, "d d"], count: int) -> tuple[Float[Array, " c"], Float[Array, "c d"]]:
    """The largest eigenvalues and eigenvectors, one after another: the 256th power of the deflated matrix.

    Not `eigh`: LAPACK's threads deadlock with those of several CPU devices.
    """

    def next_one(left: Float[Array, "d d"], _: None) -> tuple[Array, tuple[Array, Array]]:
        power = left
        for _squaring in range(8):
            power = power / jnp.maximum(jnp.linalg.norm(power), 1e-30)
            power = power @ power
        # Every column of the power is parallel to the eigenvector; the one with the largest entry is most accurate.
        vector = power[:, jnp.argmax(jnp.diagonal(power))]
        vector = vector / jnp.maximum(jnp.linalg.norm(vector), 1e-30)
        value = vector @ left @ vector
        rest = jnp.eye(len(vector)) - jnp.outer(vector, vector)
        return rest @ left @ rest, (value, vector)

    _, (values, vectors) = jax.lax.scan(next_one, spread, length=count)
    return values, vectors


def with_gaps(key: PRNGKeyArray, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """In one table of five, entries are missing at random with one probability of up to 30 %."""
    key_rate, key_gaps = jax.random.split(key)
    rate = jnp.maximum(jax.random.uniform(key_rate, minval=-1.2, maxval=0.3), 0)
    return jnp.where(jax.random.bernoulli(key_gaps, rate, x.shape), jnp.nan, x)


def mixed(key: PRNGKeyArray, z: Float[Array, "n d"]) -> Float[Array, "n d"]:
    """Each normal column through a random map; how many columns are of a kind differs widely between tables.

    As in `warped`, and in addition skewed integers, columns that are often 0, and two values of which one may be rare.
    """
    columns = z.shape[1]
    key_warped, key_shares, key_kind, key_normal, key_levels, key_order = jax.random.split(key, 6)
    shares, at, size = normals(key_normal, (5,), (columns,), (columns,))
    levels = integers(key_levels, 2, 2 * LEVELS, (columns,))
    ranks = jax.scipy.stats.norm.cdf(z + 0.5 * at)
    step = jnp.minimum(jnp.floor(ranks * levels), levels - 1).astype(int)
    names = jnp.argsort(jax.random.uniform(key_order, (columns, 2 * LEVELS)), axis=1)
    named = jnp.take_along_axis(names, step.T, axis=1).T
    counts = jnp.floor(jnp.exp(1 + 0.5 * size + 0.7 * z))
    often_zero = jnp.maximum(z - 0.5 * at, 0)
    kinds = jnp.stack([warped(key_warped, z), counts, often_zero, (z > at) + 0.0 * z, named + 0.0 * z])
    spread = jax.random.uniform(key_shares, minval=0.5, maxval=3.0)
    chances = jax.nn.softmax(spread * shares + jnp.array([2.0, -0.5, -0.5, 0.5, 0.5]))
    kind = categories(key_kind, chances, (columns,))
    return kinds[kind, :, jnp.arange(columns)].T
