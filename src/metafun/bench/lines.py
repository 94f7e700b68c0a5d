"""A file of results: one line of JSON for each measured cell."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..data.table import CONTROL
from ..errors import InvalidResults
from ..files import MOST_RESULTS, locked, read_text, write_atomically


class Line(Protocol):
    """A dataclass whose instances are lines of results."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What identifies a cell in the file."""


L = TypeVar("L", bound=Line)


def read_lines(path: Path, parse_line: Callable[[dict[str, Any]], L]) -> list[L]:
    """The lines of a .jsonl file; none if there is no file.

    Args:
        path: the file.
        parse_line: makes a line of its JSON object, or raises ValueError or TypeError.
    """
    if not path.exists():
        return []
    try:
        return [parse_line(_printable(json.loads(line))) for line in read_text(path, MOST_RESULTS).splitlines()]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InvalidResults(
            f"{path} has a line that is not a benchmark result: {error}; correct it, or choose another --results."
        ) from None


def _printable(content: Any) -> Any:
    """The content of a line, unless a text in it has control characters: names are printed in tables."""
    if isinstance(content, str) and CONTROL.search(content):
        raise ValueError("it has control characters")
    if isinstance(content, dict):
        _printable([*content, *content.values()])
    elif isinstance(content, list):
        list(map(_printable, content))
    return content


def add_line(path: Path, line: L, parse_line: Callable[[dict[str, Any]], L]) -> None:
    """Adds a line at the end of the file, in place of the older line with the same key, if there is one.

    Args:
        path: the file; other processes may add lines to it at the same time.
        line: what was measured.
        parse_line: as in `read_lines`.
    """
    with locked(path.absolute().parent, wait=True):
        others = [other for other in read_lines(path, parse_line) if other.key != line.key]
        lines = (json.dumps(asdict(each)) + "\n" for each in (*others, line))  # type: ignore[call-overload]
        write_atomically(path, "".join(lines).encode())
