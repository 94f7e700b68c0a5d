"""The rows of the paper's tables and figures, with what was measured of each cell."""

import itertools
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from metafun.config import load_config
from metafun.errors import InvalidConfig
from metafun.paper import Cell, Measured, Results, load_item, plan
from metafun.paper.items import Row
from metafun.paper.results import Searched
from metafun.schema import parse

from .cells import MISSING, interval_cell, measured_cell
from .records import read_records

# Data sets that this repository has no measurement on, because they were not available.
UNAVAILABLE = {"tieredimagenet-center", "tieredimagenet-multiview"}
NO_DATA = "no data"


@dataclass(frozen=True)
class PaperCell:
    """One cell of a table.

    Args:
        item: name of the table or figure.
        row: its row.
        column: title of its column.
        cell: what to measure; None if the row has a published value only.
        published: mean and standard deviation in the paper, or nothing.
        lines: the seeds of the latest measurement.
        search: the search that chose its hyperparameters, if any.
    """

    item: str
    row: str
    column: str
    cell: Cell | None
    published: tuple[float, ...]
    lines: tuple[Measured, ...]
    search: Searched | None

    @property
    def is_current(self) -> bool:
        """Whether the settings are those that the recorded command has now."""
        return all(line.job == _current_key(line.item, line.row, line.column, line.command) for line in self.lines[:1])

    def value(self, percent: bool, with_interval: bool = False) -> str:
        """The measured value, or why there is none; empty for rows without cells.

        Args:
            percent: whether values are shown in per cent.
            with_interval: whether the interval over the test tasks follows in brackets.
        """
        if self.lines:
            value, *notes = measured_cell(self.lines, percent).split("; ")
            interval = interval_cell(self.lines, percent) if with_interval else ""
            notes += [] if self.is_current else ["earlier settings"]
            return "; ".join([f"{value} ({interval})" if interval else value, *notes])
        if self.cell is None:
            return ""
        return NO_DATA if load_config(self.cell.preset, self.cell.settings).tasks.data in UNAVAILABLE else MISSING


@dataclass(frozen=True)
class PaperRow:
    """One row of a table.

    Args:
        row: the row as the paper has it.
        cells: one for each column.
    """

    row: Row
    cells: tuple[PaperCell, ...]

    @property
    def lines(self) -> list[Measured]:
        """All measured lines of the row."""
        return [line for cell in self.cells for line in cell.lines]

    def uses(self, prefix: str) -> bool:
        """Whether a cell has a preset whose name starts with `prefix`."""
        return any(cell.preset.startswith(prefix) for cell in self.row.cells)


def paper_rows(name: str, folder: Path) -> Iterator[PaperRow]:
    """The rows of a table or figure.

    Args:
        name: its name in `ITEMS`.
        folder: the folder of paper.jsonl and searches.jsonl.
    """
    item, results = load_item(name), Results(folder)
    searches = [parse(Searched, record) for record in read_records(folder / "searches.jsonl")]
    for row in item.rows:
        cells = []
        for i, column in enumerate(item.columns):
            lines = tuple(results.latest(name, row.name, column))
            published = row.published[i] if row.published else ()
            cell = row.cells[i] if row.cells else None
            cells.append(PaperCell(name, row.name, column, cell, published, lines, _search(searches, lines)))
        yield PaperRow(row, tuple(cells))


def row_command(row: PaperRow, item: str) -> str:
    """The commands that measured a row, or the one that would.

    Args:
        row: the row.
        item: name of its table.
    """
    commands = dict.fromkeys(line.command for line in row.lines)
    return "; ".join(f"`{command}`" for command in commands or [shlex.join(_words(item, row.row.name))])


def _words(item: str, row: str) -> list[str]:
    return ["metafun", "reproduce", item, "--only", row]


def _search(searches: Sequence[Searched], lines: Sequence[Measured]) -> Searched | None:
    """The latest search of the training that the lines measured."""
    found = [each for each in searches if lines and (each.job, each.column) == (lines[0].job, lines[0].column)]
    return found[-1] if found else None


@cache
def _current_key(item: str, row: str, column: str, command: str) -> str | None:
    """The hash of what the recorded command trains for a cell now; None if the cell is gone."""
    words = shlex.split(command)

    def values(option: str) -> list[str]:
        return [value for word, value in itertools.pairwise(words) if word == option]

    try:
        jobs = plan(
            [item],
            only=row,
            seeds=int(values("--seeds")[0]),
            trials=int((values("--trials") or ["64"])[0]),
            data=dict(pair.split("=", 1) for pair in values("--data")),
        )
    except InvalidConfig:
        return None
    keys = [job.key for job in jobs for address in job.addresses if (address.row, address.column) == (row, column)]
    return keys[0] if keys else None
