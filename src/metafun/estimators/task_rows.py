"""The rows to meta-train on: tasks as pairs (X, y), or rows with the task of each; checked, and encoded as numbers."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array, check_consistent_length

from ..data.encoding import Encoding
from ..data.frames import Column, array_columns, frame_columns, is_frame, join_columns
from ..data.table import counted, printable
from ..errors import InvalidTask
from .inputs import check_names

MIN_TASKS = 3


@dataclass(frozen=True)
class TaskRows:
    """Rows of many tasks.

    Args:
        x: inputs as numbers, [rows, dx].
        y: outputs, [rows, dy].
        codes: the task of each row, as an index of `names`, [rows].
        names: the names of the tasks, for messages.
        encoding: how the columns became numbers; None where they were complete numbers.
    """

    x: NDArray
    y: NDArray
    codes: NDArray
    names: list[str]
    encoding: Encoding | None


def tasks_of_pairs(tasks: Any) -> TaskRows:
    """Tasks from pairs (X, y); a task with a single row is left out with a warning.

    Args:
        tasks: pairs (X [n, dx], an array or a data frame; y [n] or [n, dy]).
    """
    if isinstance(tasks, str) or not isinstance(tasks, Iterable) or is_frame(tasks):
        raise InvalidTask(
            f"tasks must be a list of pairs (X, y), not a {type(tasks).__name__}; rows of all tasks in one table need "
            "y and groups: meta_fit(X, y, groups=...)."
        )
    read = [_read_pair(i, task) for i, task in enumerate(tasks)]
    check_count(len(read))
    _check_shapes(read)
    y = np.concatenate([outputs for _, outputs in read])
    codes = np.repeat(np.arange(len(read)), [len(outputs) for _, outputs in read])
    names = [str(i) for i in range(len(read))]
    try:
        columns = join_columns([columns for columns, _ in read if not isinstance(columns, np.ndarray)])
    except ValueError as error:
        raise InvalidTask(f"tasks: {error}") from None
    x: Any = columns or np.concatenate([rows for rows, _ in read])
    return _checked(x, y, codes, names)


def tasks_of_groups(X: Any, y: Any, groups: Any) -> TaskRows:
    """Tasks from rows with the task of each; a task with a single row is left out with a warning.

    Args:
        X: inputs [n, dx], an array or a data frame.
        y: outputs, [n] or [n, dy].
        groups: the task of each row, [n].
    """
    try:
        columns, outputs = read_inputs(X), _read_outputs(y)
    except (TypeError, ValueError) as error:
        raise InvalidTask(str(error).splitlines()[0]) from None
    names, codes = group_codes(groups)
    rows = len(columns) if isinstance(columns, np.ndarray) else len(columns[0])
    if not rows == len(outputs) == len(codes):
        raise InvalidTask(f"X has {rows:,} rows, y {len(outputs):,} and groups {len(codes):,}; give one of each a row.")
    check_count(len(names))
    return _checked(columns, outputs, codes, names)


def group_codes(groups: Any) -> tuple[list[str], NDArray]:
    """Names of the tasks in sorted order, and the index of each row's task; InvalidTask where a row has none.

    Args:
        groups: the task of each row, [n]: an array, a list, or a column of a data frame.
    """
    series = nw.from_native(groups, series_only=True, pass_through=True)
    if isinstance(series, nw.Series):
        values = series.to_list()
    else:
        entries = np.asarray(groups, object)  # otherwise NaN beside text would become text
        if entries.ndim != 1:
            raise InvalidTask(f"groups of shape {list(entries.shape)}; give the task of each row, [rows].")
        values = [entry.item() if isinstance(entry, np.generic) else entry for entry in entries]
    lacking = series.is_null().to_list() if isinstance(series, nw.Series) else [v is None or v != v for v in values]
    lacking = [gap or (isinstance(v, str) and not v.strip()) for gap, v in zip(lacking, values, strict=True)]
    if any(lacking):
        count, row = sum(lacking), lacking.index(True)
        raise InvalidTask(
            f"row {row} has no task ({counted(count, 'such rows')}); give each row the id of its task, or leave it out."
        )
    is_number = all(isinstance(value, int | float) for value in values)
    names, codes = np.unique(np.array(values if is_number else list(map(str, values))), return_inverse=True)
    return [f"'{name}'" for name in names.tolist()], codes


def check_count(count: int) -> None:
    """InvalidTask if there are too few tasks to learn from."""
    if count < MIN_TASKS:
        raise InvalidTask(
            f"got {count} tasks; meta-learning needs many, at least {MIN_TASKS}. For one task use fit, which needs no "
            "training."
        )


def encode_columns(columns: list[Column] | NDArray) -> tuple[NDArray, Encoding | None]:
    """Columns as complete numbers [rows, dx], and their encoding; None for an array without missing entries."""
    if not isinstance(columns, np.ndarray):
        encoding = Encoding.of(columns, keeps_missing=False)
        return encoding(columns), encoding
    if not np.isnan(columns).any():
        return columns, None
    encoding = Encoding.of(array_columns(columns), keeps_missing=False, named=False)
    return encoding(array_columns(columns)), encoding


def _read_pair(name: int, task: Any) -> tuple[list[Column] | NDArray, NDArray]:
    try:
        X, y = task
        columns, outputs = read_inputs(X), _read_outputs(y)
        check_consistent_length(columns if isinstance(columns, np.ndarray) else columns[0].values, outputs)
    except (TypeError, ValueError) as error:
        # scikit-learn prints arrays below the first line.
        raise InvalidTask(
            f"task {name}: {str(error).splitlines()[0]} A task is a pair (X [rows, inputs], y [rows])."
        ) from None
    return columns, outputs


def read_inputs(X: Any) -> list[Column] | NDArray:
    """The columns of a data frame, or an array of numbers [rows, dx] with NaN where an entry is missing.

    A single input needs no second axis.
    """
    if not is_frame(X):
        X = np.reshape(X, (-1, 1)) if np.ndim(X) == 1 else X
        return check_array(X, dtype=float, ensure_all_finite="allow-nan", input_name="X")
    if not (columns := frame_columns(X)):
        raise InvalidTask("X has no columns.")
    return columns


def _read_outputs(y: Any) -> NDArray:
    """y as numbers [rows, outputs]."""
    values = check_array(y, dtype=float, ensure_2d=False, ensure_all_finite=False, input_name="y")
    return np.reshape(values, (len(values), -1))


def _check_shapes(read: Sequence[tuple[list[Column] | NDArray, NDArray]]) -> None:
    """InvalidTask unless all tasks have the same columns."""
    if len({isinstance(columns, np.ndarray) for columns, _ in read}) > 1:
        raise InvalidTask("some X are data frames and others arrays; give one kind.")
    shapes = [(x.shape[1] if isinstance(x, np.ndarray) else len(x), y.shape[1]) for x, y in read]
    first = read[0][0]
    for i, (columns, _) in enumerate(read):
        if not isinstance(columns, np.ndarray) and not isinstance(first, np.ndarray):
            try:
                check_names([c.name for c in columns], [c.name for c in first], "task 0")
            except ValueError as error:
                raise InvalidTask(f"task {i}: {error}") from None
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        found, expected = ("{} and {}".format(*map(counted, shapes[i], ("inputs", "outputs"))) for i in (other, 0))
        raise InvalidTask(f"task {other} has {found}, but task 0 {expected}; give all tasks the same columns.")


def _checked(columns: list[Column] | NDArray, y: NDArray, codes: NDArray, names: list[str]) -> TaskRows:
    """The rows of all tasks with two rows or more."""
    lacking = ~np.isfinite(y).all(1)
    if lacking.any():
        row = int(lacking.argmax())
        within, what = int((codes[:row] == codes[row]).sum()), "missing" if np.isnan(y[row]).any() else "infinite"
        raise InvalidTask(
            f"task {names[codes[row]]}: y is {what} in row {within}; leave out rows without a finite y "
            f"({counted(int(lacking.sum()), 'such rows')})."
        )
    x, encoding = encode_columns(columns)
    kept = np.bincount(codes, minlength=len(names)) >= 2
    if not kept.all():
        alone = [name for name, keep in zip(names, kept, strict=True) if not keep]
        more = f" and {len(alone) - 3} more" if len(alone) > 3 else ""
        warnings.warn(
            printable(
                f"{len(alone)} of {counted(len(names), 'tasks')} have a single row, which leaves none to predict, and "
                f"are left out: {', '.join(alone[:3])}{more}."
            ),
            stacklevel=5,
        )
        check_count(int(kept.sum()))
        rows = kept[codes]
        x, y, codes = x[rows], y[rows], (np.cumsum(kept) - 1)[codes[rows]]
        names = [name for name, keep in zip(names, kept, strict=True) if keep]
    if (np.ptp(y, axis=0) == 0).all():
        raise InvalidTask(f"y is {y[0, 0]:g} in all rows of all tasks; there is nothing to learn.")
    return TaskRows(x, y, codes, names, encoding)
