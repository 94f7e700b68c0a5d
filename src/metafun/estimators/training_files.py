"""CSV and .npz files in; data to meta-train on out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.arrays import read_npz
from ..data.csv_columns import CsvColumns, read_csv
from ..data.frames import ColumnTable
from ..data.table import counted
from ..errors import InvalidConfig, InvalidData
from .meta_fit import MIN_CLASSES, TrainingData, classification_data, regression_data
from .notes import ColumnChoice, Notes, errors_about, id_hints
from .task_rows import tasks_of_groups

# A table with more classes than the model for any table was trained on needs training.
FEW_CLASSES = 10


def read_training_data(
    path: Path, targets: Sequence[str], task: str | None, choice: ColumnChoice, seed: int, notes: Notes
) -> TrainingData:
    """Data to meta-train on.

    Args:
        path: a CSV file, or an .npz file with the inputs in X.
        targets: columns or arrays of the outputs (regression), or the one of the labels (classification).
        task: column or array that names the task of each row, for regression; None for classification.
        choice: which of the other columns are inputs.
        seed: seed of the choice of held-out tasks or classes.
        notes: receives warnings.
    """
    if task in targets:
        raise InvalidConfig(f"--task and --target are both '{task}'; give the task of each row in another column.")
    if task is None and len(targets) > 1:
        raise InvalidConfig("classification has one target; for regression with several, name the tasks with --task.")
    read = _read_npz if path.suffix == ".npz" else _read_columns
    x, y, groups = read(path, targets, task, choice, notes)
    with errors_about(path, notes):
        return (
            classification_data(x, y, seed) if groups is None else regression_data(tasks_of_groups(x, y, groups), seed)
        )


def _read_columns(
    path: Path, targets: Sequence[str], task: str | None, choice: ColumnChoice, notes: Notes
) -> tuple[Any, Any, Any]:
    columns = read_csv(path)
    for name in (*targets, task):
        columns.expect(name)
    if task is None:
        _check_classes(columns, targets[0], choice, notes)
    x = ColumnTable([columns.column(name) for name in choice.inputs(columns, [*targets, task])])
    notes.warnings.extend(f"{path}: {hint}" for hint in id_hints(columns, x.columns))
    if task is None:
        return x, columns.labels(targets[0]), None
    y = columns.numbers(targets)
    return x, y[:, 0] if len(targets) == 1 else y, columns.labels(task)


def _read_npz(
    path: Path, targets: Sequence[str], task: str | None, choice: ColumnChoice, notes: Notes
) -> tuple[Any, Any, Any]:
    if choice.is_made:
        raise InvalidConfig("--columns and --drop are for CSV files; an .npz file has its inputs in X.")
    names = [name for name in ("X", *targets, task) if name is not None]
    arrays = read_npz(path, names)
    for name in names:
        if name not in arrays:
            raise InvalidData(f"{path} has no array '{name}'; it needs {', '.join(names)}.")
        if arrays[name].ndim == 0 or len(arrays[name]) != len(arrays["X"]):
            shapes = ", ".join(f"{n} {list(arrays[n].shape)}" for n in names if n in arrays)
            raise InvalidData(f"{path}: its arrays must have the same number of rows, but they are {shapes}.")
        if len(targets) > 1 and name in targets and arrays[name].ndim > 1:
            raise InvalidData(f"{path}: '{name}' is {list(arrays[name].shape)}; each of several --target is [rows].")
    y = arrays[targets[0]] if len(targets) == 1 else np.stack([arrays[name] for name in targets], 1)
    if task is None and y.dtype.kind == "f" and (y % 1 != 0).any():
        raise InvalidData(f"{path}: '{targets[0]}' has fractions, so it is no class; {_NEEDS_TASK}")
    return arrays["X"], y, None if task is None else arrays[task]


_NEEDS_TASK = "for regression name the column with the task of each row: --task COLUMN."


def _check_classes(columns: CsvColumns, target: str, choice: ColumnChoice, notes: Notes) -> None:
    """InvalidData if the target is no class, or the classes are too few to learn from."""
    labels = columns.labels(target)
    count, fractions = len(set(labels)), columns.has_fractions(target)
    if fractions or count > len(labels) / 2:
        reason = "has fractions" if fractions else f"has {count:,} different entries in {len(labels):,} rows"
        tasks = _likely_tasks(columns, [name for name in columns.names if name != target])
        suggestion = f" Did you forget --task {' or --task '.join(tasks)}?" if tasks else ""
        raise InvalidData(f"{columns.path}: '{target}' {reason}, so it is no class; {_NEEDS_TASK}{suggestion}")
    few = (
        f"'{target}' has {counted(count, 'classes')}, and a model for tables with few classes is shipped: metafun "
        f"predict NEW.csv --model tables-classification --context {columns.path} --target {target}"
    )
    if count < MIN_CLASSES:
        raise InvalidData(f"{columns.path}: meta-learning needs many classes; {few}.")
    if count <= FEW_CLASSES:
        notes.warnings.append(f"{columns.path}: {few}. It needs no training; this model learns classes beyond these.")


def _likely_tasks(columns: CsvColumns, names: Sequence[str]) -> list[str]:
    """Up to three columns whose entries repeat like the names of tasks: text, or whole numbers."""
    found = []
    for name in names:
        if not columns.has_fractions(name) and 3 <= len(set(columns.entries[name])) <= len(columns) / 2:
            found.append(name)
    return found[:3]
