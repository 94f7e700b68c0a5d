"""What the readers of a user's files share: notes for the user, the choice of columns, and hints about them."""

import contextlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..data.csv_columns import CsvColumns
from ..data.frames import Column
from ..data.table import printable
from ..errors import InvalidData, MetaFunError

ID_NAME = re.compile(r"(.*[_ .-])?(id|index|nr|no|number|key|row|rownames|unnamed: 0)", re.IGNORECASE)
# With fewer rows, whole numbers are often all different.
MIN_ROWS_OF_IDS = 10


@dataclass(frozen=True)
class Notes:
    """What a caller should show its user.

    Args:
        left_out: a line for each file or class that is left out.
        warnings: a line for each warning about the values in a file.
    """

    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ColumnChoice:
    """Which columns of a file are inputs.

    Args:
        columns: names of the inputs; empty: all. A name may hold several, separated by commas.
        drop: names of columns that are no inputs, in the same form.
    """

    columns: Sequence[str] = ()
    drop: Sequence[str] = ()

    @property
    def is_made(self) -> bool:
        return bool(self.columns or self.drop)

    def inputs(self, columns: CsvColumns, others: Sequence[str | None]) -> list[str]:
        """The names of the inputs.

        Args:
            columns: the columns of a file.
            others: columns that are targets or tasks.
        """
        chosen, dropped = _split_names(self.columns, columns), _split_names(self.drop, columns)
        for name in chosen:
            if name in others:
                raise InvalidData(
                    printable(f"column '{name}' is what is predicted, or the task; it cannot be an input.")
                )
        names = chosen or [name for name in columns.names if name not in others]
        inputs = [name for name in names if name not in dropped]
        if not inputs:
            raise InvalidData(f"{columns.path} has no inputs left; its columns are {', '.join(columns.names)}.")
        return inputs


def _split_names(values: Sequence[str], columns: CsvColumns) -> list[str]:
    found = []
    for value in values:
        found += [value] if value in columns.entries else [name.strip() for name in value.split(",")]
    for name in found:
        columns.expect(name)
    return list(dict.fromkeys(found))


def id_hints(columns: CsvColumns, inputs: Sequence[Column], remedy: str = "leave it out with --drop '{}'") -> list[str]:
    """A hint for each input that looks like an id: a different whole number in every row.

    Args:
        columns: the columns of a file.
        inputs: those that are inputs.
        remedy: what to do about it; {} stands for its name.
    """
    hints = []
    for column in inputs:
        if column.kind != "number" or len(column) < MIN_ROWS_OF_IDS or len(inputs) < 2 or column.missing.any():
            continue
        values = np.sort(column.values)
        is_different = (values % 1 == 0).all() and (np.diff(values) > 0).all()
        if is_different and (ID_NAME.fullmatch(column.name) or (np.diff(values) == 1).all()):
            hints.append(
                printable(
                    f"'{column.name}' looks like an id, a different whole number in every row; if it is one, "
                    f"{remedy.format(column.name)}."
                )
            )
    return hints


@contextlib.contextmanager
def errors_about(path: Path, notes: Notes) -> Iterator[None]:
    """Names the file in errors and warnings of scikit-learn about the arrays that were read from it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except MetaFunError:
            raise
        except ValueError as error:
            raise InvalidData(f"{path}: {str(error).splitlines()[0]}") from None
    notes.warnings.extend(dict.fromkeys(f"{path}: {warning.message}" for warning in caught))
