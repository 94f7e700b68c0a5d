"""Training on arrays of one's own: a table is made of them, some tasks or classes held out, and a run trains on it."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets

from ..config import Config, load_config, with_changes
from ..data import Table
from ..data.table_folder import open_table_folder, save_table
from ..errors import InvalidData, InvalidTask
from ..training.run_folder import Run

# Of the tasks or classes; they tell when to stop.
HELD_OUT = 0.2
LARGEST = 1e18
MOST_POINTS, MOST_WAYS, MOST_SHOTS, MOST_QUERIES = 64, 5, 5, 5


def regression_table(
    tasks: Iterable[tuple[ArrayLike, ArrayLike]], seed: int = 0, names: Sequence[str] | None = None
) -> tuple[Table, int]:
    """Rows (x, y) grouped by task, and how many of the columns are outputs. `names` are for messages."""
    try:
        tasks = list(tasks)
    except TypeError:
        raise InvalidTask(f"tasks must be a list of pairs (X, y), not a {type(tasks).__name__}.") from None
    if len(tasks) < 3:
        raise InvalidTask(f"{len(tasks)} tasks came; learning to learn takes many, and at least 3.")
    blocks = [_task(names[i] if names else i, task) for i, task in enumerate(tasks)]
    sizes = {(x.shape[1], y.shape[1]) for x, y in blocks}
    if len(sizes) > 1:
        raise InvalidTask(
            f"all tasks must have as many inputs and outputs; {sorted(sizes)} came, as (inputs, outputs)."
        )
    rows = _moderate(np.concatenate([np.concatenate(block, axis=1) for block in blocks]))
    counts = [len(x) for x, _ in blocks]
    labels = np.repeat([f"{i:06}" for i in range(len(blocks))], counts).tolist()
    splits = np.repeat(_hold_out(len(blocks), 1, seed), counts).tolist()
    return Table.of("tasks", rows, labels, splits), blocks[0][1].shape[1]


def _task(name: int | str, task: tuple[ArrayLike, ArrayLike]) -> tuple[np.ndarray, np.ndarray]:
    try:
        x, y = task
        x, y = check_X_y(x, y, dtype=float, multi_output=True, y_numeric=True, ensure_min_samples=2)
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"task {name}: {error} A task is a pair (X [rows, inputs], y [rows]).") from None
    return x, np.reshape(y, (len(y), -1))


def classification_table(X: ArrayLike, y: ArrayLike, seed: int = 0) -> Table:
    """Rows grouped by class."""
    x, labels = check_X_y(X, y, dtype=float)
    check_classification_targets(labels)
    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(names) < 4:
        raise InvalidTask(f"y has {len(names)} classes; learning to tell classes apart takes many, and at least 4.")
    if counts.min() < 2:
        small = names[counts.argmin()]
        raise InvalidTask(f"class '{small}' has one row; a class needs two, one to learn from and one to be judged on.")
    splits = np.array(_hold_out(len(names), 2, seed))[codes].tolist()
    return Table.of("classes", _moderate(x), [f"{code:06}" for code in codes], splits)


def _moderate(rows: np.ndarray) -> np.ndarray:
    """In single precision, if that can hold the numbers and what is computed of them."""
    if not np.abs(rows).max() < LARGEST:
        raise InvalidTask(f"numbers of {LARGEST:g} and more are too large to compute with; scale them.")
    return rows.astype(np.float32)


def _hold_out(count: int, least: int, seed: int) -> list[str]:
    """For each task or class, whether it is trained on or held out."""
    # Of few classes more: tasks of two would be too easy to tell a good model from a better one.
    held = max(least, round(HELD_OUT * count), min(MOST_WAYS, count // 3))
    order = np.random.default_rng(seed).permutation(count)
    return np.where(order < held, "val", "train").tolist()


def regression_config(table: Table, outputs: int, settings: Mapping[str, Any]) -> Config:
    most = max(rows.count for rows in table.classes)
    sizes = {
        "tasks.outputs": outputs,
        "tasks.context": [1, min(MOST_POINTS, most - 1)],
        "tasks.targets": min(MOST_POINTS, most - 1),
    }
    return load_config("collected", (), {**sizes, **settings})


def classification_config(table: Table, settings: Mapping[str, Any]) -> Config:
    least = min(rows.count for rows in table.classes)
    shots = max(1, min(MOST_SHOTS, least // 2))
    sizes = {
        "tasks.ways": min(MOST_WAYS, *(len(table.split(split)) for split in ("train", "val"))),
        "tasks.shots": shots,
        "tasks.queries": min(MOST_QUERIES, least - shots),
    }
    return load_config("own-features", (), {**sizes, **settings})


def chosen(steps: int | None, seed: int, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings of a run; a short one has a short warm-up, and its ten chunks each end with a validation."""
    found: dict[str, Any] = {"training.seeds": [seed]}
    if steps is not None:
        chunk = max(1, steps // 10)
        found |= {"training.steps": steps, "training.warmup": steps // 20}
        found |= {"training.chunk": chunk, "training.validate_every": chunk}
    return {**found, **(settings or {})}


def open_own(folder: Path, table: Table, config: Config) -> Run:
    """A run in `folder` on a table that is kept there; one that was begun with the same goes on."""
    kept = folder / "data"
    if not (kept / table.name).exists():
        save_table(table, kept, "arrays")
    same = open_table_folder(kept / table.name).fingerprint == table.fingerprint
    config = with_changes(config, {"tasks.data": str(kept / table.name)}).resolved()
    if same and Run.is_free(folder / "run"):
        return Run.create(folder / "run", config)
    if not same or Run(folder / "run").config != config:
        raise InvalidData(
            f"{folder} holds a training on other arrays or with other settings; choose another folder, or remove it."
        )
    return Run(folder / "run")


def remove_own(folder: Path) -> None:
    """What `open_own` made, and nothing else."""
    if (folder / "run" / "config.toml").is_file():
        Run(folder / "run").clear()
        for name in ("run", "data"):
            shutil.rmtree(folder / name, ignore_errors=True)
