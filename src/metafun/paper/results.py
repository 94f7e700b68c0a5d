"""results/paper.jsonl: one line for each cell and seed, appended as soon as it is known."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import InvalidResults
from ..files import write_atomically
from ..schema import parse
from .items import Address


@dataclass(frozen=True)
class Measured:
    """A cell's value for one seed, and where it comes from. `found` are the settings that a search chose."""

    item: str
    row: str
    column: str
    metric: str
    seed: int
    value: float
    interval: float
    tasks: int
    job: str
    data: str
    version: str
    device: str
    seconds: float
    date: str
    command: str
    found: str = ""

    @property
    def address(self) -> Address:
        return Address(self.item, self.row, self.column, self.metric)


class Results:
    """The file in a folder of results; a line that a crash left broken at its end is taken out."""

    def __init__(self, folder: Path):
        self.path = folder / "paper.jsonl"
        self.repaired = False
        self.lines: list[Measured] = []
        text = self.path.read_text("utf-8", errors="replace") if self.path.exists() else ""
        whole = text.splitlines(keepends=True)
        for i, line in enumerate(whole):
            try:
                if not line.endswith("\n"):
                    raise ValueError("it has no end")
                self.lines.append(parse(Measured, json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                if i < len(whole) - 1:
                    raise InvalidResults(f"{self.path}, line {i + 1} is damaged: {error}; take it out.") from None
                write_atomically(self.path, "".join(whole[:-1]).encode())
                self.repaired = True

    def seeds(self, address: Address, job: str) -> set[int]:
        """The seeds of a cell that were measured with that configuration."""
        return {line.seed for line in self.lines if line.address == address and line.job == job}

    def append(self, lines: Iterable[Measured]) -> None:
        lines = list(lines)
        with open(self.path, "a", encoding="utf-8") as file:
            file.write("".join(json.dumps(asdict(line)) + "\n" for line in lines))
        self.lines += lines

    def latest(self, item: str, row: str, column: str) -> list[Measured]:
        """All seeds of a cell's last job."""
        lines = [line for line in self.lines if (line.item, line.row, line.column) == (item, row, column)]
        newest = {line.seed: line for line in lines if line.job == lines[-1].job}
        return [newest[seed] for seed in sorted(newest)]
