"""Rows of a table to vectors, for any columns in any order."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..model.likelihoods import masked_mean
from ..model.nn import MLP
from ..model.task import Points
from .base import Embedding

# A column with more entries is described as one with so many: the shipped models were trained on up to 256, and further
# beyond that their predictions become worse.
MOST_ENTRIES = 1024


class Relation(eqx.Module):
    """Statistics of how features of a column depend on y, invariant to the order of the classes."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of statistics of each feature."""

    @abstractmethod
    def __call__(
        self, features: Float[Array, "n e"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, "e s"]:
        """The statistics.

        Args:
            features: features of the column's entry in each row.
            present: False where the entry is missing or the row is padding.
            y: outputs, one-hot in classification.
        """

    @abstractmethod
    def relevance(
        self, x: Float[Array, "n one"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, ""]:
        """How informative the column x alone is about y."""

    @abstractmethod
    def class_count(self, context: Points) -> Float[Array, ""]:
        """The number of classes; 0 in regression."""


class RelationToNumbers(Relation):
    """Correlations with learned functions `of_y`."""

    of_y: MLP

    @property
    def size(self) -> int:
        return self.of_y.biases[-1].shape[-1]

    def __call__(
        self, features: Float[Array, "n e"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, "e s"]:
        features, outputs = _standardise(features, present), _standardise(self.of_y(y), present)
        return masked_mean(features[:, :, None] * outputs[:, None, :], present)

    def relevance(
        self, x: Float[Array, "n one"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, ""]:
        """The largest absolute correlation with an output."""
        return abs(masked_mean(_standardise(x, present) * _standardise(y, present), present)).max()

    def class_count(self, context: Points) -> Float[Array, ""]:
        return jnp.zeros(())


class RelationToClasses(Relation):
    """The share of the variance that lies between the classes."""

    @property
    def size(self) -> int:
        return 1

    def __call__(
        self, features: Float[Array, "n e"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, "e s"]:
        features, labels = _standardise(features, present), jnp.where(present[:, None], y, 0)
        counts = labels.sum(0)
        means = labels.T @ features / jnp.maximum(counts, 1)[:, None]
        return (counts / jnp.maximum(counts.sum(), 1) @ jnp.square(means))[:, None]

    def relevance(
        self, x: Float[Array, "n one"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, ""]:
        return self(x, present, y)[0, 0]

    def class_count(self, context: Points) -> Float[Array, ""]:
        return context.classes.sum().astype(context.y.dtype)


class ColumnSummary(eqx.Module):
    """A summary of each column of a context.

    Args:
        vectors: sⱼ, the content of each column and its relation to y.
        order: the columns, most relevant first.
        nonempty: False for a column without entries.
    """

    vectors: Float[Array, "d s"]
    order: Int[Array, " d"]
    nonempty: Bool[Array, " d"]


class ColumnEmbedding(Embedding):
    """MLP(e₁, e₂, …) with eⱼ = MLP(cell(xⱼ), sⱼ), the columns sorted by their relevance to y.

    sⱼ summarises column j in the context and its relation to y. Except for ties in relevance, the order in which
    columns are given does not matter. NaN is a missing entry; a column without entries is ignored.

    Args:
        columns: number of columns, padding included.
        relation: statistics of how a column depends on y.
        cells: number of features of a cell.
        about: length of a column's summary sⱼ.
        entries: length of eⱼ.
        size: length of a row's vector.
        key: source of the initial weights.
    """

    cell: MLP
    relation: Relation
    about: MLP
    entry: MLP
    row: MLP

    def __init__(
        self, columns: int, relation: Relation, *, cells: int, about: int, entries: int, size: int, key: PRNGKeyArray
    ):
        keys = jax.random.split(key, 4)
        self.relation = relation
        self.cell = MLP([2, cells, cells], "gelu", key=keys[0])
        self.about = MLP([cells * (2 + relation.size) + 3, 2 * about, about], "gelu", key=keys[1])
        self.entry = MLP([cells + about, cells, entries], "gelu", key=keys[2])
        self.row = MLP([columns * entries, size, size], "gelu", key=keys[3])

    @property
    def size(self) -> int:
        return self.row.weights[-1].shape[-1]

    def summarise_context(self, context: Points) -> ColumnSummary:
        present = ~jnp.isnan(context.x) & context.mask[:, None]
        vectors = self.about(column_statistics(self._cells(context.x), present, context, self.relation))
        x = jnp.where(present, context.x, 0)[..., None]
        relevance = jax.vmap(lambda x, present: self.relation.relevance(x, present, context.y), (1, 1))(x, present)
        nonempty = present.any(0)
        return ColumnSummary(vectors, jnp.argsort(jnp.where(nonempty, -relevance, jnp.inf)), nonempty)

    def __call__(self, x: Float[Array, "m dx"], summary: ColumnSummary) -> Float[Array, "m e"]:
        vectors = jnp.broadcast_to(summary.vectors, (x.shape[0], *summary.vectors.shape))
        entries = self.entry(jnp.concatenate([self._cells(x), vectors], -1))
        entries = jnp.where(summary.nonempty[:, None], entries, 0)[:, summary.order]
        return self.row(entries.reshape(x.shape[0], entries.shape[1] * entries.shape[2]))

    def _cells(self, x: Float[Array, "m d"]) -> Float[Array, "m d c"]:
        return self.cell(cell_inputs(x))


# Statistics of a column beside those of its features.
SIZES = 3


def cell_inputs(x: Float[Array, "m d"]) -> Float[Array, "m d 2"]:
    """Each entry, 0 where it is missing, and whether it is missing."""
    missing = jnp.isnan(x)
    return jnp.stack([jnp.where(missing, 0, x), missing.astype(x.dtype)], -1)


def column_statistics(
    cells: Float[Array, "n d c"], present: Bool[Array, "n d"], context: Points, relation: Relation
) -> Float[Array, "d s"]:
    """Mean, deviation and relation to y of the features of each column, and how many entries it has.

    Args:
        cells: features of each entry of the context.
        present: False where an entry is missing or its row is padding.
        context: the labels.
        relation: statistics of how features depend on y.
    """
    count = present.sum(0)
    share = count / jnp.maximum(context.mask.sum(), 1)
    class_count = jnp.full(count.shape, relation.class_count(context))
    sizes = jnp.stack([jnp.log1p(jnp.minimum(count, MOST_ENTRIES)), jnp.log1p(class_count), share], -1)

    def statistics(cells: Float[Array, "n c"], present: Bool[Array, " n"]) -> Float[Array, " s"]:
        mean = masked_mean(cells, present)
        deviation = jnp.sqrt(masked_mean(jnp.square(cells - mean), present) + 1e-6)
        return jnp.concatenate([mean, deviation, relation(cells, present, context.y).ravel()])

    return jnp.concatenate([jax.vmap(statistics, (1, 1))(cells, present), sizes], -1)


def _standardise(values: Float[Array, "n e"], present: Bool[Array, " n"]) -> Float[Array, "n e"]:
    """Mean 0 and standard deviation 1 over the rows that are present."""
    values = values - masked_mean(values, present)
    return values * jax.lax.rsqrt(masked_mean(jnp.square(values), present) + 1e-4)
