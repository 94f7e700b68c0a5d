"""How a user's rows are scaled for a model, and its predictions back to the user's units."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from jaxtyping import Array, Float

# NumPy in double precision for a user's data, JAX inside a compiled program.
Rows = TypeVar("Rows", np.ndarray, Array)

# The interquartile range of a normal distribution, in standard deviations.
INTERQUARTILE_RANGE = 1.349
# `compress_tails` is nearly linear up to here, in units of the scale, and logarithmic beyond.
LINEAR_RANGE = 3.0
# Outputs are clipped here, in units of the scale.
OUTPUT_CLIP = 15.0
# Principal components with a smaller share of the variance of the first are dropped.
MIN_VARIANCE_RATIO = 1e-4


@dataclass(frozen=True)
class MeanStdScaling:
    """(columns − mean) / deviation.

    Args:
        mean: one number a column.
        deviation: one positive number a column.
    """

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    @classmethod
    def of(cls, rows: np.ndarray) -> Self:
        """The mean and standard deviation of each column; constant columns are only centred."""
        rows = np.asarray(rows, np.float64)
        deviation = rows.std(0)
        deviation[deviation <= 1e-12 * np.abs(rows).max(0)] = 1.0
        return cls(tuple(rows.mean(0).tolist()), tuple(deviation.tolist()))

    def __call__(self, rows: Rows) -> Rows:
        return (rows - np.array(self.mean)) / np.array(self.deviation)

    def __getitem__(self, columns: slice) -> "MeanStdScaling":
        return MeanStdScaling(self.mean[columns], self.deviation[columns])

    def inverse(self, rows: Rows) -> Rows:
        return rows * np.array(self.deviation) + np.array(self.mean)


@dataclass(frozen=True)
class RobustScaling:
    """(columns − median) / (interquartile range / 1.349), measured on a context. NaN is missing, and stays NaN.

    Args:
        middle: median of each column.
        deviation: scale of each column.
    """

    middle: Any
    deviation: Any

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """The standard deviation replaces an interquartile range of 0. A constant column becomes missing."""
        middle, width = cls._measure(rows)
        return cls(middle, rows.__array_namespace__().where(width > 0, width, np.nan))

    @staticmethod
    def _measure(rows: Rows) -> tuple[Rows, Rows]:
        """The median and the width of each column; the width of a constant column is 0."""
        xp = rows.__array_namespace__()
        # NumPy warns of columns that are missing throughout.
        known = xp.where((~xp.isnan(rows)).any(0), rows, 0.0)
        # NumPy's nanquantile loops over columns in Python.
        is_complete = xp is np and not np.isnan(known).any()
        quantile = xp.quantile if is_complete else xp.nanquantile
        low, middle, high = quantile(known, np.array([0.25, 0.5, 0.75]), axis=0)
        with np.errstate(over="ignore"):
            quartiles, deviation = (high - low) / INTERQUARTILE_RANGE, xp.nanstd(known, axis=0)
        # Differences within rounding count as none.
        least = 8 * np.finfo(known.dtype).eps * abs(middle)
        width = xp.where(quartiles > least, quartiles, deviation)
        return middle, xp.where(width > least, width, 0.0)

    def __call__(self, rows: Rows) -> Rows:
        return (rows - self.middle) / self.deviation

    def inverse(self, rows: Rows) -> Rows:
        return rows * self.deviation + self.middle


class ClippedScaling(RobustScaling):
    """Robust scaling of outputs, clipped at ± `OUTPUT_CLIP`: a few outliers may be errors in the data.

    The scale is wide enough that nine rows of ten stay unclipped. The scale of constant outputs
    is their absolute value, or 1.
    """

    @classmethod
    def of(cls, rows: Rows) -> Self:
        middle, width = cls._measure(rows)
        xp = rows.__array_namespace__()
        distances = xp.where(xp.isnan(rows).all(0), 0.0, abs(rows - middle))
        reach = xp.nanquantile(distances, 0.9, axis=0, method="lower")
        size = xp.where(abs(middle) > 0, abs(middle), 1.0)
        return cls(middle, xp.where(width > 0, xp.maximum(width, 2 * reach / OUTPUT_CLIP), size))

    def __call__(self, rows: Rows) -> Rows:
        return rows.__array_namespace__().clip(super().__call__(rows), -OUTPUT_CLIP, OUTPUT_CLIP)


@dataclass(frozen=True)
class TaskScaling:
    """The scaling of one task.

    Args:
        scale_inputs: x in the user's units to x in the model's units.
        outputs: y in the user's units to y in the model's units; its `deviation` is one model unit in the user's units.
    """

    scale_inputs: Callable[[Any], Any]
    outputs: MeanStdScaling | RobustScaling


UNSCALED = TaskScaling(lambda x: x, MeanStdScaling((0.0,), (1.0,)))


def compress_tails(rows: Rows) -> Rows:
    """3 arsinh(x/3): no outlier dominates the other numbers."""
    return LINEAR_RANGE * rows.__array_namespace__().arcsinh(rows / LINEAR_RANGE)


def table_scaling(X: Float[np.ndarray, "n d"], Y: Float[np.ndarray, "n k"] | None, columns: int) -> TaskScaling:
    """A table of any width in `columns` columns, scaled by its context.

    A narrow table is padded with missing columns. A wide one is replaced by its principal components, all divided by
    the standard deviation of the first.

    Args:
        X: inputs of the context, NaN where missing.
        Y: outputs of the context; None in classification.
        columns: number of columns the model takes.
    """
    standard = RobustScaling.of(X)

    def standardised(rows: Any) -> Any:
        return compress_tails(standard(rows))

    projection = _principal(standardised(X), columns) if X.shape[1] > columns else None

    def scale_inputs(rows: Any) -> Any:
        xp, rows = rows.__array_namespace__(), standardised(rows)
        if projection is not None:
            rows = xp.where(xp.isnan(rows), 0.0, rows) @ projection
        return xp.pad(rows, ((0, 0), (0, columns - rows.shape[1])), constant_values=np.nan)

    return TaskScaling(scale_inputs, ClippedScaling(0.0, 1.0) if Y is None else ClippedScaling.of(Y))


def beside(first: TaskScaling, second: TaskScaling) -> TaskScaling:
    """The inputs of both, side by side, and the outputs of the first.

    Args:
        first, second: scalings of the same task.
    """

    def scale_inputs(rows: Any) -> Any:
        return rows.__array_namespace__().concat([first.scale_inputs(rows), second.scale_inputs(rows)], axis=1)

    return TaskScaling(scale_inputs, first.outputs)


def _principal(rows: Float[np.ndarray, "n d"], columns: int) -> Float[np.ndarray, "d c"]:
    """The projection onto the principal components, scaled so that the first has a standard deviation of 1."""
    rows = np.where(np.isnan(rows), 0.0, rows)
    _, sizes, directions = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    # As in training, a component without variance is missing.
    kept = min(columns, int((np.square(sizes) > MIN_VARIANCE_RATIO * np.square(sizes[0])).sum()))
    # The third moment fixes the sign, whatever the order of rows and columns.
    directions = directions[:kept]
    skewness = (((rows - rows.mean(0)) @ directions.T) ** 3).sum(0)
    directions = np.where(skewness < 0, -1.0, 1.0)[:, None] * directions
    return directions.T / (sizes[0] / np.sqrt(len(rows)))
