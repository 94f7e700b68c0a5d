"""A Gaussian process over all columns of a table that is not trained: an average over covariances."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .likelihoods import Categorical, Normal, masked_mean
from .responses import Fit, Numbers, Response, Settings, Softmax
from .table_kernel import TERMS, Cells, Metric, present_codes
from .task import Points

# What a column counts for beside its relation to y; the weights of all columns have the sum 1.
FLOOR = 0.1
# The linear, smooth, mixed and categorical term of each covariance, after the variance of the constant.
CONSTANT = 0.2
COVARIANCES = ((1.0, 0.05, 0.0, 0.0), (0.2, 1.0, 0.0, 0.0), (0.2, 0.0, 0.7, 0.7))
# Factor of the covariance of logits; variances of the noise of numbers, whose variance is 1.
LOGIT_VARIANCE, NOISES = 16.0, (0.05, 0.2, 0.8)
# The log-likelihood of the rows left out counts so much: rows of one table resemble each other.
TEMPERATURE = 0.3
# The share of the classes' frequencies in their offsets, and the rows that the scale of y counts as, as `Settings`.
FREQUENCIES, PRIOR_ROWS = 2.0, 1.4
# A column with more different entries, or with more than one for two rows, has no categories.
MOST_CATEGORIES = 12
# Entries are equal if they agree to so many decimals: an exported program scales them in single precision.
DECIMALS = 3
MIN_STD = 0.02


class AveragedTable(eqx.Module):
    """The processes of a table given its context, along a leading axis of what differs between them.

    Args:
        scales: weights of the columns, as `Metric.scales`.
        amplitudes: variances of the constant, linear, smooth, mixed and categorical term.
        settings: of the response.
        weights: shares of the processes in the prediction.
        fit: f given the context.
        cells: the rows of the context.
        context: the labels, and the rows that exist.
        centre: mean of the outputs; 0 for classes.
        spread: their deviation; 1 for classes.
    """

    scales: Float[Array, "d scales"]
    amplitudes: Float[Array, "g five"]
    settings: Settings
    weights: Float[Array, " g"]
    fit: Fit
    cells: Cells
    context: Points
    centre: Float[Array, " k"]
    spread: Float[Array, " k"]


class AveragedProcess(eqx.Module):
    """P(y|x) = Σ_g w_g P_g(y|x), f ∼ GP(0, k_g), w_g ∝ (Πᵢ P_g(yᵢ|xᵢ, the other rows))^`TEMPERATURE`.

    The covariances differ in their terms, and where y are numbers in the noise. A column counts more if it is related
    to y.

    Args:
        classifies: whether y is one-hot.
    """

    classifies: bool = eqx.field(static=True)

    @property
    def response(self) -> Response:
        """The distribution of y given f."""
        return Softmax() if self.classifies else Numbers(MIN_STD)

    def condition(self, context: Points) -> AveragedTable:
        """The processes given a context.

        Args:
            context: standardised rows, NaN where entries are missing, and labels.
        """
        centre, spread = self._standard(context)
        y = jnp.where(context.mask[:, None], (context.y - centre) / spread, 0)
        context = Points(context.x, y, context.mask)
        with jax.default_matmul_precision("highest"):
            amplitudes, settings = self._grid()
            scales, cells = column_scales(context), _cells(context.x)
            inside = context.mask[:, None] & context.mask
            covariances = jnp.where(inside, _covariances(scales, amplitudes, cells, cells), 0)
            fit = jax.vmap(self.response.fit, (0, None, 0))(covariances, context, settings)
            left_out = jax.vmap(self._of_left_out, (0, None, 0))(fit, context, settings)
            weights = jax.nn.softmax(TEMPERATURE * left_out)
        return AveragedTable(scales, amplitudes, settings, weights, fit, cells, context, centre, spread)

    def predict(self, given: AveragedTable, x: Float[Array, "m d"]) -> Categorical | Normal:
        """P(y|x), with the mean and the deviation of the mixture where y are numbers.

        Args:
            given: what `condition` returned.
            x: standardised rows.
        """
        with jax.default_matmul_precision("highest"):
            there = _cells(x)
            across = jnp.where(given.context.mask, _covariances(given.scales, given.amplitudes, there, given.cells), 0)
            variances = _variances(given.scales, given.amplitudes, there)
            predict_each = jax.vmap(self._predict_one, (0, 0, 0, None, 0))
            each = predict_each(given.fit, across, variances, given.context, given.settings)
            if self.classifies:
                logs = jax.vmap(lambda prediction: prediction.log_probabilities)(each)
                mixed = jax.nn.logsumexp(logs, axis=0, b=given.weights[:, None, None])
                return Categorical(mixed, given.context.classes)
            mean = jnp.einsum("g,gmk->mk", given.weights, each.mean)
            squares = jnp.square(each.std) + jnp.square(each.mean - mean)
            std = jnp.sqrt(jnp.einsum("g,gmk->mk", given.weights, squares))
            return Normal(given.centre + given.spread * mean, given.spread * std)

    def _predict_one(self, fit: Fit, across: Array, variance: Array, context: Points, settings: Settings) -> Any:
        return self.response.predict(fit, *fit(across, variance), context, settings)

    def _of_left_out(self, fit: Fit, context: Points, settings: Settings) -> Float[Array, ""]:
        """The log-likelihood of the rows of the context, each given the others."""
        prediction = self.response.predict(fit, *fit.leave_one_out(), context, settings)
        return jnp.where(context.mask, prediction.log_prob(context.y), 0).sum()

    def _standard(self, context: Points) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
        """What is subtracted from y, and what it is divided by then."""
        if self.classifies:
            return jnp.zeros(context.y.shape[1]), jnp.ones(context.y.shape[1])
        centre = masked_mean(context.y, context.mask)
        return centre, jnp.sqrt(masked_mean(jnp.square(context.y - centre), context.mask) + MIN_STD**2)

    def _grid(self) -> tuple[Float[Array, "g five"], Settings]:
        """The variances of the terms, and the settings, of each process."""
        factor, noises = (LOGIT_VARIANCE, [FREQUENCIES]) if self.classifies else (1.0, np.log(NOISES))
        pairs = [*itertools.product(COVARIANCES, noises)]
        amplitudes = jnp.array([(CONSTANT, *(factor * a for a in terms)) for terms, _ in pairs])
        zero = jnp.zeros(len(pairs))
        return amplitudes, jax.vmap(Settings)(jnp.array([noise for _, noise in pairs]), zero, zero + PRIOR_ROWS)


def _cells(x: Float[Array, "n d"]) -> Cells:
    codes, present = present_codes(x)
    return Cells(jnp.where(present, codes, 0), codes.round(DECIMALS), jnp.zeros((*x.shape, 0), x.dtype))


def _covariances(
    scales: Float[Array, "d scales"], amplitudes: Float[Array, "g five"], a: Cells, b: Cells
) -> Float[Array, "g m n"]:
    """k_g(x, x')."""
    linear, _, _, smooth, mixed, categorical = Metric(scales, jnp.zeros(TERMS)).terms(a, b)
    terms = jnp.stack([linear, smooth, mixed, categorical])
    return amplitudes[:, :1, None] + jnp.tensordot(amplitudes[:, 1:], terms, 1)


def _variances(scales: Float[Array, "d scales"], amplitudes: Float[Array, "g five"], a: Cells) -> Float[Array, "g m"]:
    """k_g(x, x)."""
    linear = jnp.square(a.values) @ scales[:, 0]
    ones = jnp.ones_like(linear)
    terms = jnp.stack([linear, ones, ones, scales[:, 6].sum() * ones])
    return amplitudes[:, :1] + amplitudes[:, 1:] @ terms


def column_scales(context: Points) -> Float[Array, "d scales"]:
    """The weights of the columns, as `Metric.scales`.

    A column counts by the share of the variance that is common to it and y; as categories, if it has few entries.

    Args:
        context: standardised rows, NaN where entries are missing, and labels.
    """
    cells, rows = _cells(context.x), context.mask.sum()
    of_categories, levels = jax.lax.map(lambda column: _share_of_categories(column, context), cells.codes.T)
    exists = (~jnp.isnan(context.x) & context.mask[:, None]).any(0)
    is_category = exists & (levels <= jnp.clip(rows // 2, 2, MOST_CATEGORIES))
    numbers = _shares(_share_of_numbers(cells.values, context) + FLOOR, exists)
    categories = _shares(of_categories + FLOOR, is_category)
    # Of two rows that differ in all columns, those of categories count as much as their share of the columns.
    unequal = 4 * is_category.sum() / jnp.maximum(exists.sum(), 1) * categories
    none = jnp.zeros_like(numbers)
    return jnp.stack([numbers, none, numbers, none, 2 * numbers, none, categories, unequal], -1)


def _shares(weights: Float[Array, " d"], where: Bool[Array, " d"]) -> Float[Array, " d"]:
    weights = jnp.where(where, weights, 0)
    return weights / jnp.maximum(weights.sum(), 1e-9)


def _share_of_numbers(x: Float[Array, "n d"], context: Points) -> Float[Array, " d"]:
    """The share of the variance of each column that the classes explain; its squared correlation with a number."""
    mask = context.mask[:, None]
    x = jnp.where(mask, x - masked_mean(x, context.mask), 0)
    total, y, rows = jnp.square(x).sum(0), jnp.where(mask, context.y, 0), context.mask.sum()
    if context.y.shape[1] == 1:
        y = jnp.where(mask, y - y.sum(0) / jnp.maximum(rows, 1), 0)
        explained = jnp.square(x.T @ y)[:, 0] / jnp.maximum(jnp.square(y).sum(), 1e-9)
        return _adjusted(explained / jnp.maximum(total, 1e-9), rows, jnp.ones(()))
    explained = (jnp.square(y.T @ x) / jnp.maximum(y.sum(0), 1)[:, None]).sum(0)
    return _adjusted(explained / jnp.maximum(total, 1e-9), rows, context.classes.sum() - 1)


def _share_of_categories(codes: Float[Array, " n"], context: Points) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The share of the variance of y that the categories of a column explain, and their number."""
    mask = context.mask
    equal = ((codes[:, None] == codes) & mask[:, None] & mask).astype(context.y.dtype)
    y = jnp.where(mask[:, None], context.y - masked_mean(context.y, mask), 0)
    each = 1 / jnp.maximum(equal.sum(1), 1)
    explained = jnp.square(each[:, None] * (equal @ y)).sum()
    levels = jnp.where(mask, each, 0).sum()
    share = explained / jnp.maximum(jnp.square(y).sum(), 1e-9)
    return _adjusted(share, mask.sum(), levels - 1), jnp.round(levels)


def _adjusted(share: Float[Array, "*d"], rows: Array, parameters: Array) -> Float[Array, "*d"]:
    """The share less what chance explains."""
    return (1 - (1 - share) * (rows - 1) / jnp.maximum(rows - parameters - 1, 1)).clip(0, 1)
