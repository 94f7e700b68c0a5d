"""metafun fit | predict | export: files of one's own in, predictions out."""

import contextlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.markup import escape

from ..config import Config, EpisodesConfig, parse_setting
from ..data import Table
from ..data.arrays import read_npz
from ..data.csv_columns import read_csv, write_csv
from ..data.images import entries, folders, pixels
from ..data.table import printable
from ..errors import InvalidConfig, InvalidData, MetaFunError
from ..estimators.trained import SHIPPED, Trained, locate, open_trained
from ..training.checkpoint import read_header
from . import running
from .console import AsJson, app, err, out
from .running import Settings

# scikit-learn is slow to import; the other commands do not need it.
if TYPE_CHECKING:
    from ..estimators.base import MetaFunClassifier, MetaFunRegressor

Model = Annotated[
    str, typer.Option("--model", help=f"A shipped checkpoint ({', '.join(SHIPPED)}), a run folder or a file.")
]
Context = Annotated[
    Path,
    typer.Option(
        "--context", help="The few rows whose labels are known: a CSV file, or a folder with images for each class."
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="The labels in the context; if not given, what the model learned to predict, or the last column.",
        show_default=False,
    ),
]


@app.command()
def fit(
    path: Annotated[Path, typer.Argument(metavar="CSV_OR_NPZ", help="The tasks or classes to learn from.")],
    target: Annotated[str, typer.Option("--target", metavar="COLUMN", help="What is to be predicted.")],
    task: Annotated[
        str | None,
        typer.Option(
            "--task", metavar="COLUMN", help="Regression: which rows belong to the same task.", show_default=False
        ),
    ] = None,
    model: Annotated[Path, typer.Option("--out", help="Where the model goes.")] = Path("model.safetensors"),
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps of training.", show_default=False)] = None,
    settings: Settings = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the training and of what is held out.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model.")] = False,
) -> None:
    """Learn to learn from a file of your own.

    For classification the target is the class of each row, and the model learns to tell classes apart that it has not
    seen. For regression rows belong to tasks, and the model learns to predict a new task from a few of its rows. Some
    of the classes or tasks are held out and tell when to stop. Ctrl-C at any time; the same command goes on.

    Examples:

      metafun fit features.csv --target species --out species.safetensors

      metafun fit sensors.csv --target temperature --task sensor --out sensors.safetensors

      metafun fit arrays.npz --target y            # X [rows, columns] and y [rows]
    """
    from ..estimators import meta_fit as own

    folder = model.with_suffix(".run")
    if folder == model:
        raise InvalidConfig(f"{model} is where the training would go; choose an --out that does not end in .run.")
    if model.exists() and not overwrite:
        raise InvalidConfig(f"{model} exists already; replace it with --overwrite, or choose another --out.")
    x, y, groups, columns = _read(path, target, task)
    changes = own.chosen(steps, seed, dict(map(parse_setting, settings or ())))
    with _mistakes_in(path):
        table, config = _classes(x, y, changes, seed) if groups is None else _regression(x, y, groups, changes, seed)
    if overwrite:
        own.remove_own(folder)
    run = own.open_own(folder, table, config)
    try:
        running.train(run)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command goes on from there.") from None
    open_trained(run.path).save(model, record={"columns": columns, "target": target})
    (error,) = run.record.best_error
    held = f"negative log-likelihood of held-out tasks, scaled, {error:.4f}"
    if isinstance(config.tasks, EpisodesConfig):
        held = f"accuracy on held-out classes, {config.tasks.ways} at a time, {1 - error:.4f}"
    err.print(escape(f"{model}: {held}. Next: metafun predict --model {model} --context … --target …"))


@app.command()
def predict(
    model: Model,
    context: Context,
    target: Annotated[
        Path, typer.Option("--target", help="The rows to be predicted: a CSV file, or a folder of images.")
    ],
    label: Label = None,
    predictions: Annotated[Path, typer.Option("--out", help="Where the predictions go.")] = Path("predictions.csv"),
    as_json: AsJson = False,
) -> None:
    """Predict rows from a few labelled ones, with uncertainty or probabilities.

    Columns are matched by name. The predictions stand beside the columns of the target file.

    Examples:

      metafun predict --model gp-rbf --context labelled.csv --target unlabelled.csv

      metafun predict --model species.safetensors --context five.csv --target rest.csv --label species --json

      metafun predict --model tables-classification --context labelled.csv --target unlabelled.csv

      metafun predict --model runs/images --context known/ --target new/
    """
    if not as_json:
        _check_free(predictions)
    trained = open_trained(model)
    known = _labelled(context, label, trained, _columns(model))
    estimator = _fitted(trained, known)
    asked, x = _unlabelled(target, known, trained)
    with _mistakes_in(target):
        found = {_beside(name, asked): values for name, values in _answers(estimator, x, known.label).items()}
    if as_json:
        # Rows of a file are known by their order; of the images in a folder some may have been left out.
        said = {**asked, **found} if target.is_dir() else found
        print(json.dumps({name: np.asarray(values).tolist() for name, values in said.items()}))
        return
    write_csv(predictions, {**asked, **found})
    out.print(f"{predictions}: {len(x):,} rows from {len(known.x):,} labelled ones")


@app.command()
def export(
    model: Model,
    context: Context,
    label: Label = None,
    program: Annotated[Path, typer.Option("--out", help="Where the program goes.")] = Path("learner.stablehlo"),
) -> None:
    """Write what a model predicts for this context as one program (StableHLO) that needs nothing but JAX.

    Examples:

      metafun export --model gp-rbf --context labelled.csv --out learner.stablehlo
    """
    _check_free(program)
    trained = open_trained(model)
    estimator = _fitted(trained, _labelled(context, label, trained, _columns(model)))
    estimator.export(program)
    out.print(f"{program}: rows of {estimator.n_features_in_} numbers in, predictions out")


def _check_free(path: Path) -> None:
    if path.exists():
        raise InvalidConfig(f"{path} exists already; choose another --out.")
    if not path.parent.is_dir():
        raise InvalidConfig(f"there is no folder {path.parent}; make it, or choose another --out.")


def _columns(model: str) -> dict[str, Any]:
    """What the columns of the file were called that the model learned from, where that is known."""
    record = read_header(locate(model))[1]
    return record if isinstance(record.get("columns"), list) and record["columns"] else {}


def _beside(name: str, there: Mapping[str, Any]) -> str:
    """A name for a new column beside those that are there."""
    return name if name not in there else f"{name} (predicted)"


def _read(path: Path, target: str, task: str | None) -> tuple[NDArray, Any, Any, list[str]]:
    """Inputs, targets, the task of each row where there are tasks, and the names of the inputs."""
    if path.suffix != ".npz":
        columns = read_csv(path)
        for name in (target, task):
            columns.expect(name)
        if task == target:
            raise InvalidConfig(f"--task and --target are both '{target}'; a task is known by another column.")
        inputs = [name for name in columns.names if name not in (target, task)]
        y = columns.labels(target) if task is None else columns.numbers([target])[:, 0]
        return columns.numbers(inputs), y, None if task is None else columns.labels(task), inputs
    arrays = read_npz(path, [name for name in ("X", target, task) if name is not None])
    for name in ("X", target, task):
        if name is not None and name not in arrays:
            raise InvalidData(f"{path} has no array '{name}'; it needs X, {target}{f' and {task}' if task else ''}.")
    return arrays["X"], arrays[target], None if task is None else arrays[task], []


def _regression(x: NDArray, y: NDArray, groups: Any, changes: Mapping[str, Any], seed: int) -> tuple[Table, Config]:
    from ..estimators import meta_fit as own

    groups = np.asarray(groups)
    if len(groups) != len(x):
        raise InvalidData(f"{len(x):,} rows, but {len(groups):,} tasks; give one a row.")
    names = np.unique(groups)
    tasks = [(x[groups == name], y[groups == name]) for name in names]
    table, outputs = own.regression_table(tasks, seed, [f"'{name}'" for name in names])
    return table, own.regression_config(table, outputs, changes)


def _classes(x: NDArray, y: Any, changes: Mapping[str, Any], seed: int) -> tuple[Table, Config]:
    from ..estimators import meta_fit as own

    labels = np.asarray(y)
    if labels.dtype.kind == "f" or (labels.dtype.kind == "U" and len(set(y)) > len(y) / 2):
        why = "are not whole numbers" if labels.dtype.kind == "f" else "are almost all different"
        raise InvalidData(
            f"the targets {why}, so that they are hardly classes; for regression say which rows belong to the same "
            "task with --task COLUMN."
        )
    table = own.classification_table(x, labels, seed)
    return table, own.classification_config(table, changes)


@contextlib.contextmanager
def _mistakes_in(path: Path) -> Iterator[None]:
    """What scikit-learn finds wrong with arrays is wrong with the file they came from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except MetaFunError:
            raise
        except ValueError as error:
            raise InvalidData(f"{path}: {str(error).splitlines()[0]}") from None
    for warning in caught:
        err.print(escape(f"warning: {path}: {warning.message}"))


@dataclass(frozen=True)
class Labelled:
    """A context: rows, what is known of them, and what both are called."""

    path: Path
    inputs: list[str]
    label: str
    x: NDArray
    y: Any


def _labelled(path: Path, label: str | None, trained: Trained, learned: Mapping[str, Any]) -> Labelled:
    """Rows of a CSV file, or images in a folder for each class. A model knows what its columns were called."""
    if path.is_dir():
        problems: list[str] = []
        classes = folders(path, path, problems)
        files = {file: folder.name for folder in classes for file in entries(folder, path, problems)}
        x, kept = _pixels(path, list(files), trained, problems, "a folder of images for each class")
        names = [files[file] for file in kept]
        for lost in sorted({folder.name for folder in classes} - set(names)):
            err.print(escape(printable(f"left out: {path / lost}: no image that can be read, and so no class")))
        return Labelled(path, [], label or "class", x, names)
    columns = read_csv(path)
    label = label or learned.get("target") or columns.names[-1]
    if label not in columns.names:
        raise InvalidData(f"{path} has no column '{label}', which the model predicts; name the labels with --label.")
    inputs = learned.get("columns") or [name for name in columns.names if name != label]
    regression = trained.config.model.problem == "regression"
    y = columns.numbers([label])[:, 0] if regression else columns.labels(label)
    return Labelled(path, inputs, label, columns.numbers(inputs, trained.config.tasks.accepts_any_table), y)


def _unlabelled(path: Path, known: Labelled, trained: Trained) -> tuple[dict[str, list[str]], NDArray]:
    """The columns of a CSV file, or the names of the files in a folder; and the rows that they are."""
    if path.is_dir():
        problems: list[str] = []
        x, kept = _pixels(path, _files(path, path, problems), trained, problems, "images")
        return {"file": [str(file.relative_to(path)) for file in kept]}, x
    if known.path.is_dir():
        raise InvalidData(f"{known.path} is a folder of images, so that {path} must be one too, and is not.")
    columns = read_csv(path)
    return columns.entries, columns.numbers(known.inputs, trained.config.tasks.accepts_any_table)


def _files(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    """Those in a folder and in the folders in it."""
    found = []
    for path in entries(folder, root, problems):
        if not path.is_dir():
            found.append(path)
        elif not path.is_symlink():
            found += _files(path, root, problems)
    return found


def _pixels(
    folder: Path, files: Sequence[Path], trained: Trained, problems: list[str], expected: str
) -> tuple[NDArray, list[Path]]:
    """Rows of pixels as the model takes them, and the files they come from; what is left out is named."""
    image = getattr(trained.config.tasks, "image", None)
    if image is None:
        raise InvalidData(f"{folder} is a folder, but the model takes no images; give it a CSV file.")
    rows = {}
    for file in files:
        try:
            rows[file] = pixels(file, image[0], trained.config.tasks.sizes[0] == 3 * math.prod(image))
        except InvalidData as error:
            problems.append(str(error))
    for problem in problems:
        err.print(escape(f"left out: {problem}"))
    if not rows:
        raise InvalidData(f"{folder} has no images that can be read; expected {expected}.")
    return np.stack(list(rows.values())), list(rows)


def _fitted(trained: Trained, known: Labelled) -> "MetaFunRegressor | MetaFunClassifier":
    from ..estimators.base import MetaFunClassifier, MetaFunRegressor

    estimator = MetaFunRegressor if trained.config.model.problem == "regression" else MetaFunClassifier
    with _mistakes_in(known.path):
        return estimator(trained).fit(known.x, known.y)


def _answers(estimator: "MetaFunRegressor | MetaFunClassifier", x: NDArray, label: str) -> dict[str, Any]:
    from ..estimators.base import MetaFunClassifier

    if isinstance(estimator, MetaFunClassifier):
        shares = estimator.predict_proba(x)
        found = {label: estimator.classes_[shares.argmax(1)]}
        return found | {f"P({name})": shares[:, k] for k, name in enumerate(estimator.classes_)}
    if not estimator.predicts_std:
        return {label: estimator.predict(x)}
    mean, std = estimator.predict(x, return_std=True)
    return {label: mean, f"{label}_std": std}
