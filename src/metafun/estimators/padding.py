"""Rows of any number as float32 arrays of a few sizes, because a program is compiled for each size."""

import itertools
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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

Predicted = TypeVar("Predicted")

# Bound the memory of a prediction.
MAX_ROWS_AT_ONCE = 4096
# Of an encoded context, in which rows and classes multiply; one of fewer entries than the second is not measured.
MAX_CONTEXT_FLOATS, FEW_FLOATS = 2**29, 2**17
CHUNKS_AT_ONCE = 2
# Among so few rows, not even the last digit of a prediction depends on how many are asked for, as scikit-learn checks.
LEAST_ROWS = 64
# What is drawn in turn costs a prediction for each row, also of padding.
LEAST_DRAWN = 8
# More rows are padded more tightly: time matters more than the number of programs. The last rows of several chunks are
# predicted in chunks of so many.
MANY_ROWS = 1024
# Classes are padded to one of these numbers, and beyond them to a multiple of the last.
CLASSES = (2, 5, 10)


def padded_size(n: int, least: int = LEAST_ROWS) -> int:
    """The number to which n rows are padded: 64, 96, 128, 192, 256, …; there are few, because each needs a program.

    Args:
        n: number of rows.
        least: the smallest of these numbers.
    """
    step = 1 << max(0, n.bit_length() - (3 if n > MANY_ROWS else 2))
    return max(least, -(-n // step) * step)


def padded_classes(k: int) -> int:
    """The number to which k classes are padded; classes that no row has change no prediction."""
    return next((size for size in CLASSES if k <= size), -(-k // CLASSES[-1]) * CLASSES[-1])


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
    start = 0
    while start < len(rows):
        left = len(rows) - start
        # The last rows in several chunks of one size, which needs no further program.
        size = most if left >= most else min(padded_size(left), MANY_ROWS, most)
        chunk = to_float32(scale(rows[start : start + size]), "X")
        yield pad_rows(chunk, size), len(chunk)
        start += size


def map_chunks(predict: Callable[[NDArray, int], Predicted], chunks: Iterator[tuple[NDArray, int]]) -> list[Predicted]:
    """What `predict` returns for each chunk, in their order; `CHUNKS_AT_ONCE` of them are predicted at once.

    A chunk alone leaves processors idle: its operations are small and follow one another.

    Args:
        predict: from a padded chunk and its number of rows.
        chunks: what `padded_chunks` yields.
    """
    # The settings of JAX that a user may have changed for this thread alone.
    is_double, device = jax.config.values["jax_enable_x64"], jax.config.values["jax_default_device"]

    def in_thread(chunk: tuple[NDArray, int]) -> Predicted:
        with jax.enable_x64(is_double), jax.default_device(device):
            return predict(*chunk)

    predicted = [predict(*chunk) for chunk in itertools.islice(chunks, 1)]  # compiles the program, once
    with ThreadPoolExecutor(CHUNKS_AT_ONCE) as pool:
        return predicted + list(pool.map(in_thread, chunks))


def check_context(model: Learner, rows: int, columns: int, classes: int, trees: int = 0) -> None:
    """NotEnoughMemory if an encoded context would have more than `MAX_CONTEXT_FLOATS`.

    Args:
        model: the model.
        rows, columns, classes: sizes of the context.
        trees: number of trees that are fitted to it.
    """
    in_leaves = 2 * trees * rows * classes
    if max(rows * classes, in_leaves) <= FEW_FLOATS:
        return
    shapes = ((rows, columns), np.float32), ((rows, classes), np.float32), ((rows,), bool)
    context = eqx.filter_eval_shape(Points, *(jax.ShapeDtypeStruct(*each) for each in shapes))
    task = eqx.filter_eval_shape(Task, context, context)
    floats = max(rows * classes, in_leaves, model.peak_floats_per_task(task))
    if floats > MAX_CONTEXT_FLOATS * limits.factor():
        raise NotEnoughMemory(
            f"{rows:,} rows of {classes:,} classes take {4 * floats / 2**30:,.1f} GiB of memory. Fit fewer rows or "
            f"classes; if it is meant, set the environment variable {limits.FACTOR} to "
            f"{math.ceil(floats / MAX_CONTEXT_FLOATS)}."
        )
