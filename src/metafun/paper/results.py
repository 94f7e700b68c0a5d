"""results/paper.jsonl: one line for each cell and seed, appended as soon as it is measured."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import InvalidConfig, InvalidResults
from ..files import MOST_RESULTS, locked, read_text, write_atomically
from ..schema import parse
from .items import Address


@dataclass(frozen=True)
class Measured:
    """A cell's value for one seed, and all facts needed to repeat it.

    Args:
        item, row, column, metric: the address of the cell.
        seed: seed of the model.
        value: None if it was not finite.
        interval: half of the 95 % interval of the mean over the test tasks.
        tasks: number of test tasks.
        job: hash of what was trained.
        data: fingerprint of the data.
        version: of metafun.
        device: kind of device.
        seconds: of training.
        date: ISO date.
        command: the command that measures the cell again.
        found: settings that a search chose.
        steps: training steps; None in lines of version 0.1.0.
        beside: other processes of `metafun reproduce` that shared the device; None if that was not recorded.
        broke_away: step at which the loss of this seed broke away; None if it did not.
    """

    item: str
    row: str
    column: str
    metric: str
    seed: int
    value: float | None
    interval: float | None
    tasks: int
    job: str
    data: str
    version: str
    device: str
    seconds: float
    date: str
    command: str
    found: str = ""
    steps: int | None = None
    beside: int | None = None
    broke_away: int | None = None

    @property
    def address(self) -> Address:
        return Address(self.item, self.row, self.column, self.metric)


@dataclass(frozen=True)
class Searched:
    """All trials of a cell's search: a line of searches.jsonl.

    Args:
        item, row, column, job, data, version, device, date, command: as in `Measured`.
        seed: seed of the draws.
        errors: least validation error of each trial; None if it diverged.
        steps: step of that error.
        seconds: of the whole search, compilation included.
        beside: as in `Measured`.
    """

    item: str
    row: str
    column: str
    job: str
    data: str
    version: str
    device: str
    date: str
    command: str
    seed: int
    errors: tuple[float | None, ...]
    steps: tuple[int, ...]
    seconds: float
    beside: int


class Results:
    """The results file in `folder`. A last line broken by a crash is skipped, and removed by the next `append`."""

    def __init__(self, folder: Path):
        self.path = folder / "paper.jsonl"
        self._read()

    def _read(self) -> None:
        self.lines: list[Measured] = []
        self._whole = ""
        text = read_text(self.path, MOST_RESULTS, errors="replace") if self.path.exists() else ""
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                if line.endswith("\n"):
                    raise InvalidResults(f"{self.path}, line {number} is not JSON; remove it.") from None
                break
            try:
                self.lines.append(parse(Measured, entry))
            except (InvalidConfig, TypeError, AttributeError) as error:
                raise InvalidResults(f"{self.path}, line {number} is not a result: {error}") from None
            self._whole += line.rstrip("\n") + "\n"
        self.broken = text.rstrip("\n") != self._whole.rstrip("\n")

    def seeds(self, address: Address, job: str, data: str) -> set[int]:
        """The seeds of a cell measured with the configuration `job` and the data fingerprint `data`."""
        found = (line for line in self.lines if line.address == address and (line.job, line.data) == (job, data))
        return {line.seed for line in found}

    def append(self, lines: Iterable[Measured]) -> None:
        """Adds lines to the current content of the file, which other processes may have extended."""
        added = "".join(json.dumps(asdict(line)) + "\n" for line in lines)
        with locked(self.path.parent, wait=True):
            self._read()
            write_atomically(self.path, (self._whole + added).encode())
            self._read()

    def latest(self, item: str, row: str, column: str) -> list[Measured]:
        """All seeds of the latest job of a cell."""
        lines = [line for line in self.lines if (line.item, line.row, line.column) == (item, row, column)]
        newest = {line.seed: line for line in lines if line.job == lines[-1].job}
        return [newest[seed] for seed in sorted(newest)]
