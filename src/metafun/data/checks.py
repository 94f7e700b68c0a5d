"""Rows from a source file, converted to plain numbers and text, and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from ..errors import InvalidData
from .arrays import parsing, with_known_characters
from .table import CONTROL, DTYPES, SPLITS, counted


@dataclass(frozen=True)
class TablePart:
    """The rows of one source file.

    Names are lists: in an array of text each entry would take the memory of the longest.

    Args:
        where: the source file, for messages.
        features: one row per example [rows, dx].
        labels: the class of each row.
        splits: the split of each row, or None if the source does not define it.
    """

    where: Path
    features: Shaped[np.ndarray, "rows dx"]
    labels: list[str]
    splits: list[str] | None


def checked_part(where: Path, features: np.ndarray, labels: list[str], splits: list[str] | None) -> TablePart:
    """A part with one finite row of numbers per label and only known splits; the arguments are its fields."""
    if features.ndim != 2 or 0 in features.shape:
        raise InvalidData(
            f"{where}: features must be [rows, columns] and not empty, but have shape {list(features.shape)}; "
            "turn images into rows with X.reshape(len(X), -1)."
        )
    for name, values in (("labels", labels), ("splits", splits)):
        if values is not None and len(values) != len(features):
            raise InvalidData(f"{where}: {len(features):,} rows, but {len(values):,} {name}; give one per row.")
    if strange := [name for name in set(labels) if CONTROL.search(name)]:
        raise InvalidData(f"{where}: class {min(strange)!r} has control characters; give it another name.")
    if unknown := sorted(set(splits or ()) - set(SPLITS)):
        raise InvalidData(f"{where}: {unknown[0]!r} is not a split; they are called train, val and test.")
    return TablePart(where, _to_table_dtype(where, features, labels), labels, splits)


def to_names(values: Any, where: Path, field: str) -> list[str]:
    """Names of classes or splits as text; whole numbers and bytes, as Python 2 wrote them, are accepted too.

    Args:
        values: an array or a list, one entry per row.
        where: the source file, for messages.
        field: the name of the array, for messages.
    """
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InvalidData(f"{where}: {field} of shape {list(values.shape)}; give one per row.")
    if not isinstance(values, np.ndarray | list | tuple):
        raise InvalidData(f"{where}: {field} must be an array or a list, not a {type(values).__name__}.")
    if isinstance(values, np.ndarray):
        with parsing(where, f"{field} of text or whole numbers"):
            values = with_known_characters(values).tolist()
    try:
        try:
            return [_to_name(entry, "utf-8") for entry in values]
        except UnicodeDecodeError:
            return [_to_name(entry, "latin1") for entry in values]
    except TypeError as error:
        raise InvalidData(f"{where}: {field} must be text or whole numbers, not {error}.") from None


def parse_keys(values: Any, where: Path) -> tuple[list[str] | None, list[str] | None]:
    """Splits and classes from keys `<split>-<class>-<file>`; None for what the keys do not contain."""
    fields = [key.split("-", 2) for key in to_names(values, where, "keys")]
    if any(len(entry) < 3 for entry in fields):
        return None, None
    splits, labels = ([entry[i] for entry in fields] for i in (0, 1))
    return splits if set(splits) & set(SPLITS) else None, labels


def _to_name(entry: Any, encoding: str) -> str:
    if isinstance(entry, str):
        return str(entry)
    if isinstance(entry, bytes):
        return entry.decode(encoding)
    if isinstance(entry, np.generic):
        entry = entry.item()
    if not isinstance(entry, int | float):
        raise TypeError(type(entry).__name__)  # without the value: a list can contain itself, and print forever
    if not abs(entry) < 2**64 or entry != int(entry):
        raise TypeError(f"{entry:g}" if isinstance(entry, float) else "of more than 64 bits")
    return str(entry if isinstance(entry, int) else int(entry))


def _to_table_dtype(where: Path, features: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Converts to one of the dtypes of tables; rows must be finite before and after."""
    if features.dtype.kind not in "biuf":
        raise InvalidData(f"{where}: features must be numbers, not {features.dtype}.")
    _check_finite(where, features, labels, "not finite")
    kept = "uint8" if features.dtype.kind == "b" else features.dtype.name
    with np.errstate(over="ignore"):
        numbers = np.asarray(features, kept if kept in DTYPES else "float32")
    _check_finite(where, numbers, labels, "beyond the range of float32")
    return numbers


def _check_finite(where: Path, features: np.ndarray, labels: Sequence[str], problem: str) -> None:
    fine = np.isfinite(features).all(axis=1)
    if not fine.all():
        row, bad = int(np.argmin(fine)), int(np.sum(~fine))
        raise InvalidData(
            f"{where}: row {row} (class '{labels[row]}') is {problem} ({counted(bad, 'such rows')}); remove or correct "
            f"{'it' if bad == 1 else 'them'}."
        )
