"""The columns of a data frame (pandas, polars or any other that narwhals reads) or of an array, by name and kind."""

import datetime
import numbers
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidData
from .table import printable

Kind = Literal["number", "category", "time"]
# What a column of each kind holds, for messages.
CONTENT = {"number": "numbers", "category": "text", "time": "times"}


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table.

    Args:
        name: its name.
        kind: what it holds.
        values: [rows] numbers, or seconds since 1970 for times, NaN where missing; text for categories, None where
            missing.
        levels: the categories from the lowest to the highest, if they are ordered.
    """

    name: str
    kind: Kind
    values: NDArray
    levels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    @property
    def missing(self) -> NDArray:
        """True where the entry is missing, [rows]."""
        return self.values == None if self.kind == "category" else np.isnan(self.values)  # noqa: E711


@dataclass(frozen=True, eq=False)
class ColumnTable:
    """Columns of equal length that stand for a data frame, such as those of a CSV file."""

    columns: list[Column]

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), len(self.columns)


def is_frame(X: Any) -> bool:
    """Whether X is a data frame; a lazy one raises InvalidData."""
    if isinstance(X, ColumnTable):
        return True
    found = _narwhals(X)
    if isinstance(found, nw.LazyFrame):
        raise InvalidData("X is a lazy frame, which has no rows yet; pass X.collect().")
    return isinstance(found, nw.DataFrame)


def frame_columns(X: Any) -> list[Column]:
    """The columns of a data frame; InvalidData names one that holds neither numbers, text nor times."""
    if isinstance(X, ColumnTable):
        return X.columns
    frame = _narwhals(X)
    return [_column(str(name), series) for name, series in zip(frame.columns, frame.iter_columns(), strict=True)]


def _narwhals(X: Any) -> Any:
    """X as a frame of narwhals, or X itself if it is no frame."""
    try:
        return nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        names = " ".join(str(error).split())
        raise InvalidData(f"X has several columns of one name: {names}; give each its own.") from None


def array_columns(X: NDArray) -> list[Column]:
    """The columns of an array of numbers [rows, columns], called "column 0", "column 1", …"""
    return [Column(f"column {j}", "number", X[:, j].astype(float)) for j in range(X.shape[1])]


def category_column(name: str, entries: Iterable[Any], levels: Sequence[Any] = ()) -> Column:
    """A column of categories.

    Args:
        name: its name.
        entries: the entry of each row as text; None where it is missing.
        levels: the categories in their order, if they are ordered.
    """
    found = list(entries)
    values = np.empty(len(found), object)
    values[:] = found
    return Column(name, "category", values, tuple(map(str, levels)))


def _column(name: str, series: nw.Series) -> Column:
    dtype = series.dtype
    if dtype.is_numeric() or dtype == nw.Boolean:
        return Column(name, "number", _floats(series.cast(nw.Float64)))
    if dtype in (nw.Date, nw.Datetime):
        moments = series.cast(nw.Datetime("us")) if dtype == nw.Date else series
        return Column(name, "time", _floats(moments.dt.timestamp("us").cast(nw.Float64)) / 1e6)
    if dtype == nw.Duration:
        return Column(name, "number", _floats(series.dt.total_microseconds().cast(nw.Float64)) / 1e6)
    missing = series.is_null().to_list()
    entries = [None if gap else entry for gap, entry in zip(missing, series.to_list(), strict=True)]
    if dtype in (nw.String, nw.Categorical, nw.Enum):
        # pandas says which categories are ordered; an Enum of polars is only a closed set.
        is_ordered = dtype == nw.Enum and series.implementation.is_pandas_like()
        text = (None if entry is None else str(entry) for entry in entries)
        return category_column(name, text, series.cat.get_categories().to_list() if is_ordered else ())
    return _column_of_objects(name, entries, str(dtype))


def _floats(series: nw.Series) -> NDArray:
    return np.array(series.to_numpy(), float)


def _number(entry: Any) -> float:
    """As a float, which is infinite where the number is beyond it."""
    try:
        return float(entry)
    except OverflowError:
        return np.inf if entry > 0 else -np.inf


def _column_of_objects(name: str, entries: list[Any], dtype: str) -> Column:
    """A column whose type says nothing about its content: the entries decide."""
    known = [entry for entry in entries if entry is not None]
    if all(isinstance(entry, numbers.Real | np.bool_) or _is_decimal(entry) for entry in known):
        return Column(name, "number", np.array([np.nan if e is None else _number(e) for e in entries]))
    if all(isinstance(entry, str) for entry in known):
        return category_column(name, entries)
    if all(isinstance(entry, datetime.date) for entry in known):
        return Column(name, "time", np.array([np.nan if e is None else _seconds(e) for e in entries]))
    if all(isinstance(entry, datetime.time) for entry in known):
        return Column(name, "number", np.array([np.nan if e is None else _seconds_of_day(e) for e in entries]))
    kinds = dict.fromkeys(type(entry).__name__ for entry in known)
    examples = ", ".join(repr(next(e for e in known if type(e).__name__ == kind))[:40] for kind in list(kinds)[:3])
    problem = f"mixes {' and '.join(kinds)}" if len(kinds) > 1 else f"holds entries of type {next(iter(kinds), dtype)}"
    raise InvalidData(
        printable(f"column '{name}' {problem} ({examples}); make it numbers, text, booleans or dates, or leave it out.")
    )


def _is_decimal(entry: Any) -> bool:
    return type(entry).__module__ == "decimal" and type(entry).__name__ == "Decimal"


def _seconds(moment: datetime.date) -> float:
    """Seconds since 1970; a time without zone counts as UTC."""
    if not isinstance(moment, datetime.datetime):
        moment = datetime.datetime(moment.year, moment.month, moment.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)).timestamp()


def _seconds_of_day(moment: datetime.time) -> float:
    return moment.hour * 3600 + moment.minute * 60 + moment.second + moment.microsecond / 1e6


def join_columns(parts: Sequence[Sequence[Column]]) -> list[Column]:
    """The rows of several tables with the same columns, one after the other.

    Args:
        parts: the columns of each table; a column without entries fits any kind.
    """
    joined = []
    for columns in zip(*parts, strict=True):
        like = next((column for column in columns if not column.missing.all()), columns[0])
        for column in columns:
            if column.kind != like.kind and not column.missing.all():
                raise InvalidData(
                    printable(
                        f"column '{like.name}' holds {CONTENT[like.kind]} in some rows and {CONTENT[column.kind]} in "
                        "others; convert it."
                    )
                )
        empty: Any = None if like.kind == "category" else np.nan
        values = [c.values if c.kind == like.kind else np.full(len(c), empty) for c in columns]
        joined.append(Column(like.name, like.kind, np.concatenate(values), like.levels))
    return joined
