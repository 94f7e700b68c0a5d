"""Checks of this repository: complete lines of results, and no number in README.md or docs/ without a source."""

from pathlib import Path

from metafun.errors import InvalidResults

from .claims import check_claims
from .numbers import check_numbers, load_facts
from .records import incomplete_lines

# This page is rendered as a whole.
RENDERED = "docs/results.md"


def check_repository(root: Path) -> None:
    """InvalidResults at the first kind of mistake.

    Args:
        root: the root of the repository.
    """
    if incomplete := incomplete_lines(root / "results"):
        raise InvalidResults("\n".join(["results lack fields (see CONTRIBUTING.md):", *incomplete]))
    paths = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    pages = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in paths}
    pages.pop(RENDERED, None)
    check_claims(pages, root / "results")
    check_numbers(pages, load_facts())
