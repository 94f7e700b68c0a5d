"""Results on small tables: one line for each model, data set and number of rows."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..model.likelihoods import calibration_error
from ..schema import parse
from .contenders import PROBLEMS, models
from .datasets import SETS, TableSet
from .lines import add_line, read_lines


@dataclass(frozen=True)
class Cell:
    """One model on one data set with one number of training rows.

    Args:
        data: name of the data set.
        size: number of training rows; of each class in classification.
        model: name of the model.
        metrics: for each metric its value on each split.
        reliability: mean of the reliability bins over all splits, [bins, 3]; None in regression.
        seconds: mean time to fit and predict.
        checkpoint: fingerprint of the shipped checkpoint, for MetaFun.
        fingerprint: SHA-256 of the data set.
        seeds: seeds of the splits.
        command: the command that measures the cell again.
        device: kind of device; None if that was not recorded.
        version: of metafun.
        date: ISO date.
        beside: other processes of the benchmark that ran at the same time; None if that was not recorded.
    """

    data: str
    size: int
    model: str
    metrics: dict[str, tuple[float, ...]]
    reliability: tuple[tuple[float, ...], ...] | None
    seconds: float
    checkpoint: str = ""
    fingerprint: str = ""
    seeds: tuple[int, ...] = ()
    command: str = ""
    device: str | None = None
    version: str = ""
    date: str = ""
    beside: int | None = None

    def __post_init__(self) -> None:
        if len({len(values) for values in self.metrics.values()}) != 1 or not self.splits:
            raise ValueError("its metrics are missing, or of different numbers of splits")
        if self.reliability is not None and np.array(self.reliability, object).shape[1:] != (3,):
            raise ValueError("its reliability is no table of three columns")

    @property
    def key(self) -> tuple[str, int, str]:
        """What identifies a cell in the file."""
        return self.data, self.size, self.model

    @property
    def splits(self) -> int:
        """The number of splits that were measured."""
        return len(next(iter(self.metrics.values())))


def read_cells(path: Path) -> list[Cell]:
    """The cells of a .jsonl file; none if there is no file."""
    return read_lines(path, partial(parse, Cell))


def add_cell(path: Path, cell: Cell) -> None:
    """Adds a cell to the file, or replaces the older one of the same model, data set and size.

    Args:
        path: the .jsonl file.
        cell: the measured cell.
    """
    add_line(path, cell, partial(parse, Cell))


def mean_metrics(cell: Cell) -> dict[str, float]:
    """Means over the splits, and the calibration error over all of them."""
    means = {name: float(np.mean(values)) for name, values in cell.metrics.items()}
    if cell.reliability is not None:
        means["ece"] = float(calibration_error(np.array(cell.reliability)))
    return means


def summary(cells: Sequence[Cell], sets: Mapping[str, TableSet] = SETS) -> dict[str, dict[str, dict[str, float]]]:
    """For each problem and model the mean over the data sets of each metric, named METRIC_SIZE.

    Args:
        cells: the measured cells.
        sets: the data sets by name.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for problem in PROBLEMS:
        sizes = Counter(size for each in sets.values() if each.problem == problem for size in each.sizes)
        for model in models(problem):
            values: dict[tuple[str, int], list[float]] = {}
            for cell in sorted(cells, key=lambda cell: cell.size):
                if cell.model == model and cell.data in sets and sets[cell.data].problem == problem:
                    for name, mean in mean_metrics(cell).items():
                        values.setdefault((name, cell.size), []).append(mean)
            # A mean over some of the sets would be comparable with no other.
            means = {
                f"{name}_{size}": float(np.mean(each))
                for (name, size), each in sorted(values.items(), key=lambda item: item[0][0])
                if len(each) == sizes[size]
            }
            if means:
                found.setdefault(problem, {})[model] = means
    return found
