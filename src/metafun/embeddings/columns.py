"""Rows of any small table as vectors: whatever the columns are, and in whichever order they come."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..model.likelihoods import masked_mean
from ..model.nn import MLP
from ..model.task import Points
from .base import Embedding


class Relation(eqx.Module):
    """How entries go together with outputs. What is said of classes must not depend on their order."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many numbers are said of each kind of entry."""

    @abstractmethod
    def __call__(
        self, entries: Float[Array, "n e"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, "e s"]: ...

    @abstractmethod
    def relevance(
        self, x: Float[Array, "n one"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, ""]:
        """How much a column tells of y by itself."""

    @abstractmethod
    def class_count(self, context: Points) -> Float[Array, ""]:
        """The number of classes; 0 where there are none."""


class RelationToNumbers(Relation):
    """Correlations with some functions of y."""

    of_y: MLP

    @property
    def size(self) -> int:
        return self.of_y.biases[-1].shape[-1]

    def __call__(
        self, entries: Float[Array, "n e"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, "e s"]:
        entries, outputs = _standardise(entries, present), _standardise(self.of_y(y), present)
        return masked_mean(entries[:, :, None] * outputs[:, None, :], present)

    def relevance(
        self, x: Float[Array, "n one"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, ""]:
        """The largest correlation with an output."""
        return abs(masked_mean(_standardise(x, present) * _standardise(y, present), present)).max()

    def class_count(self, context: Points) -> Float[Array, ""]:
        return jnp.zeros(())


class RelationToClasses(Relation):
    """The share of the variance that lies between the classes."""

    @property
    def size(self) -> int:
        return 1

    def __call__(
        self, entries: Float[Array, "n e"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, "e s"]:
        entries, labels = _standardise(entries, present), jnp.where(present[:, None], y, 0)
        counts = labels.sum(0)
        means = labels.T @ entries / jnp.maximum(counts, 1)[:, None]
        return (counts / jnp.maximum(counts.sum(), 1) @ jnp.square(means))[:, None]

    def relevance(
        self, x: Float[Array, "n one"], present: Bool[Array, " n"], y: Float[Array, "n k"]
    ) -> Float[Array, ""]:
        return self(x, present, y)[0, 0]

    def class_count(self, context: Points) -> Float[Array, ""]:
        return context.classes.sum().astype(context.y.dtype)


class ColumnSummary(eqx.Module):
    """What a context tells of each column: what is in it and how it goes with y, and whether there is anything."""

    about: Float[Array, "d s"]
    order: Int[Array, " d"]
    there: Bool[Array, " d"]


class ColumnEmbedding(Embedding):
    """MLP(e₁, e₂, …) with eⱼ = MLP(cell(xⱼ), sⱼ), the columns in the order of how much they tell of y.

    sⱼ sums up what the context has in column j and how that goes with y. So nothing depends on the order in which the
    columns are given, but for ties. NaN is a missing entry, and a column without entries is none.
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
        count = present.sum(0)
        share = count / jnp.maximum(context.mask.sum(), 1)
        class_count = jnp.full(count.shape, self.relation.class_count(context))
        sizes = jnp.stack([jnp.log1p(count), jnp.log1p(class_count), share], -1)

        def column(cells: Float[Array, "n c"], present: Bool[Array, " n"]) -> Float[Array, " s"]:
            mean = masked_mean(cells, present)
            deviation = jnp.sqrt(masked_mean(jnp.square(cells - mean), present) + 1e-6)
            relation = self.relation(cells, present, context.y)
            return jnp.concatenate([mean, deviation, relation.ravel()])

        cells = self._cells(context.x)
        about = self.about(jnp.concatenate([jax.vmap(column, (1, 1))(cells, present), sizes], -1))
        x = jnp.where(present, context.x, 0)[..., None]
        relevance = jax.vmap(lambda x, present: self.relation.relevance(x, present, context.y), (1, 1))(x, present)
        there = count > 0
        return ColumnSummary(about, jnp.argsort(jnp.where(there, -relevance, jnp.inf)), there)

    def __call__(self, x: Float[Array, "m dx"], seen: ColumnSummary) -> Float[Array, "m e"]:
        cells = self._cells(x)
        about = jnp.broadcast_to(seen.about, (x.shape[0], *seen.about.shape))
        entries = jnp.where(seen.there[:, None], self.entry(jnp.concatenate([cells, about], -1)), 0)
        return self.row(entries[:, seen.order].reshape(x.shape[0], entries.shape[1] * entries.shape[2]))

    def _cells(self, x: Float[Array, "m d"]) -> Float[Array, "m d c"]:
        missing = jnp.isnan(x)
        return self.cell(jnp.stack([jnp.where(missing, 0, x), missing.astype(x.dtype)], -1))


def _standardise(values: Float[Array, "n e"], present: Bool[Array, " n"]) -> Float[Array, "n e"]:
    """With mean 0 and deviation 1 over what is present."""
    values = values - masked_mean(values, present)
    return values * jax.lax.rsqrt(masked_mean(jnp.square(values), present) + 1e-4)
