"""Tables of any number of columns: a Gaussian process over their rows, and MetaFun that corrects its predictions."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Likelihood, Prediction, masked_mean
from ..model.metafun import FunctionalRepresentation, MetaFun
from ..model.nn import MLP
from ..model.table_process import BesideColumn, ConditionedTable, TableProcess
from ..model.task import Points, Task
from .columns import SIZES, Relation, cell_inputs, column_statistics


class ColumnMixing(eqx.Module):
    """s ← s + attention(s), then s ← s + MLP(s): columns learn which others there are, and which resemble them.

    The logit of a pair of columns is qⱼ·kⱼ'/√d + β ρ², ρ the correlation of their entries.

    Args:
        project: queries, keys and values of a summary.
        out: network from what was gathered, and the summary, to its change.
        correlation: β of each head.
        heads: number of heads.
    """

    project: MLP
    out: MLP
    correlation: Float[Array, " h"]
    heads: int = eqx.field(static=True)

    def __init__(self, about: int, heads: int, *, key: PRNGKeyArray):
        key_project, key_out = jax.random.split(key)
        self.project = MLP([about, 3 * about], "gelu", key=key_project)
        self.out = MLP([2 * about, 2 * about, about], "gelu", key=key_out)
        self.correlation, self.heads = jnp.zeros(heads), heads

    def __call__(
        self, columns: Float[Array, "d s"], squared: Float[Array, "d d"], nonempty: Bool[Array, " d"]
    ) -> Float[Array, "d s"]:
        """The summaries.

        Args:
            columns: their summaries so far.
            squared: ρ² of each pair.
            nonempty: False for columns without entries, which are not seen.
        """
        q, k, v = (
            jnp.moveaxis(part.reshape(len(columns), self.heads, part.shape[1] // self.heads), 1, 0)
            for part in jnp.split(self.project(columns), 3, axis=-1)
        )
        logits = q @ jnp.swapaxes(k, 1, 2) / jnp.sqrt(q.shape[-1]) + self.correlation[:, None, None] * squared
        # A table without any entry has nothing to attend to.
        weights = jnp.where(nonempty, jax.nn.softmax(jnp.where(nonempty, logits, -1e9), axis=-1), 0)
        gathered = jnp.moveaxis(weights @ v, 0, 1).reshape(columns.shape)
        return columns + self.out(jnp.concatenate([columns, gathered], -1))


class RowVectors(eqx.Module):
    """MLP(Σⱼ gⱼ ⊙ φ(cᵢⱼ, sⱼ) / ‖g‖): the gates g = g(sⱼ) say how relevant a column is, whatever their number.

    Args:
        entry: φ, the units of a network that sees a cell and the summary of its column.
        gate: network from a summary to its gates.
        row: network to the vector of a row.
    """

    entry: BesideColumn
    gate: MLP
    row: MLP

    def __init__(self, cells: int, about: int, entries: int, size: int, *, key: PRNGKeyArray):
        keys = jax.random.split(key, 3)
        self.entry = BesideColumn(cells, about, entries, entries, key=keys[0])
        self.gate = MLP([about, about, entries], "gelu", key=keys[1])
        self.row = MLP([entries, size, size], "gelu", key=keys[2])

    def __call__(
        self, cells: Float[Array, "n d c"], columns: Float[Array, "d s"], nonempty: Bool[Array, " d"]
    ) -> Float[Array, "n r"]:
        gates = jnp.where(nonempty[:, None], 0.5 + self.gate(columns), 0)
        gates = gates * jax.lax.rsqrt(jnp.square(gates).sum(0) + 0.1)
        return self.row(self.entry.out((gates * self.entry.hidden(cells, columns)).sum(1)))


class EncodedTable(eqx.Module):
    """The context of a table, as the process and as MetaFun see it.

    Args:
        warp: the map of y to the scale of the process.
        process: the process given the context.
        nonempty: False for columns without entries.
        correction: r(·) of MetaFun.
    """

    warp: Any
    process: ConditionedTable
    nonempty: Bool[Array, " d"]
    correction: FunctionalRepresentation


class TableMetaFun(Learner):
    """P(y|x) of a Gaussian process, corrected by MetaFun: r⁽⁰⁾(x) is what the process predicts at x.

    At the context, r⁽⁰⁾ is the prediction from the other rows. The correction starts at 0, so that the model starts as
    the process. The process is trained by its own loss: to MetaFun its predictions are constants.

    Args:
        cell: network from an entry to its features.
        relation: statistics of how a column depends on y.
        about: network from the statistics of a column to its summary sⱼ.
        mixing: what columns learn of each other.
        process: the Gaussian process.
        rows: vectors of rows, the inputs of MetaFun.
        start: network from a prediction of the process to its part of r⁽⁰⁾.
        metafun: the correction.
        gain: factor of the correction.
        likelihood: the loss.
    """

    cell: MLP
    relation: Relation
    about: MLP
    mixing: tuple[ColumnMixing, ...]
    process: TableProcess
    rows: RowVectors
    start: MLP
    metafun: MetaFun
    gain: Float[Array, ""]
    likelihood: Likelihood

    @staticmethod
    def statistics(cells: int, relation: Relation) -> int:
        """The number of statistics of a column."""
        return cells * (2 + relation.size) + SIZES + 1

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> EncodedTable:
        warp = self.process.response.warp(context)
        context = self.process.response.latent(context, warp)
        present = ~jnp.isnan(context.x) & context.mask[:, None]
        nonempty, cells = present.any(0), self.cell(cell_inputs(context.x))
        statistics = column_statistics(cells, present, context, self.relation)
        columns = self.about(jnp.concatenate([statistics, _ties(context.x, present)[:, None]], -1))
        squared = _squared_correlations(context.x, present)
        for mixing in self.mixing:
            columns = mixing(columns, squared, nonempty)
        process = self.process.condition(context, cells, columns, nonempty)
        start = self._start(self.process.leave_one_out(process))
        rows = Points(self.rows(cells, process.columns, nonempty), context.y, context.mask)
        return EncodedTable(warp, process, nonempty, self.metafun.encode(rows, key, start))

    def predict_both(
        self, representation: EncodedTable, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> tuple[Prediction, Prediction]:
        """The prediction of the process, and the corrected one, on the scale of the process.

        Args:
            representation: what `encode` returned.
            x: rows, NaN where entries are missing.
            key: source of training-time noise.
        """
        process, cells = representation.process, self.cell(cell_inputs(x))
        base = self.process.predict(process, x, cells)
        rows = self.rows(cells, process.columns, representation.nonempty)
        r = representation.correction(rows, key, self._start(base))
        raw = self.gain * self.metafun.outputs(r, rows, None, key)
        return base, self.process.response.corrected(jax.lax.stop_gradient(base), raw)

    def predict(self, representation: EncodedTable, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Any:
        corrected = self.predict_both(representation, x, key)[1]
        return self.process.response.observed(corrected, representation.warp)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The mean loss of the process and that of the corrected prediction, on the scale of the process."""
        encoded = self.encode(task.context, key)
        target = self.process.response.latent(task.target, encoded.warp)
        both = self.predict_both(encoded, target.x, key)
        losses = [masked_mean(self.likelihood.loss(p, target.y), target.mask) for p in both]
        return losses[0] + losses[1]

    def peak_floats_per_task(self, task: Task) -> int:
        cells = (task.context.x.size + task.target.x.size) * self.rows.entry.out.weights[0].shape[-2]
        n = len(task.context.mask)
        return 4 * cells + 40 * n * (n + len(task.target.mask))

    def _start(self, prediction: Prediction) -> Float[Array, "m *k dr"]:
        return self.start(jax.lax.stop_gradient(self.process.response.signals(prediction)))


def _ties(x: Float[Array, "n d"], present: Bool[Array, "n d"]) -> Float[Array, " d"]:
    """The share of a column's entries that equal another one: 1 in a column of categories."""
    order = jnp.sort(jnp.where(present, x, jnp.inf), axis=0)
    equal = (order[1:] == order[:-1]) & jnp.isfinite(order[1:])
    return equal.sum(0) / jnp.maximum(present.sum(0) - 1, 1)


def _squared_correlations(x: Float[Array, "n d"], present: Bool[Array, "n d"]) -> Float[Array, "d d"]:
    """ρ² of each pair of columns; missing entries count as the mean."""
    x = jnp.where(present, x, 0)
    count = jnp.maximum(present.sum(0), 1)
    x = jnp.where(present, x - x.sum(0) / count, 0)
    x = x * jax.lax.rsqrt(jnp.square(x).sum(0) + 1e-6)
    return jnp.square(x.T @ x)
