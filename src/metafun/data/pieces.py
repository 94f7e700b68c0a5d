"""Tables of any size in files: read in pieces that fit into memory, and written piece by piece."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ..errors import InvalidConfig, InvalidData, suggest
from .arrays import parsing
from .csv_columns import CsvColumns, csv_pieces, csv_text
from .frames import Column, Kind, frame_columns
from .table import printable

# Of a piece: rows, numbers, and bytes as the file states them.
MAX_ROWS, MAX_NUMBERS, MAX_BYTES = 2**16, 2**22, 2**26
# Of pyarrow's reader, for each column.
BUFFER_BYTES = 2**20
PARQUET_FORM = "a Parquet file"


class Piece(Protocol):
    """Some rows of a file, as named columns."""

    @property
    def path(self) -> Path: ...

    @property
    def first_row(self) -> int: ...

    @property
    def names(self) -> list[str]: ...

    def __len__(self) -> int: ...

    def column(self, name: str, kind: Kind | None = None) -> Column: ...

    def distinct(self, name: str) -> set[str]: ...


Write = Callable[[Any, Mapping[str, Any]], None]


class TableFormat(ABC):
    """A format of files."""

    @abstractmethod
    def pieces(self, path: Path) -> Iterator[Piece]:
        """The rows of a file that may be from a stranger; one piece without rows if there are none."""

    @abstractmethod
    def writer(self, file: BinaryIO) -> contextlib.AbstractContextManager[Write]:
        """A function that appends a piece and, beside its columns, further ones by name."""


class Csv(TableFormat):
    """CSV, as `read_csv` reads it; written with commas."""

    def pieces(self, path: Path) -> Iterator[CsvColumns]:
        return csv_pieces(path, MAX_ROWS)

    @contextlib.contextmanager
    def writer(self, file: BinaryIO) -> Iterator[Write]:
        def write(piece: CsvColumns, added: Mapping[str, Any]) -> None:
            text = csv_text({**piece.entries, **added}, header=piece.first_row == 0)
            file.write(text.encode("utf-8", "surrogateescape"))

        yield write


@dataclass(frozen=True, eq=False)
class ParquetColumns:
    """Some rows of a Parquet file.

    Args:
        path: the file, for messages.
        table: the rows, a table of pyarrow.
        first_row: number of rows of the file before these.
    """

    path: Path
    table: Any
    first_row: int = 0

    @property
    def names(self) -> list[str]:
        return list(self.table.column_names)

    def __len__(self) -> int:
        return self.table.num_rows

    def column(self, name: str, kind: Kind | None = None) -> Column:
        """The column `name`.

        Args:
            name: its name.
            kind: what it should hold; text is read as numbers or times where these are wanted.
        """
        if name not in self.names:
            raise InvalidData(printable(f"{self.path} has no column '{name}'; {suggest(name, self.names)}"))
        (found,) = frame_columns(self.table.select([name]))
        if found.kind != "category" or kind in (None, "category"):
            return found
        texts = {name: ["" if value is None else value for value in found.values]}
        return CsvColumns(self.path, texts, first_row=self.first_row).column(name, kind)

    def distinct(self, name: str) -> set[str]:
        """The different entries of the column `name` as text; none if there is no such column."""
        return set(map(str, self.table[name].unique().to_pylist())) if name in self.names else set()


class Parquet(TableFormat):
    """Parquet, read and written by pyarrow."""

    def pieces(self, path: Path) -> Iterator[ParquetColumns]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not path.is_file():  # opening a pipe would block
            raise InvalidData(printable(f"{path} does not exist or is not a file."))
        with parsing(path, PARQUET_FORM), open(path, "rb") as file:
            found = pq.ParquetFile(file, pre_buffer=False, buffer_size=BUFFER_BYTES)
            names, first = found.schema_arrow.names, 0
            if len(set(names)) < len(names) or not names:
                raise InvalidData(f"its columns are called {', '.join(map(repr, names))}; each needs a different name")
            for batch in found.iter_batches(batch_size=_rows_at_once(found.metadata)):
                yield ParquetColumns(path, pa.Table.from_batches([batch]), first)
                first += batch.num_rows
            if not first:
                yield ParquetColumns(path, found.schema_arrow.empty_table())

    @contextlib.contextmanager
    def writer(self, file: BinaryIO) -> Iterator[Write]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with contextlib.ExitStack() as stack:
            opened: list[Any] = []

            def write(piece: ParquetColumns, added: Mapping[str, Any]) -> None:
                table = piece.table
                for name, values in added.items():
                    table = table.append_column(name, pa.array(values))
                if not opened:
                    opened.append(stack.enter_context(pq.ParquetWriter(file, table.schema)))
                opened[0].write_table(table)

            yield write


def _rows_at_once(metadata: Any) -> int:
    """Rows of a Parquet file that make a piece."""
    stated = sum(max(0, metadata.row_group(i).total_byte_size) for i in range(metadata.num_row_groups))
    bytes_per_row = stated // max(1, metadata.num_rows)
    return max(1, min(MAX_ROWS, MAX_NUMBERS // max(1, metadata.num_columns), MAX_BYTES // max(1, bytes_per_row)))


FORMATS: Mapping[str, TableFormat] = {".csv": Csv(), ".parquet": Parquet()}


def format_of(path: Path) -> TableFormat | None:
    """The format that the end of a file's name stands for; None if it is another."""
    return FORMATS.get(path.suffix.lower())


def require_pyarrow() -> None:
    """InvalidConfig unless pyarrow is installed."""
    if find_spec("pyarrow") is None:
        raise InvalidConfig('Parquet files need pyarrow; install it: pip install "metafun[dask]"')
