"""Results of the benchmark of speed: one line for each method and size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..schema import parse
from .lines import add_line, read_lines

TRAINING, PREDICTION, COST = "training", "prediction", "cost"


@dataclass(frozen=True)
class SpeedCell:
    """How long one unit of work takes.

    Args:
        what: a step of training, a prediction of all targets, or encoding and prediction ("cost").
        method: name of the method.
        sizes: number of tasks, context points, targets and iterations, where they were chosen.
        seconds: of one unit; the median over the rounds.
        first_seconds: from nothing to the end of the first call, with imports of the method and compilation.
        command: the command that measures the cell again.
        device: kind of device.
        version: of metafun.
        date: ISO date.
        beside: other processes that shared the machine; None if that was not recorded.
        axis: of a cost, the size that is varied.
    """

    what: str
    method: str
    sizes: dict[str, int]
    seconds: float
    first_seconds: float
    command: str
    device: str
    version: str
    date: str
    beside: int | None = None
    axis: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """What identifies a cell in the file."""
        return self.what, self.method, self.axis, tuple(sorted(self.sizes.items())), self.device

    @property
    def per_second(self) -> float:
        """Training steps, or targets, per second."""
        return (self.sizes["targets"] if self.what == PREDICTION else 1) / self.seconds


def read_speed_cells(path: Path) -> list[SpeedCell]:
    """The cells of a .jsonl file; none if there is no file."""
    return read_lines(path, partial(parse, SpeedCell))


def add_speed_cell(path: Path, cell: SpeedCell) -> None:
    """Adds a cell to the file, in place of an older one.

    Args:
        path: the .jsonl file.
        cell: the measured cell.
    """
    add_line(path, cell, partial(parse, SpeedCell))


def costs(cells: Sequence[SpeedCell]) -> dict[str, list[tuple[int, float]]]:
    """Seconds over the values of each axis, in order.

    Args:
        cells: measured cells of one device.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for cell in cells:
        if cell.what == COST:
            found.setdefault(cell.axis, []).append((cell.sizes[cell.axis], cell.seconds))
    return {axis: sorted(values) for axis, values in found.items()}


def slope(values: Sequence[tuple[int, float]]) -> float:
    """The exponent with which the seconds grow between the two largest sizes; NaN for fewer than two.

    Args:
        values: (size, seconds), in order.
    """
    if len(values) < 2:
        return math.nan
    (small, before), (large, after) = values[-2:]
    return math.log(after / before) / math.log(large / small)
