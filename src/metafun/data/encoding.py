"""Columns of numbers, categories and times as the numbers a model takes: measured once, then applied to any rows."""

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidData
from ..schema import Between, parse
from ..values import Real
from .frames import CONTENT, Column, Kind
from .table import CONTROL, counted, printable

VERSION = 1
# The most frequent categories get a number or a column of their own; the others count as unknown.
MAX_CATEGORIES, MAX_ONE_HOT = 1000, 32
# Bounds on a saved encoding.
MAX_COLUMNS, MAX_NAME = 100_000, 2**16
# Text is an id, and left out, if more than half of this many rows or more are different.
MIN_ROWS_OF_IDS = 20
DAY = 86400.0


@dataclass(frozen=True)
class ColumnCode:
    """How one column becomes numbers.

    Args:
        name: name of the column.
        kind: what the column holds.
        categories: the categories in the order of their codes 0, 1, …; empty for other kinds and for ids.
        one_hot: whether each category has a column of 0 and 1, instead of one column of codes.
        origin: what a time counts from, in seconds since 1970; it becomes a number of days.
        fill: what replaces a missing entry; None: NaN.
        marks_missing: whether a further column has 1 where the entry is missing.
    """

    name: str
    kind: Kind
    categories: tuple[str, ...] = ()
    one_hot: bool = False
    origin: Real = 0.0
    fill: Real | None = None
    marks_missing: bool = False

    def __post_init__(self) -> None:
        texts = (self.name, *self.categories)
        if any(len(text) > MAX_NAME or CONTROL.search(text) for text in texts[:1]) or max(map(len, texts)) > MAX_NAME:
            raise InvalidData(f"a name in its encoding is too long or has control characters: {self.name[:40]!r}")
        if len(set(self.categories)) < len(self.categories) or len(self.categories) > MAX_CATEGORIES:
            raise InvalidData(f"the categories of '{self.name}' are not different, or more than {MAX_CATEGORIES:,}")

    @property
    def outputs(self) -> list[str]:
        """Names of the columns of numbers."""
        if self.kind == "category" and not self.categories:
            return []
        names = [f"{self.name}={category}" for category in self.categories] if self.one_hot else [self.name]
        return [*names, f"{self.name} is missing"] if self.marks_missing else names

    def __call__(self, column: Column) -> NDArray:
        """The numbers [rows, outputs]; InvalidData if the column holds something else than before."""
        numbers = self._numbers(column)
        missing = np.isnan(numbers).any(1)
        if self.fill is not None:
            numbers = np.where(np.isnan(numbers), self.fill, numbers)
        return np.concatenate([numbers, missing[:, None]], 1) if self.marks_missing else numbers

    def _numbers(self, column: Column) -> NDArray:
        if column.kind != self.kind and not column.missing.all():
            example = next(value for value in column.values if value is not None and value == value)
            raise InvalidData(
                printable(
                    f"column '{self.name}' held {CONTENT[self.kind]} before, but now holds {CONTENT[column.kind]}, "
                    f"such as {str(example)[:40]!r}; convert it."
                )
            )
        if column.kind != self.kind:
            # A column without any entry may have come as another kind.
            empty = np.full(len(column), None if self.kind == "category" else np.nan)
            column = replace(column, kind=self.kind, values=empty)
        if self.kind == "category":
            return self._codes(column)
        values = column.values.astype(float)
        if np.isinf(values).any():
            row = int(np.isinf(values).argmax())
            raise InvalidData(f"column '{self.name}' is infinite in row {row}; replace it, or leave the row out.")
        return (values - self.origin)[:, None] / (DAY if self.kind == "time" else 1.0)

    def _codes(self, column: Column) -> NDArray:
        code = {category: float(i) for i, category in enumerate(self.categories)}
        codes = np.array([code.get(value, np.nan) for value in column.values])
        if self.categories:
            self._warn_of_new(column)
        if not self.one_hot:
            return codes[:, None] if self.categories else np.empty((len(column), 0))
        return (codes[:, None] == np.arange(len(self.categories))).astype(float)

    def _warn_of_new(self, column: Column) -> None:
        if len(self.categories) in (MAX_CATEGORIES, MAX_ONE_HOT):
            return  # others were counted as unknown from the start
        new = sorted({value for value in column.values if value is not None} - set(self.categories))
        if new:
            more = f" and {len(new) - 1} more" if len(new) > 1 else ""
            warnings.warn(
                printable(f"column '{self.name}' has a new category, {new[0][:40]!r}{more}, which counts as unknown."),
                stacklevel=7,
            )


@dataclass(frozen=True)
class Encoding:
    """How the columns of a table become the columns of an array.

    Args:
        columns: the code of each column, in the order of the table.
        keeps_missing: whether a missing number may stay NaN.
        named: whether the columns have names of their own, as those of a data frame do.
        version: version of the rules.
    """

    columns: tuple[ColumnCode, ...]
    keeps_missing: bool
    named: bool = True
    version: Annotated[int, Between(1, VERSION)] = VERSION

    def __post_init__(self) -> None:
        if not self.columns or len(self.columns) > MAX_COLUMNS or len(set(self.names)) < len(self.names):
            raise InvalidData("its encoding has no columns, too many, or two of one name")

    @classmethod
    def of(cls, columns: Sequence[Column], *, keeps_missing: bool, named: bool = True) -> Self:
        """The encoding for rows like these.

        Args:
            columns: all columns of the rows.
            keeps_missing: for a model that takes tables of any kind: a missing entry is NaN and a category its code.
                Otherwise a missing entry is filled with the mean and marked by a further column, and each category
                has a column of its own.
            named: whether the columns have names of their own.
        """
        encoding = cls(tuple(_code(column, keeps_missing) for column in columns), keeps_missing, named)
        if not encoding.outputs:
            raise InvalidData(f"{counted(len(columns), 'columns')}, but each has a different text in almost every row.")
        return encoding

    @classmethod
    def restored(cls, table: Any) -> Self:
        """The encoding in a saved table; a MetaFunError if it is damaged."""
        if not isinstance(table, Mapping):
            raise InvalidData("its encoding is not a table")
        return parse(cls, table)

    def table(self) -> dict[str, Any]:
        """The encoding as values that JSON can hold."""
        return asdict(self)

    @property
    def names(self) -> list[str]:
        """Names of the columns of the table."""
        return [code.name for code in self.columns]

    @property
    def outputs(self) -> list[str]:
        """Names of the columns of the array."""
        return [name for code in self.columns for name in code.outputs]

    def __call__(self, columns: Sequence[Column]) -> NDArray:
        """The rows as numbers, [rows, outputs].

        Args:
            columns: the columns of the table, in its order.
        """
        for code, column in zip(self.columns, columns, strict=True):
            self._check_missing(code, column)
        return np.concatenate([code(column) for code, column in zip(self.columns, columns, strict=True)], 1)

    def _check_missing(self, code: ColumnCode, column: Column) -> None:
        """A model that was trained on complete numbers has not learned what a missing one means."""
        if not self.keeps_missing and code.fill is None and code.kind != "category" and column.missing.any():
            row = int(column.missing.argmax())
            raise InvalidData(
                printable(
                    f"column '{code.name}' is missing in row {row}, but was complete in training; fill the entry, "
                    "leave the row out, or train with such rows."
                )
            )


def _code(column: Column, keeps_missing: bool) -> ColumnCode:
    if column.kind == "category":
        return _category_code(column, keeps_missing)
    origin = float(np.nanmin(column.values)) if column.kind == "time" and not column.missing.all() else 0.0
    code = ColumnCode(column.name, column.kind, origin=origin)
    if keeps_missing or not column.missing.any():
        return code
    numbers = code(column)
    fill = 0.0 if column.missing.all() else float(np.nanmean(numbers))
    return ColumnCode(column.name, column.kind, origin=origin, fill=fill, marks_missing=True)


def _category_code(column: Column, keeps_missing: bool) -> ColumnCode:
    counts = Counter(value for value in column.values if value is not None)
    if len(column) >= MIN_ROWS_OF_IDS and len(counts) > len(column) / 2 and not column.levels:
        warnings.warn(
            printable(
                f"column '{column.name}' has {len(counts):,} different texts in {len(column):,} rows, like ids or "
                "free text, and is left out; drop it to avoid this warning."
            ),
            stacklevel=7,
        )
        return ColumnCode(column.name, "category")
    one_hot = not keeps_missing and not column.levels and len(counts) > 2
    kept = [category for category, _ in counts.most_common(MAX_ONE_HOT if one_hot else MAX_CATEGORIES)]
    ordered = column.levels[:MAX_CATEGORIES] or tuple(sorted(kept, key=_natural))
    code = ColumnCode(column.name, "category", ordered, one_hot)
    if one_hot or keeps_missing or not counts:
        return code
    with warnings.catch_warnings(action="ignore"):
        codes = code(column)
    marks = bool(column.missing.any())
    return ColumnCode(column.name, "category", code.categories, fill=float(np.nanmean(codes)), marks_missing=marks)


def _natural(text: str) -> list[tuple[float, str]]:
    """A key to sort by in which 9 comes before 10."""
    parts = re.split("([0-9]{1,15})", text)
    return [(float(part), "") if i % 2 else (-1.0, part) for i, part in enumerate(parts)]
