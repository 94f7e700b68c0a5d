"""CSV files and folders of images in; contexts and predictions out."""

import math
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.csv_columns import read_csv
from ..data.frames import ColumnTable
from ..data.images import entries, folders, pixels
from ..data.pieces import Piece
from ..data.table import printable
from ..errors import InvalidCheckpoint, InvalidConfig, InvalidData, suggest
from .classifier import MetaFunClassifier
from .notes import ColumnChoice, Notes, errors_about, id_hints
from .regressor import MetaFunRegressor, normal_quantiles
from .trained import Trained


@dataclass(frozen=True)
class LabelledRows:
    """A context from a file or folder.

    Args:
        path: the file or folder.
        labels: names of the columns of labels; only regression may have several.
        x: inputs: the columns of a file, or pixels [n, dx].
        y: outputs, [n] or [n, dy], or labels, [n].
        task: the task of the rows, if the model was trained on tasks with names and the file says which it is.
    """

    path: Path
    labels: list[str]
    x: Any
    y: Any
    task: str | None = None


def read_context(
    path: Path, labels: Sequence[str], trained: Trained, choice: ColumnChoice, notes: Notes
) -> LabelledRows:
    """Labelled rows for a model.

    Args:
        path: a CSV file, or a folder with a subfolder of images for each class.
        labels: columns of the labels; empty: the target the model was trained on, or the last column.
        trained: the model; if it was trained on a file, columns are matched by their names there.
        choice: which of the other columns are inputs, for a model of any table.
        notes: receives warnings and the files and classes that are left out.
    """
    if path.is_dir():
        return _read_class_folders(path, labels, trained, notes)
    columns, learned = read_csv(path), trained_columns(trained)
    names = list(labels) or (_trained_targets(trained) if learned else []) or columns.names[-1:]
    for name in names:
        if name not in columns.names:
            raise InvalidData(
                f"{path} has no column '{name}', {'' if labels else 'which the model predicts, '}for --target; "
                + suggest(name, columns.names)
            )
    if learned and choice.is_made:
        raise InvalidConfig(
            f"the model was trained on the columns {', '.join(learned)}; --columns and --drop do not apply."
        )
    task = _task_of(columns, trained)
    inputs = learned or choice.inputs(columns, names)
    if trained.tasks.problem == "classification" and len(names) > 1:
        raise InvalidConfig(f"a classifier has one target; got {', '.join(names)}.")
    y: Any = columns.labels(names[0]) if trained.tasks.problem == "classification" else columns.numbers(names)
    if len(names) == 1:
        y = np.ravel(y)
    kinds = {} if trained.encoding is None else {code.name: code.kind for code in trained.encoding.columns}
    x = ColumnTable([columns.column(name, kinds.get(name)) for name in inputs])
    if not learned:
        notes.warnings.extend(f"{path}: {hint}" for hint in id_hints(columns, x.columns))
    return LabelledRows(path, names, x, y, task)


def _task_of(columns: Piece, trained: Trained) -> str | None:
    """The task of the rows, if the file says which; InvalidData if there are several: the model takes them for one."""
    name = trained.record.get("task")
    tasks = sorted(columns.distinct(name)) if isinstance(name, str) else []
    if len(tasks) > 1:
        raise InvalidData(
            f"{columns.path} has rows of {len(tasks):,} tasks in '{name}', but each call is about one task; give the "
            "rows of one."
        )
    return tasks[0] if tasks else None


def _trained_targets(trained: Trained) -> list[str]:
    """The columns that the model predicts; empty where they have no names."""
    target = trained.record.get("target")
    names = [target] if isinstance(target, str) else target or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidCheckpoint("the model has a damaged header: its target is not the name of a column.")
    return names


def trained_columns(trained: Trained) -> list[str]:
    """Names of the columns that the model was trained on; empty where they have none."""
    if trained.encoding is not None:
        return trained.encoding.names if trained.encoding.named else []
    columns = trained.record.get("columns")  # of version 0.1
    return [str(name) for name in columns] if isinstance(columns, list) else []


def _read_class_folders(path: Path, labels: Sequence[str], trained: Trained, notes: Notes) -> LabelledRows:
    side, colour = _image_format(path, trained)
    classes = folders(path, path, notes.left_out)
    class_of = {file: folder.name for folder in classes for file in entries(folder, path, notes.left_out)}
    rows = _read_pixels(class_of, side, colour, notes)
    if not rows:
        raise InvalidData(f"{path} has no readable images; expected a folder of images for each class.")
    y = [class_of[file] for file in rows]
    for empty in sorted({folder.name for folder in classes} - set(y)):
        notes.left_out.append(printable(f"{path / empty}: no readable image, so no class"))
    return LabelledRows(path, list(labels[:1]) or ["class"], np.stack(list(rows.values())), y)


def fit_context(trained: Trained, context: LabelledRows, notes: Notes) -> MetaFunRegressor | MetaFunClassifier:
    """An estimator fitted to labelled rows.

    Args:
        trained: the model.
        context: the labelled rows.
        notes: receives warnings.
    """
    estimator = MetaFunRegressor if trained.tasks.problem == "regression" else MetaFunClassifier
    with errors_about(context.path, notes):
        return estimator(trained).fit(context.x, context.y)


def predict_rows(
    estimator: MetaFunRegressor | MetaFunClassifier,
    path: Path,
    context: LabelledRows,
    notes: Notes,
    quantiles: Sequence[float] = (),
) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """The columns of a file, or the names of the images in a folder; and columns of predictions for its rows.

    Predictions are labels and probabilities, or means, standard deviations and quantiles.

    Args:
        estimator: the result of `fit_context`.
        path: a CSV file with the input columns of `context`, or a folder of images.
        context: the labelled rows.
        notes: receives warnings and the files that are left out.
        quantiles: quantiles of a regressor's predictions, between 0 and 1.
    """
    given, x = _read_new_rows(path, context, estimator, notes)
    with errors_about(path, notes):
        predicted = predicted_columns(estimator, x, context.labels, quantiles)
    return given, beside(given, predicted)


def beside(given: Container[str], predicted: dict[str, Any]) -> dict[str, Any]:
    """The predictions under names that no given column has."""
    return {f"{name} (predicted)" if name in given else name: found for name, found in predicted.items()}


def predicted_columns(
    estimator: MetaFunRegressor | MetaFunClassifier, x: Any, labels: list[str], quantiles: Sequence[float] = ()
) -> dict[str, Any]:
    """Columns of predictions: labels and probabilities, or means, standard deviations and quantiles.

    Args:
        estimator: the fitted estimator.
        x: the rows to predict.
        labels: names of the predicted columns.
        quantiles: quantiles of a regressor's predictions, between 0 and 1.
    """
    if not isinstance(estimator, MetaFunClassifier):
        return _regress(estimator, x, labels, quantiles)
    if quantiles:
        raise InvalidConfig("a classifier predicts probabilities, no quantiles; leave --quantiles out.")
    return _classify(estimator, x, labels[0])


def _read_new_rows(
    path: Path, context: LabelledRows, estimator: MetaFunRegressor | MetaFunClassifier, notes: Notes
) -> tuple[dict[str, list[str]], ColumnTable | NDArray]:
    if path.is_dir():
        side, colour = _image_format(path, estimator.trained_)
        rows = _read_pixels(files_below(path, path, notes), side, colour, notes)
        if not rows:
            raise InvalidData(f"{path} has no readable images; expected images.")
        return {"file": [str(file.relative_to(path)) for file in rows]}, np.stack(list(rows.values()))
    if isinstance(context.x, np.ndarray):
        raise InvalidData(f"{context.path} is a folder of images, but {path} is not; give a folder of images too.")
    columns = read_csv(path)
    check_task(columns, estimator.trained_, context.task, str(context.path))
    return columns.entries, ColumnTable([columns.column(like.name, like.kind) for like in context.x.columns])


def check_task(columns: Piece, trained: Trained, task: str | None, whose: str) -> str | None:
    """The task of the rows, if they say which; InvalidData if there are several, or it is not `task`.

    Args:
        columns: the rows.
        trained: the model.
        task: the task of the context, if it is known.
        whose: what has rows of that task, for the message.
    """
    found = _task_of(columns, trained)
    if found != task and None not in (found, task):
        raise InvalidData(
            printable(f"{columns.path} has rows of '{found}', but {whose} of '{task}'; give those of one task.")
        )
    return found


def _classify(estimator: MetaFunClassifier, x: Any, label: str) -> dict[str, Any]:
    shares = estimator.predict_proba(x)
    found = {label: estimator.classes_[shares.argmax(1)]}
    return found | {f"P({name})": shares[:, k] for k, name in enumerate(estimator.classes_)}


def _regress(estimator: MetaFunRegressor, x: Any, labels: list[str], quantiles: Sequence[float]) -> dict[str, Any]:
    if not estimator.predicts_std and not quantiles:
        mean = np.reshape(estimator.predict(x), (-1, len(labels)))
        return {label: mean[:, i] for i, label in enumerate(labels)}
    predicted = [np.reshape(found, (-1, len(labels))) for found in estimator.predict(x, return_std=True)]
    columns: dict[str, Any] = {}
    for i, label in enumerate(labels):
        mean, std = (found[:, i] for found in predicted)
        columns |= {label: mean, f"{label}_std": std}
        columns |= {
            f"{label}_q{q:g}": found for q, found in zip(quantiles, normal_quantiles(mean, std, quantiles), strict=True)
        }
    return columns


def _image_format(folder: Path, trained: Trained) -> tuple[int, bool]:
    """The side of the model's images in pixels, and whether they have colours."""
    image = trained.tasks.image
    if image is None:
        raise InvalidData(f"{folder} is a folder, but the model takes no images; give it a CSV file.")
    return image[0], trained.tasks.sizes[0] == 3 * math.prod(image)


def files_below(folder: Path, root: Path, notes: Notes) -> list[Path]:
    """The files in a folder and its subfolders, without hidden ones and links that lead out; arguments of `entries`."""
    found = []
    for path in entries(folder, root, notes.left_out):
        if not path.is_dir():
            found.append(path)
        elif not path.is_symlink():
            found += files_below(path, root, notes)
    return found


def _read_pixels(files: Iterable[Path], side: int, colour: bool, notes: Notes) -> dict[Path, NDArray]:
    """A row of pixels for each readable file."""
    rows = {}
    for file in files:
        try:
            rows[file] = pixels(file, side, colour)
        except InvalidData as error:
            notes.left_out.append(str(error))
    return rows
