"""Synthetic tables: the prior on which models of any table are trained."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...model.task import Points, Task
from ..scaling import RobustScaling, compress_tails
from . import features, functions
from .base import Tables
from .draws import categories, integers, log_uniform, normals
from .labels import by_largest, by_threshold, class_shares, clusters, noisy


class NarrowTables(Tables):
    """Tables of which the wide ones are replaced by their principal components."""

    @property
    def drawn(self) -> int:
        """Columns drawn: wide tables have up to twice as many, and are replaced by their principal components."""
        return 2 * self.columns

    def used_columns(self, key: PRNGKeyArray) -> tuple[Bool[Array, " d"], Bool[Array, " d"]]:
        """Which columns the table has, and which of them are informative."""
        key_wide, key_count, key_rate, key_used = jax.random.split(key, 4)
        is_wide = jax.random.bernoulli(key_wide, 0.2)
        count = integers(key_count, 1, self.columns) + is_wide * self.columns
        there = jnp.arange(self.drawn) < count
        rate = jax.random.uniform(key_rate, minval=0.3, maxval=1.5)
        used = there & (
            jax.random.bernoulli(key_used, jnp.minimum(rate, 1), there.shape) | (jnp.arange(self.drawn) < 1)
        )
        return there, used

    def split(
        self, n: Int[Array, ""], x: Float[Array, "rows d"], y: Float[Array, "rows k"], is_target: Bool[Array, " rows"]
    ) -> Task:
        most = self.context[1]
        own = jnp.arange(most) < n
        is_wide = ~jnp.isnan(x[:, self.columns]).all()
        standard = RobustScaling.of(jnp.where(own[:, None], x[:most], jnp.nan))
        x = compress_tails(standard(x))
        components = features.principal(jnp.nan_to_num(x), jnp.arange(len(x)) < n, self.columns)
        x = jnp.where(is_wide, components, x[:, : self.columns])
        return Task(Points(x[:most], y[:most], own), Points(x[most:], y[most:], is_target[most:]))


class NumberTables(NarrowTables):
    """Regression: y is a noisy random function of the columns; in some tables, columns follow from y instead."""

    def sample(self, key: PRNGKeyArray) -> Task:
        keys = jax.random.split(key, 12)
        there, used = self.used_columns(keys[0])
        z = features.correlated(keys[1], self.rows, self.drawn)
        f = functions.draw(keys[2], jnp.where(used, z, 0), 1)
        noise = log_uniform(keys[3], 0.02, 2.0)
        heavy = jax.random.bernoulli(keys[4], 0.2)
        sizes, errors, echo = normals(keys[5], f.shape, f.shape, (self.drawn,))
        y = f + noise * jnp.exp(heavy * sizes) * errors
        follows = jax.random.bernoulli(keys[6], 0.25) & jax.random.bernoulli(keys[7], 0.5, (self.drawn,))
        z = jnp.where(follows, (z + echo * y) / jnp.sqrt(1 + jnp.square(echo * y).mean(0)), z)
        y = jnp.where(jax.random.bernoulli(keys[9], 0.15), jnp.exp(y / (1 + noise)), y)
        x = features.with_gaps(keys[10], features.warped(keys[11], z))
        n = self.context_size(jax.random.fold_in(key, 0))
        return self.of_numbers(n, jnp.where(there, x, jnp.nan), y)


class LabelTables(NarrowTables):
    """Classification with 2 to `classes` classes; in half of the tables the context is balanced."""

    classes: int = eqx.field(static=True)

    def sample(self, key: PRNGKeyArray) -> Task:
        keys = jax.random.split(key, 12)
        there, used = self.used_columns(keys[0])
        ways = jnp.clip(log_uniform(keys[1], 2, self.classes + 1).astype(int), 2, self.classes)
        shares = class_shares(keys[2], ways, self.classes, 1.5)
        z = features.correlated(keys[3], self.rows, self.drawn)

        cluster = categories(keys[4], shares, (self.rows,))
        clustered = clusters(keys[5], z, cluster, used, self.classes)
        is_clustered = jax.random.bernoulli(keys[6], 0.5)
        scores = functions.draw(keys[7], jnp.where(used, z, 0), self.classes)
        labels = jnp.where(
            jax.random.bernoulli(keys[8], 0.3), by_threshold(scores[:, 0], shares), by_largest(scores, shares)
        )
        labels = jnp.where(is_clustered, cluster, labels)
        # Where all rows fell into one class, the first column decides between two.
        labels = jnp.where((labels == labels[0]).all(), (z[:, 0] > 0).astype(int), labels)
        labels = noisy(keys[9], labels, shares)

        x = features.warped(keys[10], jnp.where(is_clustered, clustered, z))
        x = jnp.where(there, features.with_gaps(keys[11], x), jnp.nan)
        n = self.context_size(jax.random.fold_in(key, 0))
        is_balanced = jax.random.bernoulli(jax.random.fold_in(key, 1), 0.5)
        return self.of_labels(n, x, labels, self.classes, is_balanced)
