"""A model and the context of an estimator in one safetensors file, which runs no code when it is loaded."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..data.encoding import Encoding
from ..training.checkpoint import read_arrays, read_shapes
from .trained import Trained, locate

GROUP = "context"
# Of a context that is read: a model for few rows was never fitted to more.
MOST_NUMBERS = 2**26


@dataclass(frozen=True)
class SavedContext:
    """The context of a fitted estimator.

    Args:
        X: inputs as numbers, [n, dx].
        y: outputs, [n] or [n, dy]; in classification the index of each row's class in `labels`, [n].
        labels: the classes; empty in regression.
        columns: names of the columns before encoding; empty where they have none.
        encoding: how columns became numbers; None where they were numbers.
    """

    X: NDArray
    y: NDArray
    labels: Sequence[Any] = ()
    columns: Sequence[str] = ()
    encoding: Encoding | None = None


def save(path: Path, trained: Trained, context: SavedContext | None, options: Mapping[str, Any]) -> None:
    """Writes a checkpoint of the model, with the context beside it if there is one.

    Args:
        path: the file to write.
        trained: the model.
        context: what the estimator was fitted to.
        options: parameters of the estimator beside its model, as JSON.
    """
    labels, columns = ([], []) if context is None else (list(context.labels), list(context.columns))
    if labels and not isinstance(labels[0], str | bool | int | float):
        raise ValueError(f"labels of type {type(labels[0]).__name__} cannot be saved; use text or numbers.")
    arrays = {} if context is None else {"X": context.X, "y": context.y}
    record: dict[str, Any] = {"labels": labels, "names": columns, "options": dict(options)}
    # A model that was trained with an encoding has it in its own record.
    if context is not None and context.encoding is not None and trained.encoding is None:
        record["context_encoding"] = context.encoding.table()
    trained.save(path, {GROUP: arrays}, record)


def load_context(path: str | Path, trained: Trained) -> SavedContext | None:
    """The context in a file that `save` wrote; raises KeyError, TypeError or ValueError if it is damaged.

    Args:
        path: the file.
        trained: the model opened from it, whose record holds labels and column names.
    """
    shapes, record = read_shapes(locate(path), GROUP), trained.record
    if not shapes:
        return None
    x, y = shapes[f"{GROUP}.X"].shape, shapes[f"{GROUP}.y"].shape
    if len(x) != 2 or not y or y[0] != x[0] or len(shapes) != 2 or math.prod(x) > MOST_NUMBERS:
        raise ValueError(f"X {list(x)} and y {list(y)}; at most {MOST_NUMBERS:,} numbers are read")
    columns, labels = record.get("names", []), record["labels"]
    encoding = Encoding.restored(record["context_encoding"]) if "context_encoding" in record else trained.encoding
    count = x[1] if encoding is None else len(encoding.columns)
    if not isinstance(columns, list) or len(columns) not in (0, count) or not all(isinstance(c, str) for c in columns):
        raise ValueError(f"the names of its columns are not {count} texts")
    if not isinstance(labels, list) or not all(isinstance(label, str | bool | int | float) for label in labels):
        raise ValueError("its labels are not texts or numbers")
    # NumPy gives each row the characters of the longest label.
    if max((len(str(label)) for label in labels), default=0) * x[0] > MOST_NUMBERS:
        raise ValueError(f"its labels are too long for {x[0]:,} rows")
    arrays = read_arrays(locate(path), GROUP)
    return SavedContext(arrays[f"{GROUP}.X"], arrays[f"{GROUP}.y"], labels, columns, encoding)
