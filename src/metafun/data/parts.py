"""Rows as they come from a file, made into plain numbers and text, and checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from ..errors import InvalidData
from .table import DTYPES, SPLITS


@dataclass(frozen=True)
class Part:
    """Some of the rows of a table, with the class of each and, where it is known, the split."""

    where: Path
    features: Shaped[np.ndarray, "rows dx"]
    labels: Shaped[np.ndarray, " rows"]
    splits: Shaped[np.ndarray, " rows"] | None


def checked(where: Path, features: np.ndarray, labels: np.ndarray, splits: np.ndarray | None) -> Part:
    """A part, if there is a finite row of numbers for each label and each split is one of the three."""
    if features.ndim != 2 or 0 in features.shape:
        raise InvalidData(
            f"{where}: features must be [rows, columns] and not empty, but have shape {list(features.shape)}; "
            "images become rows with X.reshape(len(X), -1)."
        )
    for name, values in (("labels", labels), ("splits", splits)):
        if values is not None and values.shape != (len(features),):
            raise InvalidData(
                f"{where}: {len(features)} rows, but {name} of shape {list(values.shape)}; give one a row."
            )
    if splits is not None and not np.isin(splits, SPLITS).all():
        unknown = splits[~np.isin(splits, SPLITS)][0]
        raise InvalidData(f"{where}: '{unknown}' is not a split; they are called train, val and test.")
    return Part(where, _numbers(where, features, labels), labels, splits)


def text(values: Any, where: Path, name: str) -> np.ndarray:
    """Names of classes or splits as text; whole numbers and bytes, as Python 2 wrote them, are names too."""
    array = np.asarray(values)
    if array.dtype.kind == "S":
        try:
            return np.char.decode(array, "utf-8")
        except UnicodeDecodeError:
            return np.char.decode(array, "latin1")
    if array.dtype.kind == "f" and np.all(array == np.round(array)):
        array = array.astype(np.int64)
    if array.dtype.kind not in "biuU":
        raise InvalidData(f"{where}: {name} must be text or whole numbers, not {array.dtype}.")
    return array.astype(str)


def from_keys(values: Any, where: Path) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Splits and classes of keys `<split>-<class>-<file>`, as far as the keys have that form."""
    keys = text(values, where, "keys")
    fields = [key.split("-", 2) for key in keys.ravel().tolist()]
    if keys.ndim != 1 or any(len(entry) < 3 for entry in fields):
        return None, None
    splits, labels = (np.array([entry[i] for entry in fields], str) for i in (0, 1))
    return splits if np.isin(splits, SPLITS).any() else None, labels


def _numbers(where: Path, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """One of the dtypes of tables. All rows finite, before and after."""
    if features.dtype.kind not in "biuf":
        raise InvalidData(f"{where}: features must be numbers, not {features.dtype}.")
    _check_finite(where, features, labels, "not finite")
    kept = "uint8" if features.dtype.kind == "b" else features.dtype.name
    with np.errstate(over="ignore"):
        numbers = np.asarray(features, kept if kept in DTYPES else "float32")
    _check_finite(where, numbers, labels, "beyond the range of float32")
    return numbers


def _check_finite(where: Path, features: np.ndarray, labels: np.ndarray, problem: str) -> None:
    fine = np.isfinite(features).all(axis=1)
    if not fine.all():
        row = int(np.argmin(fine))
        raise InvalidData(
            f"{where}: row {row} (class '{labels[row]}') is {problem}, one of {np.sum(~fine):,} such rows; "
            "remove or mend them."
        )
