"""Meta-training on a user's arrays: build a table, hold out some tasks or classes, train a run on it."""

import contextlib
import json
import shutil
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import ArrayLike
from rich.console import Console
from rich.markup import escape
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets

from ..config import Config, has_setting, load_config, resolve, with_changes
from ..data import Table
from ..data.encoding import Encoding
from ..data.table import counted
from ..data.table_folder import open_table_folder, save_table
from ..errors import Diverged, InvalidData, InvalidTask
from ..files import subfolder, write_atomically
from ..tasks import TaskSource
from ..training.evaluation import Validation, nearest_mean_accuracy
from ..training.progress import stop_signal, watched
from ..training.run import Run
from ..training.run_folder import CHECKPOINT, RunFolder
from .stacking import stack, trees_of
from .task_rows import TaskRows, encode_columns, read_inputs
from .trained import DESCRIPTION, FINISHED, Trained, open_trained

# Share of the tasks or classes that is held out for validation.
VALIDATION_SHARE = 0.2
# Sums of squares of smaller numbers are finite in float32.
MAX_MAGNITUDE = 1e18
MIN_CLASSES = 4
MAX_WAYS, MAX_SHOTS, MAX_QUERIES = 5, 5, 5
# Regression tasks are cross-validated in so many folds. Each is trained with at most so many points at a time.
FOLDS, MAX_CONTEXT, MAX_TARGETS = 5, 16, 24
STEPS = 2000
# Trees of the forest beside each member of a regression model.
TREES = 40


class MetaFitOptions(TypedDict, total=False):
    """Keyword arguments that both `meta_fit` methods accept.

    Args:
        steps: training steps; default: 2000 in regression, as in the preset "own-features" in classification.
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
        trained_on: the table in words.
        encoding: how columns became numbers; None where they were numbers.
    """

    table: Table
    preset: str
    sizes: Mapping[str, Any]
    trained_on: str
    encoding: Encoding | None = None

    def config(self, settings: Mapping[str, Any]) -> Config:
        """The configuration of a run; the user's `settings` take precedence over `sizes`."""
        return load_config(self.preset, (), {**self.sizes, **settings})

    def description(self) -> dict[str, Any]:
        """What the model's record says about the data."""
        encoding = {} if self.encoding is None else {"encoding": self.encoding.table()}
        return {"trained_on": self.trained_on, **encoding}


def regression_data(rows: TaskRows, seed: int = 0) -> TrainingData:
    """Rows (x, y) grouped by task.

    Args:
        rows: the rows of all tasks.
        seed: seed of the choice of held-out tasks.
    """
    # Tasks are dealt into folds one after another.
    place = np.argsort(np.random.default_rng(seed).permutation(len(rows.names)))
    table_rows = _bounded_float32(np.concatenate([rows.x, rows.y], axis=1))
    labels = [f"{code:06}" for code in place[rows.codes]]
    table = Table.of("tasks", table_rows, labels, ["train"] * len(labels))
    trained_on = f"{counted(len(rows.names), 'tasks')} ({counted(len(rows.x), 'rows')})"
    return TrainingData(table, "collected", _regression_sizes(rows), trained_on, rows.encoding)


def _regression_sizes(rows: TaskRows) -> dict[str, Any]:
    """The settings that depend on the tasks."""
    count, most = len(rows.names), int(np.bincount(rows.codes).max()) - 1
    folds = min(FOLDS, count)
    return {
        "tasks.outputs": rows.y.shape[1],
        "tasks.context": [0, min(MAX_CONTEXT, most)],
        "tasks.targets": min(MAX_TARGETS, most + 1),
        "tasks.folds": folds,
        "model.population.members": folds,
        "model.population.trees": TREES,
        "training.steps": STEPS,
    }


def classification_data(X: ArrayLike, y: ArrayLike, seed: int = 0) -> TrainingData:
    """Rows grouped by class.

    Args:
        X: inputs [n, dx], an array or a data frame.
        y: labels, [n].
        seed: seed of the choice of held-out classes.
    """
    x, encoding = encode_columns(read_inputs(X))
    x, labels = check_X_y(x, y, dtype=float)
    check_classification_targets(labels)
    names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if len(names) < MIN_CLASSES:
        raise InvalidTask(
            f"y has {len(names)} classes; meta-learning needs many, at least {MIN_CLASSES}. For few classes use fit, "
            "which needs no training."
        )
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
    trained_on = f"{counted(len(names), 'classes')} ({counted(len(x), 'rows')})"
    return TrainingData(table, "own-features", sizes, trained_on, encoding)


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
    place = Path(folder or tempfile.mkdtemp(prefix="metafun-"))
    console = Console(stderr=True, soft_wrap=True, highlight=False, quiet=not progress)
    is_kept = folder is not None
    try:
        run = open_training(place, data, config)
        is_complete = _train_until_stopped(run, console, data.trained_on)
        trained, result = finish(run, place)
        if is_complete:
            console.print(result)
        else:
            is_kept = True
            # Also without progress: a model that was not trained to its end must not look like one that was.
            Console(stderr=True, soft_wrap=True, highlight=False).print(escape(_how_to_go_on(run, place)))
        return trained
    except (KeyboardInterrupt, Diverged) as error:
        # What an interrupted training has written is kept: the message says where.
        if not (place / "run" / CHECKPOINT).exists():
            raise
        is_kept = True
        if isinstance(error, Diverged):
            raise Diverged(f"{error} Its folder is {str(place)!r}.") from None
        raise KeyboardInterrupt(f"stopped at once; meta_fit continues with folder={str(place)!r}.") from None
    finally:
        if not is_kept:
            shutil.rmtree(place, ignore_errors=True)


def _train_until_stopped(run: Run, console: Console, trained_on: str) -> bool:
    """Trains to the end, or until Ctrl-C; returns whether it reached the end."""
    end = run.config.training.end
    chunks = watched(run, console, "meta-training", f"meta-training on {trained_on}, at most {end:,} steps")
    with stop_signal(console, (signal.SIGINT,)) as stopped, contextlib.closing(chunks):
        for metrics in chunks:
            if stopped.is_set() and metrics.record.step < end and not metrics.record.stopped_early:
                return False
    return True


def _how_to_go_on(run: Run, folder: Path) -> str:
    """What an interrupted training leaves, and how it continues."""
    record, end = run.record, run.config.training.end
    kept = f"the best on held-out data so far, of step {max(record.best_step):,}" if record.best_step else "the latest"
    return (
        f"meta_fit was stopped at step {record.step:,} of {end:,}; the estimator has the parameters that are {kept}. "
        f"To continue, call meta_fit with the same arguments and folder={str(folder)!r}."
    )


def finish(run: Run, folder: Path) -> tuple[Trained, str]:
    """The model of a trained run, and its error on held-out tasks or classes in words.

    What is fitted beside a model of regression tasks goes into a file next to the run, which `open_trained` prefers.

    Args:
        run: a trained run with one seed.
        folder: the folder that `open_training` made it in.
    """
    if not trees_of(run.experiment):
        return open_trained(folder), held_out_result(run)
    trained, error = stack(open_trained(run.checkpoint_file), run.config.training.seeds[0])
    trained.save(folder / FINISHED)
    return open_trained(folder), _in_units_of_y(run.experiment.tasks, np.sqrt(error))


def held_out_result(run: Run) -> str:
    """The validation error in words; in classification beside that of the nearest class mean, if it was measured.

    Args:
        run: a trained run with one seed.
    """
    record, tasks = run.record, run.experiment.tasks
    if not record.best_error:
        return "not validated, since training.validate_every = 0"
    if tasks.problem == "regression":
        return _held_out_error(run)
    result = f"accuracy {1 - record.best_error[0]:.4f} on held-out classes ({tasks.classes}-way)"
    # Training starts as a nearest class mean if the model has a similarity term.
    if record.first_error and has_setting(run.config, "model.similarity.temperature"):
        result += f"; nearest class mean {nearest_mean_accuracy(run.experiment):.4f}"
    return result


def _held_out_error(run: Run) -> str:
    """The root mean squared error on held-out tasks, in the units of y if there is one output."""
    models = run.models()
    validation = Validation(models, run.experiment)
    validation(models)
    return _in_units_of_y(run.experiment.tasks, np.sqrt(validation.metrics["mse"]))


def _in_units_of_y(tasks: TaskSource, rmse: float) -> str:
    dx, dy = tasks.sizes
    scale = np.ravel(tasks.scaling(np.zeros((1, dx)), np.zeros((1, dy))).outputs.deviation)
    if dy > 1:
        return f"RMSE {rmse:.3g} on held-out tasks, in standard deviations of each output"
    return f"RMSE {rmse * scale[0]:.3g} on held-out tasks, where y has a standard deviation of {scale[0]:.3g}"


def open_training(folder: Path, data: TrainingData, config: Config) -> Run:
    """Starts a run in a folder that also keeps its data, or resumes the run there if data and settings agree.

    Args:
        folder: the folder; the run goes to `run` in it, the table to `data` and its description to `DESCRIPTION`.
        data: the data.
        config: the configuration.
    """
    kept, run_folder, table = subfolder(folder, "data"), subfolder(folder, "run"), data.table
    if not (kept / table.name).exists():
        save_table(table, kept, "arrays")
    same = open_table_folder(kept / table.name).fingerprint == table.fingerprint
    experiment = resolve(with_changes(config, {"tasks.data": str(kept / table.name)}))
    is_new = same and RunFolder.is_free(run_folder)
    run = Run(run_folder) if same and not is_new else None
    if not is_new and (run is None or run.experiment != experiment):
        raise InvalidData(
            f"{folder} holds a training on other arrays or with other settings; choose another folder, or remove it."
        )
    # Until this training is finished, its own checkpoint is the model.
    (folder / FINISHED).unlink(missing_ok=True)
    write_atomically(folder / DESCRIPTION, json.dumps(data.description()).encode())
    return run or Run.create(run_folder, experiment)


def remove_training(folder: Path) -> None:
    """Removes what `open_training` made, and nothing else."""
    if (folder / "run" / "config.toml").is_file():
        RunFolder.open(subfolder(folder, "run")).clear()
        for name in ("run", "data"):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in (DESCRIPTION, FINISHED):
            (folder / name).unlink(missing_ok=True)
