"""Named columns of a CSV file, read without trust."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidData, suggest
from .arrays import LARGEST, refused
from .table import CONTROL, printable

LONGEST_FIELD = 2**16


@dataclass(frozen=True)
class CsvColumns:
    """The entries of a CSV file as text, column by column."""

    path: Path
    entries: dict[str, list[str]]

    @property
    def names(self) -> list[str]:
        return list(self.entries)

    def __len__(self) -> int:
        return len(next(iter(self.entries.values())))

    def labels(self, name: str) -> list[str]:
        """The entries of a column, none of them empty."""
        entries = self._column(name)
        for row, entry in enumerate(entries):
            if not entry or CONTROL.search(entry):
                raise InvalidData(printable(f"{self.path}, row {row + 1}: '{name}' is {entry!r}; name it."))
        return entries

    def numbers(self, names: Sequence[str], gaps: bool = False) -> NDArray:
        """[rows, columns]; NaN and infinity are left to who uses them. With `gaps`, an empty entry is NaN."""
        matrix = np.empty((len(self), len(names)))
        for j, name in enumerate(names):
            for i, entry in enumerate(self._column(name)):
                try:
                    matrix[i, j] = float(entry) if entry or not gaps else np.nan
                except ValueError:
                    raise InvalidData(
                        printable(f"{self.path}, row {i + 1}: '{name}' is {entry!r}, not a number; mend or drop it.")
                    ) from None
        return matrix

    def expect(self, name: str | None) -> None:
        """That there is such a column, if one is named."""
        if name is not None and name not in self.entries:
            raise InvalidData(printable(f"{self.path} has no column '{name}'; {suggest(name, self.names)}"))

    def _column(self, name: str) -> list[str]:
        self.expect(name)
        return self.entries[name]


def read_csv(path: Path) -> CsvColumns:
    """A CSV file whose first line names the columns."""
    if not path.is_file():
        raise InvalidData(f"{path} is not there or not a file.")
    if path.stat().st_size > LARGEST:
        raise InvalidData(f"{path} is larger than {LARGEST // 2**30} GiB.")
    csv.field_size_limit(LONGEST_FIELD)
    with refused(path, "a CSV file in UTF-8 whose first line names the columns"):
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
        if len(lines) < 2:
            raise InvalidData("it has no rows below the names of its columns")
        names = [name.strip() for name in lines[0]]
        if len(names) == 1 and re.search(r"[;\t|]", names[0]):
            raise InvalidData(f"it has one column, '{names[0]}'; entries are to be separated by commas")
        if len(set(names)) < len(names) or not all(names) or any(map(CONTROL.search, names)):
            raise InvalidData(f"its columns are called {', '.join(map(repr, names))}; each needs a name of its own")
        if all(map(_is_number, names)):
            raise InvalidData("its first line has numbers and not the names of the columns")
        for number, line in enumerate(lines[1:], 1):
            if len(line) != len(names):
                raise InvalidData(f"row {number} has {len(line)} entries for {len(names)} columns")
    return CsvColumns(path, {name: [line[i].strip() for line in lines[1:]] for i, name in enumerate(names)})


def write_csv(path: Path, columns: dict[str, Sequence[object]]) -> None:
    """Never over a file that is there. Names of files may be anything, and are written as they are."""
    with open(path, "x", encoding="utf-8", errors="surrogateescape", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _is_number(entry: str) -> bool:
    try:
        float(entry)
    except ValueError:
        return False
    return True
