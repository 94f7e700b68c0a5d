"""Benchmark on collections of tasks: what `meta_fit` is compared with, how cells are measured, and their figure."""

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import norm

from ..errors import InvalidConfig, suggest
from ..training.devices import forget_programs
from ..training.measure import origin
from .collection_data import Collection, Context, Split
from .collection_gpboost import GPBOOST, check_installed, is_installed
from .collection_methods import META_FIT, METHODS, Predict
from .collection_results import METRICS, CollectionCell, in_order, read_collection_cells, with_distinct_names
from .metrics import SMALLEST


@dataclass(frozen=True)
class Job:
    """One method on one collection.

    Args:
        collection: the tasks.
        method: name of the method.
        points: numbers of context points.
        splits: number of random splits.
        command: further words of the command that measures it again.
    """

    collection: Collection
    method: str
    points: tuple[int, ...]
    splits: int
    command: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.collection.name}, {self.method}"


def plan(jobs: Sequence[Job], results: Path) -> list[Job]:
    """The jobs of which a cell is missing in the file of results, or has fewer splits."""
    done = {(*cell.key, seed) for cell in read_collection_cells(results) for seed in cell.seeds}

    def is_missing(job: Job) -> bool:
        keys = ((job.collection.fingerprint, n, job.method, seed) for n in job.points for seed in range(job.splits))
        return any(key not in done for key in keys)

    return [job for job in jobs if is_missing(job)]


def check_methods(names: Sequence[str]) -> list[str]:
    """The names, or all that are installed; InvalidConfig if one is not known or not installed."""
    for name in names:
        if name not in METHODS:
            raise InvalidConfig(f"method '{name}' is not known; {suggest(name, METHODS)}")
    if GPBOOST in names:
        check_installed()
    return list(names) or [name for name in METHODS if name != GPBOOST or is_installed()]


def check_points(collection: Collection, points: Sequence[int], splits: int) -> None:
    """InvalidConfig unless each split holds out a task that is larger than each number of context points."""
    for split in (Split(collection, seed) for seed in range(splits)):
        largest = split.largest_test
        if max(points) >= largest:
            raise InvalidConfig(
                f"{collection.name}: the tasks held out in split {split.seed} have at most {largest} points; "
                f"--points {max(points)} leaves none to predict. Give a smaller --points."
            )


def measure(job: Job) -> list[CollectionCell]:
    """The cells of a job, one for each number of context points."""
    found: dict[int, list[tuple[float, ...]]] = {n: [] for n in job.points}
    seconds = []
    for seed in range(job.splits):
        split, start = Split(job.collection, seed), time.perf_counter()
        predict = METHODS[job.method](split.train, seed)
        seconds.append(time.perf_counter() - start)
        for n in job.points:
            found[n].append(_scores(predict, split.contexts(n), split.deviation))
        forget_programs()
    words = ["metafun", "bench", "collections", job.collection.source, "--only", job.method]
    words += ["--splits", str(job.splits), *job.command]
    return [
        CollectionCell(
            data=job.collection.name,
            points=n,
            method=job.method,
            metrics=dict(zip(METRICS, zip(*scores, strict=True), strict=True)),
            seconds=round(float(np.mean(seconds)), 2),
            tasks=len(job.collection.tasks),
            fingerprint=job.collection.fingerprint,
            seeds=tuple(range(job.splits)),
            command=shlex.join(words),
            beside=None,
            **origin(),
        )
        for n, scores in found.items()
    ]


def _scores(predict: Predict, contexts: Sequence[Context], deviation: float) -> tuple[float, ...]:
    """The `METRICS`; every predicted point weighs the same."""
    errors, deviations = [], []
    for context in contexts:
        mean, std = predict(context.x, context.y, context.x_target)
        errors.append(context.y_target - mean)
        deviations.append(np.maximum(std, SMALLEST))
    error, std = np.concatenate(errors), np.concatenate(deviations)
    covered = abs(error) <= norm.ppf(0.975) * std
    rmse = np.sqrt(np.square(error).mean()) / deviation
    # Exact predictions have a logarithm too: the mean over splits is geometric.
    return max(float(rmse), SMALLEST), float(norm.logpdf(error, 0, std).mean()), float(covered.mean())


def draw(cells: Sequence[CollectionCell], path: Path) -> Path:
    """Draws the RMSE of each method on each collection, a panel for each number of context points.

    Args:
        cells: measured cells, at least one.
        path: the figure's file.
    """
    from ..plots.collections import Panel, plot_collections

    panels = []
    for points in sorted({cell.points for cell in cells}):
        errors: dict[str, dict[str, float]] = {}
        for cell in in_order([cell for cell in with_distinct_names(cells) if cell.points == points]):
            errors.setdefault(cell.data, {})[cell.method] = cell.mean("rmse")
        panels.append(Panel(f"{points} context points", errors))
    return plot_collections(panels, META_FIT, path)
