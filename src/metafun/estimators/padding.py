"""Rows of any number as float32 arrays of a few sizes, because a program is compiled for each size."""

import math
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import numpy as np
from numpy.typing import NDArray

from ..config import limits
from ..embeddings.base import Embedded
from ..errors import NotEnoughMemory
from ..model.learner import Learner
from ..model.task import Points, Task
from ..training.evaluation import MAX_FLOATS

# Bounds the memory of a prediction.
MAX_ROWS_AT_ONCE = 4096
# Of an encoded context, in which rows and classes multiply; one of fewer entries than the second is not measured.
MAX_CONTEXT_FLOATS, FEW_FLOATS = 2**29, 2**17


def padded_size(n: int) -> int:
    """The multiple of 8 to which n rows are padded; there are at most four sizes between n and 2n.

    Processors compute rows in blocks of 8 or fewer. Rounding differs in an incomplete block, so without full blocks the
    last digit of a prediction would depend on the position of its row.
    """
    step = max(8, 1 << max(0, n.bit_length() - 3))
    return max(step, -(-n // step) * step)


def to_float32(values: NDArray, name: str) -> NDArray:
    """Converts `values` to float32, or raises an error about `name` if they are too large."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(values, np.float32)
    if np.isinf(rounded).any():
        raise ValueError(f"{name} has numbers beyond the range of float32; scale it.")
    return rounded


def pad_rows(rows: NDArray, size: int) -> NDArray:
    """Appends rows of zeros up to `size` rows."""
    padded = np.zeros((size, rows.shape[1]), np.float32)
    padded[: len(rows)] = rows
    return padded


def rows_at_once(model: Learner) -> int:
    """The number of rows that `model` predicts at a time within the memory bound."""
    floats_per_row = model.embedding.peak_floats_per_row() if isinstance(model, Embedded) else 0
    return max(1, min(MAX_ROWS_AT_ONCE, MAX_FLOATS // max(floats_per_row, 1)))


def padded_chunks(rows: NDArray, scale: Callable[[NDArray], NDArray], most: int) -> Iterator[tuple[NDArray, int]]:
    """Scaled and padded chunks of X, each with its number of rows before padding.

    Args:
        rows: X, [m, dx].
        scale: maps rows of X to the inputs of the model.
        most: the largest number of rows in a chunk.
    """
    for start in range(0, len(rows), most):
        chunk = to_float32(scale(rows[start : start + most]), "X")
        yield pad_rows(chunk, min(padded_size(len(chunk)), most)), len(chunk)


def check_context(model: Learner, rows: int, columns: int, classes: int) -> None:
    """NotEnoughMemory if an encoded context would have more than `MAX_CONTEXT_FLOATS`.

    Args:
        model: the model.
        rows, columns, classes: sizes of the context.
    """
    if rows * classes <= FEW_FLOATS:
        return
    shapes = ((rows, columns), np.float32), ((rows, classes), np.float32), ((rows,), bool)
    context = eqx.filter_eval_shape(Points, *(jax.ShapeDtypeStruct(*each) for each in shapes))
    task = eqx.filter_eval_shape(Task, context, context)
    floats = max(rows * classes, model.peak_floats_per_task(task))
    if floats > MAX_CONTEXT_FLOATS * limits.factor():
        raise NotEnoughMemory(
            f"{rows:,} rows of {classes:,} classes take {4 * floats / 2**30:,.1f} GiB of memory. Fit fewer rows or "
            f"classes; if it is meant, set the environment variable {limits.FACTOR} to "
            f"{math.ceil(floats / MAX_CONTEXT_FLOATS)}."
        )
