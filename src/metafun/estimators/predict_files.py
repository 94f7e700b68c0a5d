"""Predictions for one file of any size, piece by piece."""

import copy
import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.encoding import ColumnCode
from ..data.frames import Column, ColumnTable
from ..data.pieces import FORMATS, Piece
from ..data.table import printable, shortened
from ..errors import InvalidTask, MetaFunError
from ..files import replacing
from ..training.checkpoint import arrays
from .classifier import MetaFunClassifier
from .files import beside, check_task, predicted_columns
from .notes import Notes, errors_about
from .regressor import MetaFunRegressor

# Warnings of a file that are kept; every piece may repeat one with other numbers.
MOST_WARNINGS = 3


@dataclass(frozen=True)
class FileResult:
    """What became of a file.

    Args:
        path: the file.
        rows: number of its rows that were predicted.
        problem: why it could not be predicted, in one line that names it; None if it was.
        warnings: the first warnings about its values, each naming it.
    """

    path: Path
    rows: int = 0
    problem: str | None = None
    warnings: tuple[str, ...] = ()


class FilePredictor:
    """Predicts files with a fitted estimator. A pickle of it holds the model, and needs no other file.

    Args:
        estimator: fitted to a data frame, whose columns the files have too; InvalidTask if it was fitted to an array.
        labels: names of the predicted columns.
        quantiles: quantiles of a regressor's predictions, between 0 and 1.
        task: the task of the context, in a model of tasks with names; files of another are refused.
    """

    def __init__(
        self,
        estimator: MetaFunRegressor | MetaFunClassifier,
        labels: Sequence[str],
        quantiles: Sequence[float] = (),
        task: str | None = None,
    ):
        encoding = estimator.encoding_
        if encoding is None or not encoding.named:
            raise InvalidTask(
                "the estimator was fitted to an array, so that nothing says which columns of the files are its "
                "inputs; fit it to a data frame."
            )
        # A shallow copy with the model itself, instead of its name or file, which another machine may not have.
        self._estimator = copy.copy(estimator)
        self._estimator.checkpoint = self._trained = estimator.trained_
        self._estimator.__dict__.pop("feature_names_in_", None)  # columns are chosen by their names in the encoding
        self._encoding, self._labels, self._quantiles, self._task = encoding, list(labels), list(quantiles), task
        # The columns of predictions for a file without rows.
        with warnings.catch_warnings(action="ignore"):
            row = ColumnTable([_some_entry(code) for code in encoding.columns])
            self._none = {name: np.asarray(found)[:0] for name, found in self._predict_table(row).items()}

    def __call__(self, source: Path, destination: Path) -> FileResult:
        """Predicts a file and writes its columns and the predictions in its format: all of it, or nothing.

        Args:
            source: the file; the end of its name says its format.
            destination: the file to write.
        """
        notes, rows, form = Notes(), 0, FORMATS[source.suffix.lower()]
        try:
            with replacing(destination) as file, form.writer(file) as write:
                task = self._task
                for piece in form.pieces(source):
                    task = check_task(piece, self._trained, task, "others") or task
                    write(piece, beside(piece.names, self._predict(piece, notes)))
                    rows += len(piece)
        except (MetaFunError, OSError) as error:
            problem = printable(shortened(error))
            return FileResult(source, 0, problem if str(source) in problem else f"{source}: {problem}")
        return FileResult(source, rows, warnings=tuple(dict.fromkeys(notes.warnings))[:MOST_WARNINGS])

    def prepare(self) -> None:
        """Encodes the context, as the first prediction would."""
        self._estimator._ensure_encoded()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of everything that the predictions depend on, but the version of metafun."""
        estimator, trained, digest = self._estimator, self._trained, hashlib.sha256()
        context = {"X": estimator.X_, "y": np.asarray(estimator.y_).astype(str)}
        for name, array in sorted({**arrays("model", trained.model), **context}.items()):
            array = np.ascontiguousarray(array)
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
        described: list[Any] = [self._encoding.table(), self._labels, self._quantiles, self._task]
        described += [trained.is_mixed, estimator._options]
        digest.update(f"{trained.experiment.config.to_toml()}{json.dumps(described)}".encode())
        return digest.hexdigest()

    def _predict(self, piece: Piece, notes: Notes) -> dict[str, Any]:
        if not len(piece):
            return self._none
        table = ColumnTable([piece.column(code.name, code.kind) for code in self._encoding.columns])
        where = f"{piece.path}, rows {piece.first_row + 1:,} to {piece.first_row + len(piece):,}"
        try:
            with errors_about(piece.path, notes):
                return self._predict_table(table)
        except MetaFunError as error:
            raise type(error)(f"{where}: {error}") from None

    def _predict_table(self, table: ColumnTable) -> dict[str, Any]:
        return predicted_columns(self._estimator, table, self._labels, self._quantiles)


def _some_entry(code: ColumnCode) -> Column:
    """A column of one row."""
    if code.kind == "category":
        entry = np.array([code.categories[0] if code.categories else None], object)
        return Column(code.name, "category", entry)
    return Column(code.name, code.kind, np.array([code.origin]))
