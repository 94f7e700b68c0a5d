"""A Gaussian process over the rows of any table, with a relevance of each column that is inferred from the context."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .likelihoods import Prediction, masked_mean
from .nn import MLP, with_random_biases
from .responses import MEASURES, Fit, Response, Settings
from .table_kernel import SCALES, STATISTICS, TERMS, Cells, Metric, evidence, present_codes
from .task import Points

# Where the logarithms start: weights of a column as in `Metric.scales`, variances as in `Metric.amplitudes`, and the
# `Settings`.
LOG_SCALES = (0.0, -1.0, -0.5, -2.0, 0.5, -1.0, 0.0, 0.0)
LOG_AMPLITUDES = (-1.0, 0.0, -1.5, -3.0, -0.5, -1.0, -1.5)
# Variances are larger where f is a logit.
LOG_LOGIT_VARIANCE = 1.5
SETTINGS = (-1.5, 0.0, 2.0)
# Logarithms stay within this distance of where they start.
MAX_LOG = 6.0


class BesideColumn(eqx.Module):
    """MLP(cᵢⱼ, sⱼ) of each cell and the summary of its column, whose first layer is a sum of two."""

    of_cell: MLP
    of_column: MLP
    out: MLP

    def __init__(self, cells: int, about: int, width: int, size: int, *, key: Array):
        key_cell, key_column, key_out = jax.random.split(key, 3)
        self.of_cell = with_random_biases(MLP([cells, width], "gelu", key=key_cell), key_cell)
        self.of_column = MLP([about, width], "gelu", bias=False, key=key_column)
        self.out = MLP([width, size], "gelu", key=key_out)

    def hidden(self, cells: Float[Array, "n d c"], columns: Float[Array, "d s"]) -> Float[Array, "n d w"]:
        """The units before the last layer."""
        return jax.nn.gelu(self.of_cell(cells) + self.of_column(columns))

    def __call__(self, cells: Float[Array, "n d c"], columns: Float[Array, "d s"]) -> Float[Array, "n d o"]:
        return self.out(self.hidden(cells, columns))


class ConditionedTable(eqx.Module):
    """The process of a table given its context.

    Args:
        metric: the covariance.
        settings: of the response.
        columns: summaries of the columns as the process leaves them.
        cells: the rows of the context.
        context: its labels.
        fit: f given them.
        covariance: of the context, 0 where a row is padding.
    """

    metric: Metric
    settings: Settings
    columns: Float[Array, "d s"]
    cells: Cells
    context: Points
    fit: Fit
    covariance: Float[Array, "n n"]


class TableProcess(eqx.Module):
    """f ∼ GP(0, k) for each task, k with relevances of the columns that follow from summaries of these.

    The summaries are refined: in each round the process is fitted, and a network sees for each column how the
    evidence changes with its relevances. That is gradient ascent whose steps are learned. All parameters are shared by
    the columns, so that any number of columns in any order is taken.

    Args:
        response: the distribution of y given f.
        features: learned features of a cell.
        scales: network from a column's summary to the logarithms of its weights.
        overall: network from all summaries to the logarithms of variances, and to the settings.
        refine: network from a summary and the evidence for its column to the change of the summary, for each round.
    """

    response: Response
    features: BesideColumn
    scales: MLP
    overall: MLP
    refine: tuple[MLP, ...]
    log_scales: Float[Array, " scales"]
    log_overall: Float[Array, " overall"]

    def __init__(
        self, response: Response, *, cells: int, about: int, features: int, rounds: int, classifies: bool, key: Array
    ):
        keys = jax.random.split(key, 3 + rounds)
        self.response = response
        self.features = BesideColumn(cells, about, 2 * about, features, key=keys[0])
        self.scales = _quiet(MLP([about, 2 * about, SCALES], "gelu", key=keys[1]))
        pooled = 2 * about + MEASURES + 2
        self.overall = _quiet(MLP([pooled, 2 * about, TERMS + len(SETTINGS)], "gelu", key=keys[2]))
        sizes = [about + STATISTICS + MEASURES, 2 * about, about]
        self.refine = tuple(_quiet(MLP(sizes, "gelu", key=k)) for k in keys[3:])
        self.log_scales = jnp.array(LOG_SCALES)
        amplitudes = jnp.array(LOG_AMPLITUDES) + LOG_LOGIT_VARIANCE * classifies
        self.log_overall = jnp.concatenate([amplitudes, jnp.array(SETTINGS)])

    def condition(
        self, context: Points, cells: Float[Array, "n d c"], columns: Float[Array, "d s"], nonempty: Bool[Array, " d"]
    ) -> ConditionedTable:
        """The process given a context.

        Args:
            context: rows with NaN where entries are missing, and labels.
            cells: features of each entry.
            columns: summaries of the columns.
            nonempty: False for columns without entries.
        """
        measures = jnp.zeros(MEASURES)
        with jax.default_matmul_precision("highest"):
            for refine in self.refine:
                given = self._fit(context, cells, columns, nonempty, measures)
                measures = self.response.measures(self.leave_one_out(given), context)
                found = evidence(given.metric, given.cells, given.fit.coefficients, self._precision(given))
                everywhere = jnp.broadcast_to(measures, (len(columns), MEASURES))
                columns = columns + refine(jnp.concatenate([columns, found, everywhere], -1))
            return self._fit(context, cells, columns, nonempty, measures)

    def predict(self, given: ConditionedTable, x: Float[Array, "m d"], cells: Float[Array, "m d c"]) -> Prediction:
        """P(y|x) at rows outside the context.

        Args:
            given: the process of the table.
            x: rows with NaN where entries are missing.
            cells: features of each entry.
        """
        with jax.default_matmul_precision("highest"):
            there = self._cells(x, cells, given.columns)
            across = jnp.where(given.context.mask, given.metric(there, given.cells), 0)
            f, variance = given.fit(across, given.metric.variance(there))
            return self.response.predict(given.fit, f, variance, given.context, given.settings)

    def leave_one_out(self, given: ConditionedTable) -> Prediction:
        """P(yᵢ|xᵢ) at each row of the context, given the others."""
        f, variance = given.fit.leave_one_out()
        return self.response.predict(given.fit, f, variance, given.context, given.settings)

    def _fit(
        self,
        context: Points,
        cells: Float[Array, "n d c"],
        columns: Float[Array, "d s"],
        nonempty: Bool[Array, " d"],
        measures: Float[Array, " measures"],
    ) -> ConditionedTable:
        metric, settings = self._metric(columns, nonempty, context.mask.sum(), measures)
        own = self._cells(context.x, cells, columns)
        mask = context.mask
        covariance = jnp.where(mask[:, None] & mask, metric(own, own), 0)
        fit = self.response.fit(covariance, context, settings)
        return ConditionedTable(metric, settings, columns, own, context, fit, covariance)

    def _metric(
        self,
        columns: Float[Array, "d s"],
        nonempty: Bool[Array, " d"],
        rows: Array,
        measures: Float[Array, " measures"],
    ) -> tuple[Metric, Settings]:
        count = jnp.maximum(nonempty.sum(), 1)
        most = jnp.where(nonempty[:, None], columns, -jnp.inf).max(0, initial=-10.0)
        sizes = jnp.log1p(jnp.stack([rows, count]).astype(columns.dtype))
        pooled = jnp.concatenate([masked_mean(columns, nonempty), most, measures, sizes])
        overall = self.log_overall + _bounded(self.overall(pooled))
        log_scales = self.log_scales + _bounded(self.scales(columns))
        # Where all columns are equally relevant, covariances do not depend on their number.
        scales = jnp.where(nonempty[:, None], jnp.exp(log_scales) / count, 0)
        return Metric(scales, jnp.exp(overall[:TERMS])), Settings(*overall[TERMS:])

    def _cells(self, x: Float[Array, "n d"], cells: Float[Array, "n d c"], columns: Float[Array, "d s"]) -> Cells:
        codes, present = present_codes(x)
        return Cells(jnp.where(present, codes, 0), codes, jnp.tanh(self.features(cells, columns)))

    def _precision(self, given: ConditionedTable) -> Float[Array, "n n"]:
        mask = given.context.mask
        return jnp.where(mask[:, None] & mask, given.fit.precision, 0)


def _bounded(logs: Float[Array, "*s"]) -> Float[Array, "*s"]:
    return MAX_LOG * jnp.tanh(logs / MAX_LOG)


def _quiet(mlp: MLP) -> MLP:
    """The network with small outputs, so that what it changes starts near its initial value."""
    return eqx.tree_at(lambda net: net.weights[-1], mlp, 0.1 * mlp.weights[-1])
