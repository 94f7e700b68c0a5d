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


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
