"""Named columns of an untrusted CSV file."""

import contextlib
import csv
import errno
import io
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidData, suggest
from ..files import write_atomically
from .arrays import MAX_BYTES, parsing
from .frames import Column, Kind, category_column
from .table import CONTROL, MAX_REASON_CHARACTERS, counted, printable
from .text_entries import is_missing, looks_like_id, parse_bool, parse_number, parse_time

MAX_FIELD_CHARACTERS = 2**16
MAX_LINE_CHARACTERS = 2**24
# Of all labels if each has the length of the longest, which is what an array of text takes.
MAX_LABEL_CHARACTERS = 2**26
# Of a piece of a file that is not read at once.
MAX_PIECE_CHARACTERS = 2**26
# Whole numbers of so few kinds are classes, unless the user says otherwise.
FEW_CLASSES = 10
DELIMITERS = (",", ";", "\t", "|")
CSV_FORM = "a CSV file in UTF-8 whose first line names the columns"


@dataclass(frozen=True)
class CsvColumns:
    """The entries of a CSV file as text.

    Args:
        path: the file, for messages.
        entries: the entries of each column, by its name.
        delimiter: what separates the entries of a row.
        first_row: number of rows of the file before these, for messages.
    """

    path: Path
    entries: dict[str, list[str]]
    delimiter: str = ","
    first_row: int = 0

    @property
    def decimal_comma(self) -> bool:
        """Whether 3,5 is a number."""
        return self.delimiter != ","

    @property
    def names(self) -> list[str]:
        return list(self.entries)

    def __len__(self) -> int:
        return len(next(iter(self.entries.values())))

    def distinct(self, name: str) -> set[str]:
        """The different entries of the column `name`; none if there is no such column."""
        return set(self.entries.get(name, ()))

    def labels(self, name: str) -> list[str]:
        """The entries of the column `name`; InvalidData if one is missing, too long or has control characters."""
        entries = self._column(name)
        longest = max(map(len, entries))
        if longest * len(entries) > MAX_LABEL_CHARACTERS:
            most = MAX_LABEL_CHARACTERS // len(entries)
            raise _refused(
                f"{self.path}: '{name}' has an entry of {longest:,} characters; in {len(entries):,} rows, at most "
                f"{most:,} are read. Shorten it."
            )
        for row, entry in enumerate(entries):
            if is_missing(entry) or CONTROL.search(entry):
                problem = f"'{name}' is {entry!r}; every row needs an entry of printable characters. Fill or remove it."
                raise _refused(f"{self._row(row)}: {problem}")
        return entries

    def numbers(self, names: Sequence[str], gaps: bool = False) -> NDArray:
        """The named columns as numbers [rows, columns]; infinity is accepted.

        Args:
            names: the columns, in the order wanted.
            gaps: read a missing entry as NaN instead of refusing it.
        """
        matrix = np.stack([self.column(name, "number").values for name in names], 1)
        if not gaps and np.isnan(matrix).any():
            row, column = np.argwhere(np.isnan(matrix))[0]
            entry = self.entries[names[column]][row]
            raise _refused(f"{self._row(row)}: '{names[column]}' is {entry!r}; fill it or remove the row.")
        return matrix

    def column(self, name: str, kind: Kind | None = None) -> Column:
        """The column `name`; missing entries are empty, NA, n/a, ? and the like.

        Args:
            name: its name.
            kind: what it must hold; None: what most of its entries look like.
        """
        entries = self._column(name)
        missing = [is_missing(entry) for entry in entries]
        if kind is None:
            kind = self.likely_kind(name)
        if kind == "category":
            return category_column(name, (None if gap else e for gap, e in zip(missing, entries, strict=True)))
        read = parse_time if kind == "time" else self._number
        values = np.array([np.nan if gap else read(e) for gap, e in zip(missing, entries, strict=True)], float)
        wrong = np.isnan(values) & ~np.array(missing, bool)
        if wrong.any():
            row = int(wrong.argmax())
            what = "a time such as 2024-05-31 or 2024-05-31 12:30" if kind == "time" else "a number"
            remedy = f"correct it, leave it empty, or leave the column out ({counted(int(wrong.sum()), 'such rows')})"
            raise _refused(f"{self._row(row)}: '{name}' is {entries[row]!r}, not {what}; {remedy}.")
        return Column(name, kind, values)

    def has_fractions(self, name: str) -> bool:
        """Whether all entries of the column `name` are numbers and some are not whole."""
        known = np.array([self._number(entry) for entry in self._column(name) if not is_missing(entry)])
        return not np.isnan(known).any() and bool((known % 1 != 0).any())

    def has_classes(self, name: str) -> bool:
        """Whether the column `name` probably holds classes: text, or whole numbers of few kinds."""
        known = [entry for entry in self._column(name) if not is_missing(entry)]
        few = len(set(known)) <= min(FEW_CLASSES, len(known) / 2)
        return self.likely_kind(name) != "number" or (few and not self.has_fractions(name))

    def likely_kind(self, name: str) -> Kind:
        """What most entries of the column `name` look like."""
        known = [entry for entry in self._column(name) if not is_missing(entry)]
        if any(map(looks_like_id, known)):
            return "category"
        are_numbers = sum(not np.isnan(self._number(entry)) for entry in known)
        # A few entries that are not numbers are mistakes; `column` names the first.
        if 2 * are_numbers > len(known) or not known:
            return "number"
        return "time" if 2 * sum(not np.isnan(parse_time(entry)) for entry in known) > len(known) else "category"

    def _number(self, entry: str) -> float:
        return parse_bool(entry) if entry[:1] in "tTfF" else parse_number(entry, self.decimal_comma)

    def expect(self, name: str | None) -> None:
        """Raises InvalidData unless the column `name` exists or `name` is None."""
        if name is not None and name not in self.entries:
            raise _refused(f"{self.path} has no column '{name}'; {suggest(name, self.names)}")

    def _row(self, row: int) -> str:
        """Where a row is, for messages."""
        return f"{self.path}, row {self.first_row + row + 1}"

    def _column(self, name: str) -> list[str]:
        self.expect(name)
        return self.entries[name]


def _refused(problem: str) -> InvalidData:
    """The error about a file; names and entries in it may be long, and only the ends of such words are repeated."""
    if len(problem) > 2 * MAX_REASON_CHARACTERS:
        problem = f"{problem[:MAX_REASON_CHARACTERS]}…{problem[-MAX_REASON_CHARACTERS:]}"
    return InvalidData(printable(problem))


def read_csv(path: Path) -> CsvColumns:
    """Reads a file whose first line names the columns, separated by commas, semicolons, tabs or bars."""
    if not path.is_file():
        raise InvalidData(f"{path} does not exist or is not a file.")
    if path.stat().st_size > MAX_BYTES:
        raise InvalidData(f"{path} is larger than {MAX_BYTES // 2**30} GiB.")
    with parsing(path, CSV_FORM), open(path, encoding="utf-8-sig", newline="") as file:
        return _parse(file, path)


def parse_csv(content: bytes, name: str) -> CsvColumns:
    """The columns in the content of a CSV file.

    Args:
        content: the bytes of the file.
        name: its name, for messages.
    """
    path = Path(printable(name))
    with parsing(path, CSV_FORM):
        return _parse(io.TextIOWrapper(io.BytesIO(content), encoding="utf-8-sig", newline=""), path)


def csv_pieces(path: Path, rows: int) -> Iterator[CsvColumns]:
    """The columns of a file of any size, piece by piece; a single piece without rows if there are none.

    Args:
        path: the file.
        rows: rows of a piece; fewer where lines are long.
    """
    if not path.is_file():
        raise InvalidData(printable(f"{path} does not exist or is not a file."))
    with parsing(path, CSV_FORM), open(path, encoding="utf-8-sig", newline="") as file:
        reader = _Reader(file, path)
        yield reader.piece(rows, MAX_PIECE_CHARACTERS)
        while not reader.at_end:
            if len(piece := reader.piece(rows, MAX_PIECE_CHARACTERS)):
                yield piece


@contextlib.contextmanager
def _bounded_fields() -> Iterator[None]:
    """Refuses long fields. The bound is that of the whole process, whose programs may need another."""
    former = csv.field_size_limit(MAX_FIELD_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(former)


class _Reader:
    """Reads the rows of a CSV file.

    Args:
        file: the open file.
        path: its path, for messages.
    """

    def __init__(self, file: TextIO, path: Path):
        with _bounded_fields():
            self._delimiter = _delimiter(next(_lines(file), ""))
            file.seek(0)
            self._lines = csv.reader(_lines(file), strict=True, delimiter=self._delimiter)
            self._names = _checked_names(next(filter(None, self._lines), []), self._delimiter)
        self._path, self._rows, self.at_end = path, 0, False

    @_bounded_fields()
    def piece(self, most_rows: float = math.inf, most_characters: float = math.inf) -> CsvColumns:
        """The next rows; without bounds all that are left."""
        lines: list[list[str]] = []
        characters, first = 0, self._rows
        while len(lines) < most_rows and characters < most_characters:
            line = next(filter(None, self._lines), None)
            if line is None:
                self.at_end = True
                break
            self._rows += 1
            if len(line) != len(self._names):
                found, wanted = counted(len(line), "fields"), counted(len(self._names), "columns")
                raise InvalidData(f"row {self._rows} has {found} for {wanted}")
            lines.append(line)
            characters += sum(map(len, line))
        entries = {name: [line[i].strip() for line in lines] for i, name in enumerate(self._names)}
        return CsvColumns(self._path, entries, self._delimiter, first)


def _parse(file: TextIO, path: Path) -> CsvColumns:
    columns = _Reader(file, path).piece()
    if not len(columns):
        raise InvalidData("it has no rows below the names of its columns")
    return columns


def _checked_names(header: list[str], delimiter: str) -> list[str]:
    names = [name.strip() for name in header]
    if not names:
        raise InvalidData("it has no rows below the names of its columns")
    if len(set(names)) < len(names) or not all(names) or any(map(CONTROL.search, names)):
        raise InvalidData(f"its columns are called {', '.join(map(repr, names))}; each needs a different name")
    if not any(np.isnan(parse_number(name, delimiter != ",")) for name in names):
        raise InvalidData("its first line has numbers instead of column names")
    return names


def _lines(file: TextIO) -> Iterator[str]:
    """The lines of a file; a file without line breaks can be larger than the memory."""
    while line := file.readline(MAX_LINE_CHARACTERS + 1):
        if len(line) > MAX_LINE_CHARACTERS:
            raise InvalidData(f"it has a line of more than {MAX_LINE_CHARACTERS:,} characters")
        yield line


def _delimiter(header: str) -> str:
    """The separator of the column names: the one that gives the most of them, or a comma."""
    fields = {delimiter: len(next(csv.reader([header], delimiter=delimiter), [])) for delimiter in DELIMITERS}
    return max(DELIMITERS, key=lambda delimiter: fields[delimiter])


def write_csv(path: Path, columns: dict[str, Sequence[object]], overwrite: bool = False) -> None:
    """Writes a CSV file; FileExistsError if `path` exists.

    Args:
        path: the file to create.
        columns: the entries of each column, by its name. File names that are not valid Unicode keep their bytes.
        overwrite: replace an existing file.
    """
    if path.exists() and not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    write_atomically(path, csv_text(columns).encode("utf-8", "surrogateescape"))  # all of it or none


def csv_text(columns: dict[str, Sequence[object]], header: bool = True) -> str:
    """The content of a CSV file with these columns.

    Args:
        columns: the entries of each column, by its name.
        header: begin with the names.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    if header:
        writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()
