"""python -m tools.notebooks: tutorials as Jupyter notebooks, made from their Markdown."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
TUTORIALS = ("sinusoid", "uncertainty")
_CODE = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
# Links are relative to the folder of the tutorials, where the notebooks are too.
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def notebook(markdown: str) -> str:
    """The notebook of a tutorial: a cell for each block of Python, and for the text between them.

    Args:
        markdown: text of the tutorial.
    """
    content = {
        "cells": [_cell(i, kind, text) for i, (kind, text) in enumerate(_parts(markdown))],
        "metadata": {"kernelspec": _KERNEL, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def code_cells(text: str) -> list[str]:
    """The code of a notebook, cell by cell.

    Args:
        text: the notebook's JSON.
    """
    return ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]


def _parts(markdown: str) -> Iterator[tuple[str, str]]:
    for i, part in enumerate(_CODE.split(markdown)):
        if text := part.strip("\n"):
            yield "code" if i % 2 else "markdown", text


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell


def main() -> int:
    """Writes the notebooks, or with --check compares them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.notebooks", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a notebook is out of date")
    check, stale = parser.parse_args().check, []
    for name in TUTORIALS:
        text, path = notebook((FOLDER / f"{name}.md").read_text("utf-8")), FOLDER / f"{name}.ipynb"
        if not path.is_file() or path.read_text("utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, "utf-8", newline="\n")
    if stale and check:
        print(f"error: out of date: {', '.join(stale)}; run python -m tools.notebooks.", file=sys.stderr)
    return 2 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main())
