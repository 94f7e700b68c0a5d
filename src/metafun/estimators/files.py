"""CSV files, .npz files and folders of images in; training data, contexts and predictions out."""

import contextlib
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.arrays import read_npz
from ..data.csv_columns import read_csv
from ..data.images import entries, folders, pixels
from ..data.table import printable
from ..errors import InvalidConfig, InvalidData, MetaFunError
from .classifier import MetaFunClassifier
from .meta_fit import TrainingData, classification_data, regression_data
from .regressor import MetaFunRegressor
from .trained import Trained


@dataclass(frozen=True)
class Notes:
    """What a caller should show its user.

    Args:
        left_out: a line for each file or class that is left out.
        warnings: a line for each warning about the values in a file.
    """

    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LabelledRows:
    """A context from a file or folder.

    Args:
        path: the file or folder.
        inputs: names of the input columns; empty for images.
        label: name of the column of labels.
        x: inputs, [n, dx].
        y: outputs or labels, [n].
    """

    path: Path
    inputs: list[str]
    label: str
    x: NDArray
    y: Any


def read_training_data(
    path: Path, target: str, task: str | None, seed: int, notes: Notes
) -> tuple[TrainingData, list[str]]:
    """Data to meta-train on and the names of its input columns (empty for .npz).

    Args:
        path: a CSV file, or an .npz file with the inputs in X.
        target: column or array of the outputs (regression) or labels (classification).
        task: column or array that names the task of each row, for regression; None for classification.
        seed: seed of the choice of held-out tasks or classes.
        notes: receives warnings.
    """
    x, y, groups, inputs = (_read_npz if path.suffix == ".npz" else _read_columns)(path, target, task)
    with _errors_about(path, notes):
        return _classes(x, y, seed) if groups is None else _tasks(x, y, groups, seed), inputs


def _read_columns(path: Path, target: str, task: str | None) -> tuple[NDArray, Any, Any, list[str]]:
    columns = read_csv(path)
    for name in (target, task):
        columns.expect(name)
    if task == target:
        raise InvalidConfig(f"--task and --target are both '{target}'; give the task of each row in another column.")
    inputs = [name for name in columns.names if name not in (target, task)]
    if task is None:
        return columns.numbers(inputs), columns.labels(target), None, inputs
    return columns.numbers(inputs), columns.numbers([target])[:, 0], columns.labels(task), inputs


def _read_npz(path: Path, target: str, task: str | None) -> tuple[NDArray, Any, Any, list[str]]:
    names = [name for name in ("X", target, task) if name is not None]
    arrays = read_npz(path, names)
    for name in names:
        if name not in arrays:
            raise InvalidData(f"{path} has no array '{name}'; it needs X, {target}{f' and {task}' if task else ''}.")
    return arrays["X"], arrays[target], None if task is None else arrays[task], []


def _tasks(x: NDArray, y: NDArray, groups: Any, seed: int) -> TrainingData:
    groups = np.asarray(groups)
    if len(groups) != len(x):
        raise InvalidData(f"{len(x):,} rows, but {len(groups):,} tasks; give one task for each row.")
    names = np.unique(groups)
    tasks = [(x[groups == name], y[groups == name]) for name in names]
    return regression_data(tasks, seed, [f"'{name}'" for name in names])


def _classes(x: NDArray, y: Any, seed: int) -> TrainingData:
    labels = np.asarray(y)
    if labels.dtype.kind == "f" or (labels.dtype.kind == "U" and len(set(y)) > len(y) / 2):
        reason = "are not whole numbers" if labels.dtype.kind == "f" else "are almost all different"
        raise InvalidData(
            f"the targets {reason}, so they are hardly classes; for regression name the column with the task of each "
            "row: --task COLUMN."
        )
    return classification_data(x, labels, seed)


def read_context(path: Path, label: str | None, trained: Trained, notes: Notes) -> LabelledRows:
    """Labelled rows for a model.

    Args:
        path: a CSV file, or a folder with a subfolder of images for each class.
        label: column of the labels; default: the target the model was trained on, or the last column.
        trained: the model; if it was trained on a file, columns are matched by their names there.
        notes: receives the files and classes that are left out.
    """
    if path.is_dir():
        return _read_class_folders(path, label, trained, notes)
    columns, record = read_csv(path), trained.record
    learned = record if isinstance(record.get("columns"), list) and record["columns"] else {}
    label = label or learned.get("target") or columns.names[-1]
    if label not in columns.names:
        raise InvalidData(f"{path} has no column '{label}', which the model predicts; name the labels with --label.")
    inputs = learned.get("columns") or [name for name in columns.names if name != label]
    regression = trained.tasks.problem == "regression"
    y = columns.numbers([label])[:, 0] if regression else columns.labels(label)
    return LabelledRows(path, inputs, label, columns.numbers(inputs, trained.tasks.accepts_any_table), y)


def _read_class_folders(path: Path, label: str | None, trained: Trained, notes: Notes) -> LabelledRows:
    side, colour = _image_format(path, trained)
    classes = folders(path, path, notes.left_out)
    class_of = {file: folder.name for folder in classes for file in entries(folder, path, notes.left_out)}
    rows = _read_pixels(class_of, side, colour, notes)
    if not rows:
        raise InvalidData(f"{path} has no readable images; expected a folder of images for each class.")
    y = [class_of[file] for file in rows]
    for empty in sorted({folder.name for folder in classes} - set(y)):
        notes.left_out.append(printable(f"{path / empty}: no readable image, so no class"))
    return LabelledRows(path, [], label or "class", np.stack(list(rows.values())), y)


def fit_context(trained: Trained, context: LabelledRows, notes: Notes) -> MetaFunRegressor | MetaFunClassifier:
    """An estimator fitted to labelled rows.

    Args:
        trained: the model.
        context: the labelled rows.
        notes: receives warnings.
    """
    estimator = MetaFunRegressor if trained.tasks.problem == "regression" else MetaFunClassifier
    with _errors_about(context.path, notes):
        return estimator(trained).fit(context.x, context.y)


def predict_rows(
    estimator: MetaFunRegressor | MetaFunClassifier, path: Path, context: LabelledRows, notes: Notes
) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """The columns of a file, or the names of the images in a folder; and columns of predictions for its rows.

    Predictions are labels and probabilities, or means and standard deviations.

    Args:
        estimator: the result of `fit_context`.
        path: a CSV file with the input columns of `context`, or a folder of images.
        context: the labelled rows.
        notes: receives warnings and the files that are left out.
    """
    given, x = _read_targets(path, context, estimator.trained_, notes)
    with _errors_about(path, notes):
        predicted = _predict(estimator, x, context.label)
    return given, {f"{name} (predicted)" if name in given else name: found for name, found in predicted.items()}


def _read_targets(
    path: Path, context: LabelledRows, trained: Trained, notes: Notes
) -> tuple[dict[str, list[str]], NDArray]:
    if path.is_dir():
        side, colour = _image_format(path, trained)
        rows = _read_pixels(_files_below(path, path, notes), side, colour, notes)
        if not rows:
            raise InvalidData(f"{path} has no readable images; expected images.")
        return {"file": [str(file.relative_to(path)) for file in rows]}, np.stack(list(rows.values()))
    if context.path.is_dir():
        raise InvalidData(f"{context.path} is a folder of images, but {path} is not; give a folder of images too.")
    columns = read_csv(path)
    return columns.entries, columns.numbers(context.inputs, trained.tasks.accepts_any_table)


def _predict(estimator: MetaFunRegressor | MetaFunClassifier, x: NDArray, label: str) -> dict[str, Any]:
    if isinstance(estimator, MetaFunClassifier):
        shares = estimator.predict_proba(x)
        found = {label: estimator.classes_[shares.argmax(1)]}
        return found | {f"P({name})": shares[:, k] for k, name in enumerate(estimator.classes_)}
    if not estimator.predicts_std:
        return {label: estimator.predict(x)}
    mean, std = estimator.predict(x, return_std=True)
    return {label: mean, f"{label}_std": std}


def _image_format(folder: Path, trained: Trained) -> tuple[int, bool]:
    """The side of the model's images in pixels, and whether they have colours."""
    image = trained.tasks.image
    if image is None:
        raise InvalidData(f"{folder} is a folder, but the model takes no images; give it a CSV file.")
    return image[0], trained.tasks.sizes[0] == 3 * math.prod(image)


def _files_below(folder: Path, root: Path, notes: Notes) -> list[Path]:
    found = []
    for path in entries(folder, root, notes.left_out):
        if not path.is_dir():
            found.append(path)
        elif not path.is_symlink():
            found += _files_below(path, root, notes)
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


@contextlib.contextmanager
def _errors_about(path: Path, notes: Notes) -> Iterator[None]:
    """Names the file in errors and warnings of scikit-learn about the arrays that were read from it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except MetaFunError:
            raise
        except ValueError as error:
            raise InvalidData(f"{path}: {str(error).splitlines()[0]}") from None
    notes.warnings.extend(f"{path}: {warning.message}" for warning in caught)
