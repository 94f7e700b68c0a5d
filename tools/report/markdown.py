"""Markdown tables."""

from collections.abc import Iterable, Sequence


def table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table.

    Args:
        columns: the header.
        rows: the cells of each row, as many as there are columns.
    """
    lines = [_line(columns), "|---" * len(columns) + "|", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def without_empty_columns(
    columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The header and the rows without the columns in which no row has anything."""
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    return tuple(columns[i] for i in kept), [tuple(row[i] for i in kept) for row in rows]


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
