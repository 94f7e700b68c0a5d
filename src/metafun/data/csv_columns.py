"""Named columns of an untrusted CSV file."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidData, suggest
from .arrays import MAX_BYTES, parsing
from .table import CONTROL, printable

MAX_FIELD_CHARACTERS = 2**16


@dataclass(frozen=True)
class CsvColumns:
    """The entries of a CSV file as text.

    Args:
        path: the file, for messages.
        entries: the entries of each column, by its name.
    """

    path: Path
    entries: dict[str, list[str]]

    @property
    def names(self) -> list[str]:
        return list(self.entries)

    def __len__(self) -> int:
        return len(next(iter(self.entries.values())))

    def labels(self, name: str) -> list[str]:
        """The entries of the column `name`; InvalidData if one is empty or has control characters."""
        entries = self._column(name)
        for row, entry in enumerate(entries):
            if not entry or CONTROL.search(entry):
                problem = f"'{name}' is {entry!r}; every row needs a label of printable characters."
                raise InvalidData(printable(f"{self.path}, row {row + 1}: {problem}"))
        return entries

    def numbers(self, names: Sequence[str], gaps: bool = False) -> NDArray:
        """The named columns as numbers [rows, columns]; NaN and infinity are accepted.

        Args:
            names: the columns, in the order wanted.
            gaps: read an empty entry as NaN instead of refusing it.
        """
        matrix = np.empty((len(self), len(names)))
        for j, name in enumerate(names):
            for i, entry in enumerate(self._column(name)):
                try:
                    matrix[i, j] = float(entry) if entry or not gaps else np.nan
                except ValueError:
                    raise InvalidData(
                        printable(f"{self.path}, row {i + 1}: '{name}' is {entry!r}, not a number; fix or drop it.")
                    ) from None
        return matrix

    def expect(self, name: str | None) -> None:
        """Raises InvalidData unless the column `name` exists or `name` is None."""
        if name is not None and name not in self.entries:
            raise InvalidData(printable(f"{self.path} has no column '{name}'; {suggest(name, self.names)}"))

    def _column(self, name: str) -> list[str]:
        self.expect(name)
        return self.entries[name]


def read_csv(path: Path) -> CsvColumns:
    """Reads a CSV file whose first line names the columns."""
    if not path.is_file():
        raise InvalidData(f"{path} does not exist or is not a file.")
    if path.stat().st_size > MAX_BYTES:
        raise InvalidData(f"{path} is larger than {MAX_BYTES // 2**30} GiB.")
    csv.field_size_limit(MAX_FIELD_CHARACTERS)
    with parsing(path, "a CSV file in UTF-8 whose first line names the columns"):
        with open(path, encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file, strict=True) if line]
        if len(lines) < 2:
            raise InvalidData("it has no rows below the names of its columns")
        names = [name.strip() for name in lines[0]]
        if len(names) == 1 and re.search(r"[;\t|]", names[0]):
            raise InvalidData(f"it has one column, '{names[0]}'; entries must be separated by commas")
        if len(set(names)) < len(names) or not all(names) or any(map(CONTROL.search, names)):
            raise InvalidData(f"its columns are called {', '.join(map(repr, names))}; each needs a different name")
        if all(map(_is_number, names)):
            raise InvalidData("its first line has numbers instead of column names")
        for number, line in enumerate(lines[1:], 1):
            if len(line) != len(names):
                raise InvalidData(f"row {number} has {len(line)} entries for {len(names)} columns")
    return CsvColumns(path, {name: [line[i].strip() for line in lines[1:]] for i, name in enumerate(names)})


def write_csv(path: Path, columns: dict[str, Sequence[object]]) -> None:
    """Writes a new CSV file; FileExistsError if `path` exists.

    Args:
        path: the file to create.
        columns: the entries of each column, by its name. File names that are not valid Unicode keep their bytes.
    """
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
