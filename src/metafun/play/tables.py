"""A table with a column to predict: predictions, and how good they are on rows that are held out."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_diabetes, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss, r2_score, root_mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..data.csv_columns import CsvColumns, csv_text, parse_csv
from ..data.encoding import Encoding
from ..data.frames import Column, ColumnTable
from ..data.text_entries import DECIMAL_COMMA, DOTTED_DATE, is_missing
from ..errors import InvalidData
from ..estimators import MetaFunClassifier, MetaFunRegressor
from ..estimators.files import predicted_columns
from ..estimators.notes import ColumnChoice, Notes, errors_about, id_hints

Problem = Literal["classification", "regression"]
MAX_BYTES = 5 * 2**20
# So that an answer takes seconds: time and memory grow with rows times classes.
MAX_ROWS, MAX_COLUMNS, MAX_CLASSES = 3000, 500, 30
# Each category is a column of its own in the linear models.
MAX_LINEAR_ENTRIES = MAX_ROWS * MAX_COLUMNS
LINEAR_STEPS = 200
# Entries that are missing here but text to pandas.
NOT_IN_PANDAS = {"?", "na"}
MIN_LABELLED = 8
HELD_OUT = 0.25
SHOWN_ROWS = 200
INTERVAL = (0.025, 0.975)


@dataclass(frozen=True)
class TableTask:
    """A table, the column to predict, and which rows are labelled.

    Args:
        columns: the table.
        target: the column to predict; a row without an entry there is to be predicted.
        problem: whether the target holds classes or numbers.
        notes: receives warnings.
    """

    columns: CsvColumns
    target: str
    problem: Problem
    notes: Notes = field(default_factory=Notes)

    @property
    def labelled(self) -> NDArray:
        """The labelled rows."""
        return np.flatnonzero([not is_missing(entry) for entry in self.columns.entries[self.target]])

    @property
    def unlabelled(self) -> NDArray:
        """The rows to predict."""
        return np.setdiff1d(np.arange(len(self.columns)), self.labelled)

    def inputs(self) -> list[Column]:
        """All other columns."""
        found = [self.columns.column(name) for name in ColumnChoice().inputs(self.columns, [self.target])]
        self.notes.warnings.extend(id_hints(self.columns, found, "remove it from the file"))
        return found

    def outputs(self) -> NDArray:
        """The target of the labelled rows: text or numbers."""
        if self.problem == "regression":
            return self.columns.numbers([self.target], gaps=True)[self.labelled, 0]
        known = [self.columns.entries[self.target][row] for row in self.labelled]
        return np.array(CsvColumns(self.columns.path, {self.target: known}).labels(self.target))

    def fit(self, x: Any, y: NDArray) -> MetaFunClassifier | MetaFunRegressor:
        """The model for any table, with these rows as context.

        Args:
            x: a `ColumnTable`.
            y: their outputs.
        """
        estimator = MetaFunClassifier() if self.problem == "classification" else MetaFunRegressor()
        return estimator.fit(x, y)


def describe(content: bytes, name: str) -> dict[str, Any]:
    """The columns of a CSV file, the one that is probably to be predicted, and what it holds.

    Args:
        content: the file.
        name: its name.
    """
    columns = _read(content, name)
    gaps = {column: sum(map(is_missing, entries)) for column, entries in columns.entries.items()}
    # A column with gaps in the last place or elsewhere is likelier to be predicted than a complete one.
    target = max(columns.names, key=lambda column: (0 < gaps[column] < len(columns), columns.names.index(column)))
    return {
        "rows": len(columns),
        "target": target,
        "columns": [{"name": column, "missing": gaps[column], "problem": guess(columns, column)} for column in gaps],
    }


def guess(columns: CsvColumns, name: str) -> Problem:
    """Whether a column holds classes or numbers."""
    return "classification" if columns.has_classes(name) else "regression"


def predict(content: bytes, name: str, target: str, problem: Problem) -> dict[str, Any]:
    """Predictions for the rows without a label, or if all have one, for rows that are held out; and scores.

    Args:
        content: the file.
        name: its name.
        target: the column to predict.
        problem: whether it holds classes or numbers.
    """
    columns = _read(content, name)
    columns.expect(target)
    task = TableTask(columns, target, problem)
    labelled, unlabelled = task.labelled, task.unlabelled
    if len(labelled) < MIN_LABELLED:
        raise InvalidData(
            f"{name}: '{target}' has {len(labelled)} entries; at least {MIN_LABELLED} are needed to predict the others."
        )
    inputs, y = task.inputs(), task.outputs()
    _check_classes(task, y)
    split = _split(task, y)
    train, held_out = train_test_split(np.arange(len(y)), **split)
    # Only the model whose predictions are shown may warn; the others would repeat it with fewer rows.
    with errors_about(columns.path, Notes() if len(unlabelled) else task.notes):
        fitted = task.fit(_rows(inputs, labelled[train]), y[train])
    with errors_about(columns.path, Notes()):
        scores = _scores(task, fitted, inputs, y, train, held_out)
    new = unlabelled if len(unlabelled) else labelled[held_out]
    with errors_about(columns.path, task.notes):
        if len(unlabelled):
            fitted = task.fit(_rows(inputs, labelled), y)
        predicted = predicted_columns(fitted, _rows(inputs, new), [target], INTERVAL if problem == "regression" else ())
    given = {column: [entries[row] for row in new] for column, entries in columns.entries.items()}
    named = {f"{column} (predicted)" if column in given else column: _plain(v) for column, v in predicted.items()}
    shown = {"row": (new + 1).tolist(), **({} if len(unlabelled) else {target: given[target]}), **named}
    return {
        "labelled": len(labelled),
        "predicted": len(new),
        "held_out_only": not len(unlabelled),
        "scores": scores,
        "notes": task.notes.warnings,
        "header": list(shown),
        "rows": [list(row) for row in zip(*shown.values(), strict=True)][:SHOWN_ROWS],
        "csv": csv_text({**given, **named}),
        "code": code(task, inputs, split),
    }


def code(task: TableTask, inputs: list[Column], split: dict[str, Any]) -> str:
    """The same in Python.

    Args:
        task: the table.
        inputs: its inputs.
        split: how rows were held out, as arguments of `train_test_split`.
    """
    is_class = task.problem == "classification"
    estimator = "MetaFunClassifier" if is_class else "MetaFunRegressor"
    predict = "predict_proba({})" if is_class else "predict({}, return_std=True)"
    lines = [f"from metafun import {estimator}", "import pandas"]
    options = "".join(f", {name}={value!r}" for name, value in _pandas_options(task, inputs).items())
    read = f"data = pandas.read_csv({task.columns.path.name!r}{options}).set_index({task.target!r})"
    known, new = "known", "new"
    if len(task.unlabelled):
        lines += [read, "known, new = data[data.index.notna()], data[data.index.isna()]"]
    else:
        known, new = "train", "test"
        arguments = ", ".join(f"{k}={'data.index' if k == 'stratify' else v}" for k, v in split.items())
        lines += ["from sklearn.model_selection import train_test_split", read]
        lines += [f"train, test = train_test_split(data, {arguments})"]
    return "\n".join(
        [*lines, f"model = {estimator}().fit({known}, {known}.index)", f"print(model.{predict.format(new)})"]
    )


def _pandas_options(task: TableTask, inputs: list[Column]) -> dict[str, Any]:
    """Arguments with which pandas reads the file as this page does; only those that matter."""
    columns = task.columns
    entries = {name: set(found) for name, found in columns.entries.items()}
    numbers = [entries[task.target]] if task.problem == "regression" else []
    numbers += [entries[column.name] for column in inputs if column.kind == "number"]
    commas = [c for c in set().union(*numbers) if columns.decimal_comma and DECIMAL_COMMA.fullmatch(c)]
    times = [column.name for column in inputs if column.kind == "time"]
    options = {
        "sep": columns.delimiter if columns.delimiter != "," else None,
        "decimal": "," if commas else None,
        "thousands": "." if any("." in entry for entry in commas) else None,
        "na_values": sorted(NOT_IN_PANDAS.intersection(set().union(*entries.values()))),
        "parse_dates": times,
        "dayfirst": any(DOTTED_DATE.fullmatch(entry) for name in times for entry in entries[name]),
    }
    return {name: value for name, value in options.items() if value}


def example(problem: Problem) -> tuple[str, str]:
    """Name and content of a table to try; some rows have no label."""
    data: Any = load_wine() if problem == "classification" else load_diabetes(scaled=False)
    target = "cultivar" if problem == "classification" else "progression"
    labels = [str(data.target_names[k]) for k in data.target] if problem == "classification" else data.target.tolist()
    hidden = set(np.random.default_rng(0).choice(len(labels), 20, replace=False).tolist())
    columns: dict[str, Any] = {name: data.data[:, i].tolist() for i, name in enumerate(data.feature_names)}
    columns[target] = ["" if row in hidden else label for row, label in enumerate(labels)]
    return ("wine.csv" if problem == "classification" else "diabetes.csv"), csv_text(columns)


def _read(content: bytes, name: str) -> CsvColumns:
    columns = parse_csv(content, name)
    if len(columns) > MAX_ROWS or len(columns.names) > MAX_COLUMNS:
        raise InvalidData(
            f"{name} has {len(columns):,} rows and {len(columns.names):,} columns; the page takes {MAX_ROWS:,} rows "
            f"and {MAX_COLUMNS} columns. Use MetaFunClassifier or MetaFunRegressor in Python for more."
        )
    return columns


def _check_classes(task: TableTask, y: NDArray) -> None:
    count = len(set(y.tolist()))
    if task.problem == "classification" and (count > len(y) / 2 or count > MAX_CLASSES):
        raise InvalidData(
            f"'{task.target}' has {count} classes in {len(y)} rows; the page takes at most {MAX_CLASSES}, and two rows "
            "of each on average. If it holds numbers, say so, otherwise choose another column."
        )


def _scores(
    task: TableTask, fitted: Any, inputs: list[Column], y: NDArray, train: NDArray, test: NDArray
) -> dict[str, Any]:
    """Scores on held-out rows, beside those of a linear model unless the table is too large for it."""
    is_class, rows = task.problem == "classification", task.labelled
    name = "logistic regression" if is_class else "ridge regression"
    encoding = Encoding.of(inputs, keeps_missing=False)
    width, linear, numbers = len(encoding.outputs), None, np.empty((len(y), 0))
    if width * len(y) <= MAX_LINEAR_ENTRIES:
        numbers = encoding(_rows(inputs, rows).columns)
        model = LogisticRegression(max_iter=LINEAR_STEPS) if is_class else Ridge()
        linear = make_pipeline(StandardScaler(), model).fit(numbers[train], y[train])
    else:
        reason = f"with a column for each category the table has {width:,} columns, too many for this page"
        task.notes.warnings.append(f"{task.columns.path}: no {name}, since {reason}")
    measure = _of_classes if is_class else _of_numbers
    metrics = measure(fitted, _rows(inputs, rows[test]), linear, numbers[test], y[test])
    return {"held_out": len(test), "fitted": len(train), "linear": name, "metrics": metrics}


def _split(task: TableTask, y: NDArray) -> dict[str, Any]:
    """How rows are held out; each class has its share of them if it has rows enough."""
    split: dict[str, Any] = {"test_size": HELD_OUT, "random_state": 0}
    if task.problem == "classification":
        counts = np.unique(y, return_counts=True)[1]
        if counts.min() > 1 and len(counts) <= HELD_OUT * len(y):
            split["stratify"] = y
    return split


def _of_classes(model: Any, x: Any, linear: Any, numbers: NDArray, y: NDArray) -> list[list[Any]]:
    """Rows of a table: a metric, of the model, of the linear one."""

    def scores(fitted: Any, shares: NDArray) -> tuple[float, float | None]:
        known = set(fitted.classes_) >= set(y)
        loss = float(-log_loss(y, shares, labels=list(fitted.classes_))) if known else None
        return float(accuracy_score(y, fitted.classes_[shares.argmax(1)])), loss

    ours = scores(model, model.predict_proba(x))
    others = scores(linear, linear.predict_proba(numbers)) if linear else (None, None)
    return [list(row) for row in zip(("accuracy", "log-likelihood"), ours, others, strict=True)]


def _of_numbers(model: Any, x: Any, linear: Any, numbers: NDArray, y: NDArray) -> list[list[Any]]:
    def scores(predicted: NDArray) -> tuple[float, float]:
        return float(r2_score(y, predicted)), float(root_mean_squared_error(y, predicted))

    mean, std = model.predict(x, return_std=True)
    others = scores(linear.predict(numbers)) if linear else (None, None)
    rows = [list(row) for row in zip(("R²", "root mean squared error"), scores(mean), others, strict=True)]
    inside = float((abs(y - mean) <= 1.96 * std).mean())
    return [*rows, ["inside the 95 % interval", inside, None]]


def _rows(columns: list[Column], rows: NDArray) -> ColumnTable:
    return ColumnTable([Column(c.name, c.kind, c.values[rows], c.levels) for c in columns])


def _plain(values: Any) -> list[Any]:
    """Values of NumPy as those of Python, numbers with as many digits as float32 has."""
    array = np.asarray(values)
    return [float(f"{value:.6g}") for value in array] if array.dtype.kind == "f" else array.tolist()
