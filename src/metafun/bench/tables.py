"""Benchmark on small tables with few rows: which cells are missing, how they are measured, and their figure."""

import hashlib
import itertools
import shlex
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidConfig, suggest
from ..estimators.trained import locate
from ..model.table_mixture import VERSION
from ..training.measure import origin
from .contenders import METAFUN, PROBLEMS, models
from .datasets import SETS, TableSet, split_rows
from .metrics import classifier_metrics, predict_mean_and_std, regressor_metrics
from .results import Cell, mean_metrics, read_cells

# The metric that is drawn.
DRAWN = {"classification": "accuracy", "regression": "r2"}
COMMAND = ("metafun", "bench", "tables")
# Data set, number of training rows, model.
CellKey = tuple[str, int, str]


def choose_sets(sets: Mapping[str, TableSet], names: Sequence[str]) -> dict[str, TableSet]:
    """The sets of these names, in their order; all if there are no names."""
    for name in names:
        if name not in sets:
            raise InvalidConfig(f"data set '{name}' is not known; {suggest(name, sets)}")
    return {name: table_set for name, table_set in sets.items() if name in (names or sets)}


def missing_cells(
    path: Path, splits: int, only: Sequence[str] = (), sets: Mapping[str, TableSet] = SETS
) -> Iterator[CellKey]:
    """The cells that a file of results does not have yet, or has of another shipped model or of other data.

    Args:
        path: the .jsonl file of results.
        splits: number of splits that each cell needs.
        only: names of models; all by default.
        sets: the data sets by name.
    """
    known = {name for problem in PROBLEMS for name in models(problem)}
    for name in only:
        if name not in known:
            raise InvalidConfig(f"model '{name}' is not known; {suggest(name, known)}")
    current = {problem: _fingerprint(problem) for problem in PROBLEMS}
    done = {
        cell.key
        for cell in measured_cells(path, sets)
        if cell.splits >= splits and (cell.model != METAFUN or cell.checkpoint == current[sets[cell.data].problem])
    }
    for data, table_set in sets.items():
        named = (model for model in models(table_set.problem) if model in (only or known))
        keys = itertools.product([data], table_set.sizes, named)
        yield from (key for key in keys if key not in done)


def measured_cells(path: Path, sets: Mapping[str, TableSet]) -> list[Cell]:
    """The cells of a file of results that are about these data sets, as they are now, and about models of today.

    Args:
        path: the .jsonl file of results.
        sets: the data sets by name.
    """
    content = {name: table_set.fingerprint for name, table_set in sets.items()}
    cells = [cell for cell in read_cells(path) if content.get(cell.data) == cell.fingerprint]
    problems = {name: table_set.problem for name, table_set in sets.items()}
    known = {problem: models(problem) for problem in PROBLEMS}
    return [
        cell
        for cell in cells
        if cell.model in known[problems[cell.data]] and DRAWN[problems[cell.data]] in cell.metrics
    ]


def measure_cells(
    keys: Sequence[CellKey],
    splits: int,
    jobs: int = 1,
    sets: Mapping[str, TableSet] = SETS,
    source: Sequence[str] = (),
) -> Iterator[Cell]:
    """Measures cells and yields each as soon as it is done.

    Args:
        keys: data set, number of training rows and model of each cell.
        splits: number of random splits.
        jobs: number of processes.
        sets: the data sets by name.
        source: the options of the command line that say where the data sets are.
    """
    if jobs == 1:
        yield from (measure(*key, splits, beside=0, sets=sets, source=source) for key in keys)
        return
    # A process in which JAX has started threads must not be forked.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        beside = min(jobs, len(keys)) - 1
        waiting = [
            pool.submit(measure, *key, splits, beside=beside, sets={key[0]: sets[key[0]]}, source=source)
            for key in keys
        ]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def measure(
    data: str,
    size: int,
    model: str,
    splits: int,
    beside: int | None = None,
    sets: Mapping[str, TableSet] = SETS,
    source: Sequence[str] = (),
) -> Cell:
    """Measures a model on random splits, which are the same for all models.

    Args:
        data: name of the data set.
        size: number of training rows; of each class in classification.
        model: name of the model.
        splits: number of splits.
        beside: other processes that measure at the same time, if that is known.
        sets: the data sets by name.
        source: the options of the command line that say where the data sets are.
    """
    problem = sets[data].problem
    x, y = sets[data].load()
    make, categorical = models(problem)[model], sets[data].categorical
    measured = []
    for split in range(splits):
        train, test = split_rows(y, size, problem, np.random.default_rng(split))
        estimator = make(y[train], categorical)
        measured.append(_fit_and_measure(estimator, problem, (x[train], y[train]), (x[test], y[test])))
    metrics = {name: tuple(row[name] for row, *_ in measured) for name in measured[0][0]}
    bins = [bins for _, bins, _ in measured if bins is not None]
    return Cell(
        data,
        size,
        model,
        metrics,
        reliability=tuple(map(tuple, np.mean(bins, axis=0).tolist())) if bins else None,
        seconds=float(np.mean([seconds for *_, seconds in measured])),
        checkpoint=_fingerprint(problem) if model == METAFUN else "",
        fingerprint=sets[data].fingerprint,
        seeds=tuple(range(splits)),
        command=shlex.join([*COMMAND, "--splits", str(splits), *source, "--only", model, "--data", data]),
        beside=beside,
        # scikit-learn's models run on the CPU wherever MetaFun does.
        **(origin() if model == METAFUN else {**origin(), "device": "cpu"}),
    )


def _fit_and_measure(
    model: Any, problem: str, train: tuple[NDArray, NDArray], test: tuple[NDArray, NDArray]
) -> tuple[dict[str, float], NDArray | None, float]:
    """The metrics, the reliability bins in classification, and the seconds to fit and predict."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # optimisers that do not converge are measured as they are
        fitted = model.fit(*train)
        classifies = problem == "classification"
        prediction: Any = fitted.predict_proba(test[0]) if classifies else predict_mean_and_std(fitted, test[0])
    seconds = time.perf_counter() - start
    if classifies:
        return *classifier_metrics(prediction, fitted.classes_, test[1]), seconds
    mean, std = prediction
    return regressor_metrics(mean, std, test[1]), None, seconds


def draw(cells: Sequence[Cell], path: Path, sets: Mapping[str, TableSet] = SETS) -> Path:
    """Draws accuracy or R² over the number of training rows, a panel for each data set.

    Args:
        cells: the measured cells.
        path: the figure's file.
        sets: the data sets by name, in the order of the panels.
    """
    from ..plots.tables import Panel, plot_tables

    panels = []
    for data in (name for name in sets if any(cell.data == name for cell in cells)):
        classifies = sets[data].problem == "classification"
        scores: dict[str, dict[int, float]] = {}
        for cell in sorted((c for c in cells if c.data == data), key=lambda cell: cell.size):
            scores.setdefault(cell.model, {})[cell.size] = mean_metrics(cell)[DRAWN[sets[data].problem]]
        panels.append(Panel(data.replace("_", " "), classifies, sets[data].sizes, scores))
    return plot_tables(panels, METAFUN, path)


def _fingerprint(problem: str) -> str:
    """Identifies the shipped model and its mixture: results of another one are measured again."""
    return hashlib.sha256(locate(f"tables-{problem}").read_bytes() + bytes([VERSION])).hexdigest()[:12]
