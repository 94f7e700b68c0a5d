"""Classes of synthetic tables: how frequent they are, where they lie, and which rows show them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .draws import categories, log_uniform, normals


def class_shares(key: PRNGKeyArray, ways: Int[Array, ""], classes: int, spread: float) -> Float[Array, " c"]:
    """Frequencies of the classes; classes beyond `ways` have none.

    Args:
        key: source of randomness.
        ways: number of classes of the table.
        classes: maximum number of classes.
        spread: largest standard deviation of the logarithms.
    """
    key_kind, key_shares = jax.random.split(key)
    (logits,) = normals(key_shares, (classes,))
    logits = jax.random.uniform(key_kind, maxval=spread) * logits
    return jax.nn.softmax(jnp.where(jnp.arange(classes) < ways, logits, -jnp.inf))


def clusters(
    key: PRNGKeyArray, z: Float[Array, "n d"], cluster: Int[Array, " n"], used: Bool[Array, " d"], classes: int
) -> Float[Array, "n d"]:
    """A Gaussian for each class, with random means and, in some tables, random widths.

    Args:
        key: source of randomness.
        z: normal columns.
        cluster: the class of each row.
        used: columns in which the means differ.
        classes: maximum number of classes.
    """
    key_apart, key_own, key_normal = jax.random.split(key, 3)
    each = (classes, z.shape[1])
    pull, middles, widths = normals(key_normal, (z.shape[1],), each, each)
    apart = log_uniform(key_apart, 0.3, 4.0)
    middles = jnp.where(used, apart * jnp.exp(0.8 * pull) * middles, 0)
    widths = jnp.exp(jax.random.uniform(key_own, maxval=0.6) * widths)
    moved = middles[cluster] + widths[cluster] * z
    return (moved - moved.mean(0)) / moved.std(0)


def noisy(key: PRNGKeyArray, labels: Int[Array, " n"], shares: Float[Array, " c"]) -> Int[Array, " n"]:
    """In one table of three, up to 20 % of the labels are random."""
    key_rate, key_where, key_what = jax.random.split(key, 3)
    rate = jnp.maximum(jax.random.uniform(key_rate, minval=-0.4, maxval=0.2), 0)
    others = categories(key_what, shares, labels.shape)
    return jnp.where(jax.random.bernoulli(key_where, rate, labels.shape), others, labels)


def by_threshold(score: Float[Array, " n"], shares: Float[Array, " c"]) -> Int[Array, " n"]:
    """Classes ordered along the score, each with its share of the rows."""
    rank = jnp.argsort(jnp.argsort(score)) / len(score)
    return jnp.minimum((rank[:, None] >= jnp.cumsum(shares)).sum(1), len(shares) - 1)


def by_largest(scores: Float[Array, "n c"], shares: Float[Array, " c"]) -> Int[Array, " n"]:
    """The class with the largest score + log frequency."""
    return jnp.argmax(scores + jnp.log(shares), axis=1)


def two_classes_first(labels: Int[Array, " n"]) -> Int[Array, " n"]:
    """An order whose first two rows have different classes, if there are two classes."""
    other = jnp.argmax(labels != labels[0])
    places = jnp.arange(len(labels))
    return jnp.where(other > 0, places.at[1].set(other).at[other].set(1), places)


def balanced_order(labels: Int[Array, " n"], classes: int, most: int) -> Int[Array, " n"]:
    """An order whose first rows are balanced between the classes, as far as classes have rows."""
    shown = jnp.cumsum(jax.nn.one_hot(labels, classes), axis=0)[jnp.arange(len(labels)), labels]
    return jnp.argsort(jnp.where(jnp.arange(len(labels)) < most, shown, jnp.inf), stable=True)
