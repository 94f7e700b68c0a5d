"""Meta-training on a user's arrays: build a table, hold out some tasks or classes, train a run on it."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets

from ..config import Config, has_setting, load_config, resolve, with_changes
from ..data import Table
from ..data.table_folder import open_table_folder, save_table
from ..errors import InvalidData, InvalidTask
from ..training.progress import watched
from ..training.run import Run
from ..training.run_folder import RunFolder
from .trained import Trained, open_trained

# Share of the tasks or classes that is held out for validation.
VALIDATION_SHARE = 0.2
# Sums of squares of smaller numbers are finite in float32.
MAX_MAGNITUDE = 1e18
MAX_POINTS, MAX_WAYS, MAX_SHOTS, MAX_QUERIES = 64, 5, 5, 5


class MetaFitOptions(TypedDict, total=False):
    """Keyword arguments that both `meta_fit` methods accept.

    Args:
        steps: training steps; default: as in the preset ("collected" or "own-features").
        settings: further settings of the run, such as {"model.iterations": 3}.
        folder: folder to train in, where an interrupted training resumes; default: a temporary one.
        seed: seed of the training and of the choice of held-out tasks or classes; default: 0.
        progress: show progress on stderr; default: True.
    """

    steps: int | None
    settings: Mapping[str, Any] | None
    folder: str | Path | None
    seed: int
    progress: bool


@dataclass(frozen=True)
class TrainingData:
    """A table to meta-train on, and the preset for it.

    Args:
        table: rows grouped by task or class, in the splits train and val.
        preset: name of the preset.
        sizes: settings of the preset that depend on the table.
    """

    table: Table
    preset: str
    sizes: Mapping[str, Any]

    def config(self, settings: Mapping[str, Any]) -> Config:
        """The configuration of a run; the user's `settings` take precedence over `sizes`."""
        return load_config(self.preset, (), {**self.sizes, **settings})


def regression_data(
    tasks: Iterable[tuple[ArrayLike, ArrayLike]], seed: int = 0, names: Sequence[str] | None = None
) -> TrainingData:
    """Rows (x, y) grouped by task.

    Args:
        tasks: pairs (X [n, dx], y [n] or [n, dy]); n may differ between tasks.
        seed: seed of the choice of held-out tasks.
        names: names of the tasks in error messages; default: their positions.
    """
    try:
        tasks = list(tasks)
    except TypeError:
        raise InvalidTask(f"tasks must be a list of pairs (X, y), not a {type(tasks).__name__}.") from None
    if len(tasks) < 3:
        raise InvalidTask(f"got {len(tasks)} tasks; meta-learning needs many, at least 3.")
    blocks = [_check_task(names[i] if names else i, task) for i, task in enumerate(tasks)]
    shapes = {(x.shape[1], y.shape[1]) for x, y in blocks}
    if len(shapes) > 1:
        raise InvalidTask(
            f"all tasks must have the same number of inputs and outputs; got {sorted(shapes)} as (inputs, outputs)."
        )
    rows = _bounded_float32(np.concatenate([np.concatenate(block, axis=1) for block in blocks]))
    counts = [len(x) for x, _ in blocks]
    labels = np.repeat([f"{i:06}" for i in range(len(blocks))], counts).tolist()
    splits = np.repeat(_assign_splits(len(blocks), 1, seed), counts).tolist()
    most = min(MAX_POINTS, max(counts) - 1)
    sizes = {"tasks.outputs": blocks[0][1].shape[1], "tasks.context": [1, most], "tasks.targets": most}
    return TrainingData(Table.of("tasks", rows, labels, splits), "collected", sizes)


def _check_task(name: int | str, task: tuple[ArrayLike, ArrayLike]) -> tuple[np.ndarray, np.ndarray]:
    try:
        x, y = task
        x, y = check_X_y(x, y, dtype=float, multi_output=True, y_numeric=True, ensure_min_samples=2)
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"task {name}: {error} A task is a pair (X [rows, inputs], y [rows]).") from None
    return x, np.reshape(y, (len(y), -1))


def classification_data(X: ArrayLike, y: ArrayLike, seed: int = 0) -> TrainingData:
    """Rows grouped by class.

    Args:
        X: inputs, [n, dx].
        y: labels, [n].
        seed: seed of the choice of held-out classes.
    """
    x, labels = check_X_y(X, y, dtype=float)
    check_classification_targets(labels)
    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(names) < 4:
        raise InvalidTask(f"y has {len(names)} classes; meta-learning needs many, at least 4.")
    if counts.min() < 2:
        small = names[counts.argmin()]
        raise InvalidTask(
            f"class '{small}' has one row; a class needs at least two, one for context and one for target."
        )
    splits = np.array(_assign_splits(len(names), 2, seed))
    shots = max(1, min(MAX_SHOTS, int(counts.min()) // 2))
    sizes = {
        "tasks.ways": min(MAX_WAYS, *(int((splits == split).sum()) for split in ("train", "val"))),
        "tasks.shots": shots,
        "tasks.queries": min(MAX_QUERIES, int(counts.min()) - shots),
    }
    table = Table.of("classes", _bounded_float32(x), [f"{code:06}" for code in codes], splits[codes].tolist())
    return TrainingData(table, "own-features", sizes)


def _bounded_float32(rows: np.ndarray) -> np.ndarray:
    """The rows in float32, if squares of their numbers are finite."""
    if not np.abs(rows).max() < MAX_MAGNITUDE:
        raise InvalidTask(f"numbers of {MAX_MAGNITUDE:g} and more are too large to compute with; scale them.")
    return rows.astype(np.float32)


def _assign_splits(count: int, least: int, seed: int) -> list[str]:
    """ "train" or "val" for each of `count` tasks or classes, with at least `least` in val."""
    # A larger share of few classes: validation tasks of only two classes hardly tell models apart.
    held_out = max(least, round(VALIDATION_SHARE * count), min(MAX_WAYS, count // 3))
    order = np.random.default_rng(seed).permutation(count)
    return np.where(order < held_out, "val", "train").tolist()


def run_settings(steps: int | None, seed: int, settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of a run; `steps` also sets a warm-up of 5% and a validation after each tenth.

    Args:
        steps: training steps, or None for those of the preset.
        seed: seed of the training.
        settings: a user's settings, which take precedence.
    """
    found: dict[str, Any] = {"training.seeds": [seed]}
    if steps is not None:
        chunk = max(1, steps // 10)
        found |= {"training.steps": steps, "training.warmup": steps // 20}
        found |= {"training.chunk": chunk, "training.validate_every": chunk}
    return {**found, **(settings or {})}


def meta_train(
    make_data: Callable[[int], TrainingData],
    *,
    steps: int | None = None,
    settings: Mapping[str, Any] | None = None,
    folder: str | Path | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Trained:
    """Trains a model on the data that `make_data` gives for a seed; the options are those of `MetaFitOptions`."""
    data = make_data(seed)
    config = data.config(run_settings(steps, seed, settings))
    with tempfile.TemporaryDirectory(prefix="metafun-") as temporary:
        run = open_training(Path(folder or temporary), data.table, config)
        console = Console(stderr=True, soft_wrap=True, highlight=False, quiet=not progress)
        for _ in watched(run, console, "meta-training"):
            pass
        console.print(held_out_result(run))
        return open_trained(run.path)


def held_out_result(run: Run) -> str:
    """The validation error in words; in classification beside that of the nearest class mean, if it was measured.

    Args:
        run: a trained run with one seed.
    """
    record, tasks = run.record, run.experiment.tasks
    if not record.best_error:
        return "not validated, since training.validate_every = 0"
    if tasks.problem == "regression":
        return f"negative log-likelihood {record.best_error[0]:.4f} on held-out tasks (standardised outputs)"
    result = f"accuracy {1 - record.best_error[0]:.4f} on held-out classes ({tasks.classes}-way)"
    # The untrained model is a nearest class mean if it has a similarity term.
    if record.first_error and has_setting(run.config, "model.similarity.temperature"):
        result += f"; nearest class mean {1 - record.first_error[0]:.4f}"
    return result


def open_training(folder: Path, table: Table, config: Config) -> Run:
    """Starts a run in a folder that also keeps its table, or resumes the run there if data and settings agree.

    Args:
        folder: the folder; the run goes to `run` in it and the table to `data`.
        table: the data.
        config: the configuration.
    """
    kept = folder / "data"
    if not (kept / table.name).exists():
        save_table(table, kept, "arrays")
    same = open_table_folder(kept / table.name).fingerprint == table.fingerprint
    experiment = resolve(with_changes(config, {"tasks.data": str(kept / table.name)}))
    if same and RunFolder.is_free(folder / "run"):
        return Run.create(folder / "run", experiment)
    run = None if not same else Run(folder / "run")
    if run is None or run.experiment != experiment:
        raise InvalidData(
            f"{folder} holds a training on other arrays or with other settings; choose another folder, or remove it."
        )
    return run


def remove_training(folder: Path) -> None:
    """Removes what `open_training` made, and nothing else."""
    if (folder / "run" / "config.toml").is_file():
        RunFolder.open(folder / "run").clear()
        for name in ("run", "data"):
            shutil.rmtree(folder / name, ignore_errors=True)
