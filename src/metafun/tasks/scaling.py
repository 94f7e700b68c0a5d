"""How rows from outside become what a model is given, and how its answers become what was asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

# Of the caller's kind: of NumPy in double precision for data from outside, or of JAX where a program is compiled.
Rows = TypeVar("Rows", np.ndarray, Array)

# The distance of the quartiles of a normal distribution, in standard deviations.
QUARTILES = 1.349
# In units of the scale: up to here numbers stay what they are, more or less; beyond, only their logarithm counts.
LINEAR_RANGE = 3.0
# Outputs stop to count here.
OUTPUT_CLIP = 15.0
# A principal component with less of the variance of the first is none.
MIN_VARIANCE_RATIO = 1e-4


class OutputScaling(Protocol):
    """Outputs as a model has them, and back."""

    @property
    def deviation(self) -> Any: ...

    def __call__(self, rows: Rows) -> Rows: ...

    def back(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True)
class TaskScaling:
    """What is done to inputs and outputs of one task."""

    inputs: Callable[[Any], Any]
    outputs: OutputScaling


@dataclass(frozen=True)
class RobustScaling:
    """Columns by the robust statistics of a context. NaN is missing, and stays so."""

    middle: Any
    deviation: Any

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Median and distance of the quartiles, or where these agree the standard deviation.

        A column that does not differ tells nothing: it is missing.
        """
        middle, width = cls._measure(rows)
        return cls(middle, _library(rows).where(width > 0, width, np.nan))

    @staticmethod
    def _measure(rows: Rows) -> tuple[Rows, Rows]:
        """The middle, and the width, 0 where nothing differs."""
        xp = _library(rows)
        # A column that nothing is known of would make NumPy warn.
        known = xp.where((~xp.isnan(rows)).any(0), rows, 0.0)
        # NumPy takes one column after the other where entries may be missing, which is slow.
        is_whole = xp is np and not np.isnan(known).any()
        low, middle, high = (xp.quantile if is_whole else xp.nanquantile)(known, np.array([0.25, 0.5, 0.75]), axis=0)
        with np.errstate(over="ignore"):
            quartiles, deviation = (high - low) / QUARTILES, xp.nanstd(known, axis=0)
        # What differs by rounding alone does not differ.
        least = 8 * np.finfo(known.dtype).eps * abs(middle)
        width = xp.where(quartiles > least, quartiles, deviation)
        return middle, xp.where(width > least, width, 0.0)

    def __call__(self, rows: Rows) -> Rows:
        return (rows - self.middle) / self.deviation

    def back(self, rows: Rows) -> Rows:
        return rows * self.deviation + self.middle


class ClippedScaling(RobustScaling):
    """The same for outputs: nothing lies farther out than `OUTPUT_CLIP`, and what does not differ may be wrong by its size.

    Nine rows of ten count in full, however far out they are; a few that are farther may be mistakes.
    """

    @classmethod
    def of(cls, rows: Rows) -> Self:
        middle, width = cls._measure(rows)
        xp = _library(rows)
        distances = xp.where(xp.isnan(rows).all(0), 0.0, abs(rows - middle))
        reach = xp.nanquantile(distances, 0.9, axis=0, method="lower")
        size = xp.where(abs(middle) > 0, abs(middle), 1.0)
        return cls(middle, xp.where(width > 0, xp.maximum(width, 2 * reach / OUTPUT_CLIP), size))

    def __call__(self, rows: Rows) -> Rows:
        return _library(rows).clip(super().__call__(rows), -OUTPUT_CLIP, OUTPUT_CLIP)


def compress_tails(rows: Rows) -> Rows:
    """Numbers far out drawn in, so that one of them cannot drown the others: 3 arsinh(x/3)."""
    return LINEAR_RANGE * _library(rows).arcsinh(rows / LINEAR_RANGE)


def table_scaling(X: Float[np.ndarray, "n d"], Y: Float[np.ndarray, "n k"] | None, columns: int) -> TaskScaling:
    """A table as models of any table are given it: standardised by its context, in `columns` columns.

    Columns that are left over are missing. Where X has more, its principal components take their place, all of them
    scaled by the width of the first.
    """
    standard = RobustScaling.of(X)

    def even(rows: Any) -> Any:
        return compress_tails(standard(rows))

    turn = _principal(even(X), columns) if X.shape[1] > columns else None

    def inputs(rows: Any) -> Any:
        xp, rows = _library(rows), even(rows)
        if turn is not None:
            rows = xp.where(xp.isnan(rows), 0.0, rows) @ turn
        return xp.pad(rows, ((0, 0), (0, columns - rows.shape[1])), constant_values=np.nan)

    return TaskScaling(inputs, ClippedScaling(0.0, 1.0) if Y is None else ClippedScaling.of(Y))


def _principal(rows: Float[np.ndarray, "n d"], columns: int) -> Float[np.ndarray, "d c"]:
    """Onto the directions in which the rows differ most, as many as there are, the first with deviation 1."""
    rows = np.where(np.isnan(rows), 0.0, rows)
    _, sizes, directions = np.linalg.svd(rows - rows.mean(0), full_matrices=False)
    # In training it is the same: a component without variance is missing.
    kept = min(columns, int((np.square(sizes) > MIN_VARIANCE_RATIO * np.square(sizes[0])).sum()))
    # The sign of a direction means nothing; one is chosen by the rows, whatever order they and the columns are in.
    directions = directions[:kept]
    leaning = (((rows - rows.mean(0)) @ directions.T) ** 3).sum(0)
    directions = np.where(leaning < 0, -1.0, 1.0)[:, None] * directions
    return directions.T / (sizes[0] / np.sqrt(len(rows)))


def _library(rows: Any) -> Any:
    return jnp if isinstance(rows, jax.Array) else np
