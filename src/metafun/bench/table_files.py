"""A folder of a user's tables to benchmark on."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import read_npz
from ..data.csv_columns import read_csv
from ..data.encoding import Encoding
from ..data.table import printable
from ..errors import InvalidData
from ..estimators.base import LARGEST
from .contenders import PROBLEMS
from .datasets import CLASS_SIZES, ROW_COUNTS, TableSet, hash_arrays

SUFFIXES = (".csv", ".tsv", ".npz")
# Rarer classes are left out: each needs two rows to train on, so that models can be tuned, and one to test on.
MIN_CLASS_ROWS = 3
# x, y, which columns are categorical, and the problem.
_Content = tuple[NDArray, NDArray, NDArray, str]


@dataclass(frozen=True, eq=False)
class FileTable(TableSet):
    """A table of a user.

    Args:
        x: inputs [rows, columns], NaN where missing; categories as codes.
        y: labels or values [rows].
        problem, sizes, categorical: as in `TableSet`.
    """

    x: NDArray
    y: NDArray
    problem: str
    sizes: tuple[int, ...]
    categorical: tuple[bool, ...]

    def load(self) -> tuple[NDArray, NDArray]:
        return self.x, self.y

    @property
    def fingerprint(self) -> str:
        return hash_arrays(self.x, self.y, np.array(self.categorical, bool))


def open_folder(folder: Path, target: str | None = None) -> dict[str, TableSet]:
    """The tables of a folder by name.

    Tables in its subfolders `classification` and `regression`, if there are such, have what these say to predict.

    Args:
        folder: holds CSV files, and .npz files with X [rows, columns], y [rows] and, if known, `categorical` [columns].
        target: the column of CSV files to predict; None: the last one.
    """
    if not folder.is_dir():
        raise InvalidData(f"{folder} is no folder; give one with tables, CSV or .npz.")
    subfolders: list[tuple[str | None, Path]] = [
        (problem, folder / problem) for problem in PROBLEMS if (folder / problem).is_dir()
    ]
    paths = [
        (path, problem)
        for problem, place in subfolders or [(None, folder)]
        for path in sorted(place.iterdir())
        if path.suffix.lower() in SUFFIXES
    ]
    names = Counter(printable(path.stem) for path, _ in paths)
    if not names:
        raise InvalidData(f"{folder} has no tables; expected files that end in {', '.join(SUFFIXES)}.")
    name, count = names.most_common(1)[0]
    if count > 1:
        raise InvalidData(printable(f"{folder} has {count} tables of the name '{name}'; rename them."))
    return {printable(path.stem): open_table(path, target, problem) for path, problem in paths}


def open_table(path: Path, target: str | None = None, problem: str | None = None) -> FileTable:
    """A table from a file; InvalidData if it has too few rows or nothing to predict.

    Args:
        path: a CSV or .npz file.
        target: the column of a CSV file to predict; None: the last one.
        problem: what the target holds; None: whole numbers of few kinds and text are classes.
    """
    x, y, categorical, problem = (_from_npz if path.suffix.lower() == ".npz" else _from_csv)(path, target, problem)
    _check_numbers(x, y, problem, path)
    if problem == "classification":
        labels, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
        if (counts >= MIN_CLASS_ROWS).sum() < 2:
            raise InvalidData(
                printable(f"{path} has {len(labels):,} classes, of which fewer than two have {MIN_CLASS_ROWS} rows.")
            )
        kept = counts[codes] >= MIN_CLASS_ROWS
        x, y = x[kept], y[kept]
    if not (sizes := _sizes(y, problem)):
        raise InvalidData(f"{path} has {len(y):,} rows, too few to train on and to test.")
    return FileTable(x, y, problem, sizes, tuple(map(bool, categorical)) if categorical.any() else ())


def _check_numbers(x: NDArray, y: NDArray, problem: str, path: Path) -> None:
    """InvalidData if no model could learn from the table."""
    if not x.shape[1] or np.isnan(x).all():
        raise InvalidData(f"{path} has no inputs; expected a column with numbers or texts beside the one to predict.")
    numbers = (("its inputs", x), *([("y", y)] if problem == "regression" else []))
    for name, array in numbers:
        if (beyond := np.abs(np.nan_to_num(array, posinf=np.inf, neginf=np.inf)) > LARGEST).any():
            raise InvalidData(f"{path}: {name} hold {array[beyond][0]:.3g}; rescale numbers beyond {LARGEST:g}.")
    if problem == "regression" and (y == y[0]).all():
        raise InvalidData(f"{path}: y is {y[0]:g} in every row; there is nothing to predict.")


def _sizes(y: NDArray, problem: str) -> tuple[int, ...]:
    """The sizes of the bundled tables with which at most half of the rows are for training."""
    if problem == "regression":
        return tuple(size for size in ROW_COUNTS if size <= len(y) / 2)
    counts = np.unique(y, return_counts=True)[1]
    return tuple(size for size in CLASS_SIZES if np.minimum(counts - 1, size).sum() <= len(y) / 2)


def _from_npz(path: Path, target: str | None, problem: str | None) -> _Content:
    arrays = read_npz(path, ("X", "y", "categorical"))
    for name, axes in (("X", 2), ("y", 1)):
        if name not in arrays or arrays[name].ndim != axes:
            shape = f"of shape {list(arrays[name].shape)}" if name in arrays else "missing"
            raise InvalidData(f"{path}: its array '{name}' is {shape}; expected X [rows, columns] and y [rows].")
    x, y = arrays["X"], arrays["y"]
    categorical = arrays.get("categorical", np.zeros(x.shape[1], bool))
    if (
        x.dtype.kind not in "biuf"
        or y.dtype.kind not in "biufU"
        or len(x) != len(y)
        or categorical.shape != x.shape[1:]
    ):
        raise InvalidData(
            f"{path}: X is {x.dtype} {list(x.shape)}, y {list(y.shape)}, categorical {list(categorical.shape)}; "
            "expected numbers, a number or text in y for each row, and whether each column is categorical."
        )
    problem = problem or ("regression" if y.dtype.kind == "f" else "classification")
    if problem == "regression" and y.dtype.kind not in "biuf":
        raise InvalidData(f"{path}: y is {y.dtype}; expected numbers, or classes in a folder `classification`.")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise InvalidData(
            f"{path}: y is {y[~np.isfinite(y)][0]} in row {np.argmin(np.isfinite(y))}; leave such rows out."
        )
    return x.astype(float), y, categorical.astype(bool), problem


def _from_csv(path: Path, target: str | None, problem: str | None) -> _Content:
    columns = read_csv(path)
    target = target or columns.names[-1]
    columns.expect(target)
    inputs = [columns.column(name) for name in columns.names if name != target]
    if not inputs:
        raise InvalidData(printable(f"{path} has no column beside '{target}' to predict it from."))
    problem = problem or ("classification" if columns.has_classes(target) else "regression")
    y = np.array(columns.labels(target)) if problem == "classification" else columns.numbers([target])[:, 0]
    # Codes of categories need no labels, so the rows to test on may take part.
    encoding = Encoding.of(inputs, keeps_missing=True)
    kinds = [code.kind == "category" for code in encoding.columns for _ in code.outputs]
    return encoding(inputs), y, np.array(kinds), problem
