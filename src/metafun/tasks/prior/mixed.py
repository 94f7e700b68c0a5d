"""Synthetic tables of many kinds, with all their columns: the prior of models that take any number of columns."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...model.task import Points, Task
from ..scaling import RobustScaling, compress_tails
from . import features, functions
from .base import Tables
from .causes import graph
from .draws import categories, integers, log_uniform, normals
from .labels import by_largest, by_threshold, class_shares, clusters, noisy


class Table(eqx.Module):
    """What tables of numbers and of classes have in common.

    Args:
        z: normal columns.
        x: the columns as the user sees them.
        f: random functions, standardised.
        there: which columns the table has.
        used: which of them are informative.
    """

    z: Float[Array, "n d"]
    x: Float[Array, "n d"]
    f: Float[Array, "n o"]
    there: Bool[Array, " d"]
    used: Bool[Array, " d"]


class MixedTables(Tables):
    """Tables of many kinds, with all their columns."""

    def used_columns(self, key: PRNGKeyArray) -> tuple[Bool[Array, " d"], Bool[Array, " d"]]:
        """Which columns the table has, and which of them are informative: any share of them, or a few."""
        key_even, key_count, key_few, key_rate, key_used = jax.random.split(key, 5)
        even, few = integers(key_count, 1, self.columns), log_uniform(key_even, 1, self.columns + 1).astype(int)
        count = jnp.where(jax.random.bernoulli(key_few, 0.5), even, few)
        there = jnp.arange(self.columns) < count
        rate, number = jax.random.uniform(key_rate, (2,))
        # As the exponent of the logarithm: 1, 2, 4 … informative columns are equally frequent.
        sparse = jnp.exp(number * jnp.log(count)) / count
        rate = jnp.where(rate < 0.4, sparse, 2 * rate - 0.5)
        used = jax.random.bernoulli(key_used, rate.clip(0, 1), there.shape) | (jnp.arange(self.columns) < 1)
        return there, there & used

    def table(self, key: PRNGKeyArray, outputs: int) -> Table:
        """Normal columns, and random functions of them.

        In one table of four, both are nodes of a causal graph. In one of three, functions see the columns as the user
        does: categories, counts and skewed numbers.
        """
        keys = jax.random.split(key, 7)
        there, used = self.used_columns(keys[0])
        from_columns, is_causal = jax.random.bernoulli(keys[1], jnp.array([0.35, 0.25]))
        nodes, effects = graph(keys[2], self.rows, self.columns, outputs)
        z = jnp.where(is_causal, nodes, features.correlated(keys[3], self.rows, self.columns))
        x = features.mixed(keys[4], z)
        (sizes,) = normals(keys[5], (self.columns + 1,))
        seen = jnp.where(from_columns, functions.standardise(x), z) * jnp.exp(0.5 * jnp.abs(sizes[0]) * sizes[1:])
        f = functions.draw(keys[6], jnp.where(used, seen, 0), outputs, functions.MORE_KINDS)
        return Table(z, x, jnp.where(is_causal, effects, f), there, used)

    def split(
        self, n: Int[Array, ""], x: Float[Array, "rows d"], y: Float[Array, "rows k"], is_target: Bool[Array, " rows"]
    ) -> Task:
        most = self.context[1]
        own = jnp.arange(most) < n
        x = compress_tails(RobustScaling.of(jnp.where(own[:, None], x[:most], jnp.nan))(x))
        return Task(Points(x[:most], y[:most], own), Points(x[most:], y[most:], is_target[most:]))


class MixedNumberTables(MixedTables):
    """Regression: y is a noisy random function of the columns, in every second table on another scale."""

    def sample(self, key: PRNGKeyArray) -> Task:
        keys = jax.random.split(key, 9)
        table = self.table(keys[0], 2)
        f, level = table.f[:, :1], table.f[:, 1:]
        noise = log_uniform(keys[1], 0.02, 2.0)
        is_heavy, varies = jax.random.bernoulli(keys[2], 0.2, (2,))
        sizes, errors, echo = normals(keys[3], f.shape, f.shape, (self.columns,))
        y = f + noise * jnp.exp(is_heavy * sizes + 0.7 * varies * level) * errors
        # In one table of eight, some columns follow from y instead.
        follows = jax.random.bernoulli(keys[4], jnp.array([0.125, *[0.5] * self.columns]))
        moved = (table.z + echo * y) / jnp.sqrt(1 + jnp.square(echo * y).mean(0))
        x = jnp.where(follows[0] & follows[1:], moved, table.x)
        y = _rescaled(keys[5], functions.standardise(y))
        x = jnp.where(table.there, features.with_gaps(keys[6], x), jnp.nan)
        return self.of_numbers(self.context_size(keys[7]), x, y)


def _rescaled(key: PRNGKeyArray, y: Float[Array, "n one"]) -> Float[Array, "n one"]:
    """Every second y as it is; the others skewed, heavy-tailed, even, integers, or often at their minimum."""
    key_kind, key_strength = jax.random.split(key)
    s = log_uniform(key_strength, 0.3, 1.5)
    kinds = jnp.stack(
        [
            y,
            jnp.exp(s * y),
            jnp.sinh(s * y),
            jax.scipy.stats.norm.cdf(y),
            jnp.floor(y / s),
            jnp.maximum(y, 0.7 - s),
            -jnp.exp(-s * y),
        ]
    )
    return kinds[categories(key_kind, jnp.array([0.5, 0.2, 0.06, 0.06, 0.08, 0.05, 0.05]), ())]


class MixedLabelTables(MixedTables):
    """Classification with 2 to `classes` classes; in half of the tables the context is balanced."""

    classes: int = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray) -> Task:
        keys = jax.random.split(key, 12)
        table = self.table(keys[0], self.classes)
        ways = jnp.clip(log_uniform(keys[1], 2, self.classes + 1).astype(int), 2, self.classes)
        shares = class_shares(keys[2], ways, self.classes, 2.5)
        is_clustered, is_ordinal, is_balanced = jax.random.bernoulli(keys[3], jnp.array([0.25, 0.3, 0.5]))
        cluster = categories(keys[4], shares, (self.rows,))
        clustered = features.mixed(keys[5], clusters(keys[6], table.z, cluster, table.used, self.classes))
        labels = jnp.where(is_ordinal, by_threshold(table.f[:, 0], shares), by_largest(table.f, shares))
        labels = jnp.where(is_clustered, cluster, labels)
        # Where all rows fell into one class, the first column decides between two.
        labels = jnp.where((labels == labels[0]).all(), (table.z[:, 0] > 0).astype(int), labels)
        labels = noisy(keys[7], labels, shares)

        x = jnp.where(is_clustered, clustered, table.x)
        x = jnp.where(table.there, features.with_gaps(keys[8], x), jnp.nan)
        return self.of_labels(self.context_size(keys[9]), x, labels, self.classes, is_balanced)
