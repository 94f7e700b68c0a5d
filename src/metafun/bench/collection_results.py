"""Results on collections of tasks: one line for each method, collection and number of context points."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

from ..schema import parse
from .collection_gpboost import GPBOOST
from .collection_methods import FOREST_GP, META_FIT, METHODS, SIMPLE
from .lines import add_line, read_lines

METRICS = ("rmse", "log_likelihood", "coverage")


@dataclass(frozen=True)
class CollectionCell:
    """One method on one collection with one number of context points.

    Args:
        data: name of the collection.
        points: context points of a held-out task.
        method: name of the method.
        metrics: each of `METRICS` on each split. RMSE is divided by the standard deviation of y; the log-likelihood is
            that of a standardised y; coverage is that of the central 95 % interval.
        seconds: mean time to learn from the training tasks.
        tasks: number of tasks, held-out ones included.
        fingerprint: SHA-256 of the collection.
        seeds: seeds of the splits.
        command: the command that measures the cell again.
        device: kind of device.
        version: of metafun.
        date: ISO date.
        beside: other processes of the benchmark that ran at the same time; None if that was not recorded.
    """

    data: str
    points: int
    method: str
    metrics: dict[str, tuple[float, ...]]
    seconds: float
    tasks: int
    fingerprint: str
    seeds: tuple[int, ...]
    command: str
    device: str
    version: str
    date: str
    beside: int | None = None

    def __post_init__(self) -> None:
        counts = {len(self.metrics.get(name, ())) for name in METRICS}
        if len(counts) != 1 or 0 in counts or min(self.metrics["rmse"]) <= 0:
            raise ValueError("its metrics are missing, of different numbers of splits, or an error is not positive")

    @property
    def key(self) -> tuple[str, int, str]:
        """What identifies a cell in the file."""
        return self.fingerprint, self.points, self.method

    def mean(self, metric: str) -> float:
        """The mean over the splits; of the RMSE, the geometric one."""
        values = self.metrics[metric]
        return math.exp(fmean(map(math.log, values))) if metric == "rmse" else fmean(values)


def read_collection_cells(path: Path) -> list[CollectionCell]:
    """The cells of a .jsonl file; none if there is no file."""
    return read_lines(path, partial(parse, CollectionCell))


def add_collection_cell(path: Path, cell: CollectionCell) -> None:
    """Adds a cell to the file, in place of an older one.

    Args:
        path: the .jsonl file.
        cell: the measured cell.
    """
    add_line(path, cell, partial(parse, CollectionCell))


@dataclass(frozen=True)
class Comparison:
    """`meta_fit` beside the best of the simple methods, over collections.

    Args:
        points: context points.
        ratios: RMSE divided by that of the best simple method, for each collection.
        likelier: collections where the log-likelihood is higher than that of the forest and its residual process.
        beside_gpboost: collections with GPBoost, and those of them with a lower RMSE and with a higher log-likelihood.
    """

    points: int
    ratios: dict[str, float]
    likelier: int
    beside_gpboost: tuple[int, int, int] = (0, 0, 0)

    def __str__(self) -> str:
        wins, worst = sum(ratio < 1 for ratio in self.ratios.values()), max(self.ratios, key=lambda n: self.ratios[n])
        against, (count, better, likelier) = "", self.beside_gpboost
        if count:
            against = f" Against {GPBOOST}, its RMSE is lower on {better} of {count}"
            against += f", its log-likelihood higher on {likelier}."
        return (
            f"With {self.points} context points, {META_FIT} has a lower RMSE than the best of the {len(SIMPLE)} simple "
            f"methods on {wins} of {len(self.ratios)} collections; the median ratio to the best is "
            f"{median(self.ratios.values()):.2f} and the worst {self.ratios[worst]:.2f} ({worst}). Its log-likelihood "
            f"is higher than that of the {FOREST_GP} on {self.likelier} of {len(self.ratios)}.{against}"
        )


def compare(cells: Sequence[CollectionCell]) -> list[Comparison]:
    """One comparison for each number of points, over the collections on which all methods that it needs are measured.

    Args:
        cells: the measured cells.
    """
    found = []
    for points in sorted({cell.points for cell in cells}):
        by_data: dict[str, dict[str, CollectionCell]] = {}
        for cell in with_distinct_names(cells):
            if cell.points == points:
                by_data.setdefault(cell.data, {})[cell.method] = cell
        complete = {data: each for data, each in by_data.items() if {*SIMPLE, META_FIT} <= set(each)}
        if complete:
            found.append(_comparison(points, complete))
    return found


def _comparison(points: int, found: dict[str, dict[str, CollectionCell]]) -> Comparison:
    best = {data: min(each[name].mean("rmse") for name in SIMPLE) for data, each in found.items()}
    ratios = {data: each[META_FIT].mean("rmse") / best[data] for data, each in found.items()}
    gains = [each[META_FIT].mean("log_likelihood") - each[FOREST_GP].mean("log_likelihood") for each in found.values()]
    both = [(each[META_FIT], each[GPBOOST]) for each in found.values() if GPBOOST in each]
    better = sum(ours.mean("rmse") < other.mean("rmse") for ours, other in both)
    likelier = sum(ours.mean("log_likelihood") > other.mean("log_likelihood") for ours, other in both)
    return Comparison(points, ratios, sum(gain > 0 for gain in gains), (len(both), better, likelier))


def with_distinct_names(cells: Sequence[CollectionCell]) -> list[CollectionCell]:
    """The cells, with part of the fingerprint in the names that several collections share.

    Args:
        cells: the measured cells.
    """
    collections = {(cell.data, cell.fingerprint) for cell in cells}
    count = Counter(data for data, _ in collections)
    return [replace(c, data=f"{c.data} {c.fingerprint[:8]}") if count[c.data] > 1 else c for c in cells]


def in_order(cells: Sequence[CollectionCell]) -> list[CollectionCell]:
    """The cells by collection, number of points and, in the benchmark's order, method."""
    methods, data = list(METHODS), list(dict.fromkeys(cell.data for cell in cells))
    known = [cell for cell in cells if cell.method in methods]
    return sorted(known, key=lambda cell: (data.index(cell.data), cell.points, methods.index(cell.method)))
