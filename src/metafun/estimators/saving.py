"""A model and the context of an estimator in one safetensors file, which runs no code when it is loaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..training.checkpoint import read_arrays
from .trained import Trained, locate

GROUP = "context"


@dataclass(frozen=True)
class SavedContext:
    """The context of a fitted estimator.

    Args:
        X: inputs, [n, dx].
        y: outputs, [n] or [n, dy]; in classification the index of each row's class in `labels`, [n].
        labels: the classes; empty in regression.
        columns: names of the columns of X; empty where they have none.
    """

    X: NDArray
    y: NDArray
    labels: Sequence[Any] = ()
    columns: Sequence[str] = ()


def save(path: Path, trained: Trained, context: SavedContext | None) -> None:
    """Writes a checkpoint of the model, with the context beside it if there is one."""
    labels, columns = ([], []) if context is None else (list(context.labels), list(context.columns))
    if labels and not isinstance(labels[0], str | bool | int | float):
        raise ValueError(f"labels of type {type(labels[0]).__name__} cannot be saved; use text or numbers.")
    arrays = {} if context is None else {"X": context.X, "y": context.y}
    trained.save(path, {GROUP: arrays}, {"labels": labels, "names": columns})


def load_context(path: str | Path, trained: Trained) -> SavedContext | None:
    """The context in a file that `save` wrote; raises KeyError or TypeError if it is damaged.

    Args:
        path: the file.
        trained: the model opened from it, whose record holds labels and column names.
    """
    arrays, record = read_arrays(locate(path), GROUP), trained.record
    if not arrays:
        return None
    columns = [str(name) for name in record.get("names", [])]
    return SavedContext(arrays[f"{GROUP}.X"], arrays[f"{GROUP}.y"], record["labels"], columns)
