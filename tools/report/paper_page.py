"""docs/results.md: every published value beside the measured one, and the command that measured it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

from metafun.paper import ITEMS, load_item
from metafun.paper.items import Item

from .cells import MISSING, timing
from .markdown import table
from .paper_rows import PaperCell, PaperRow, paper_rows
from .records import published_cell

HEAD = """# Results

The paper's tables and figures. `python -m tools.report` renders this page from
[`results/paper.jsonl`](../results/paper.jsonl), to which `metafun reproduce` appends its measurements. *Here* is the
mean over the seeds ± their standard deviation, with the 95 % interval of the mean over the test tasks in brackets.
*Ratio* is the value here divided by the published one. Seconds are those of the training of all seeds at once; they are
given where it was recorded what else used the GPU. *Earlier settings* marks values that the command measured before
its preset changed. The image features come from our own network, not from the paper's: compare methods with each
other on them, not with the paper.
"""


def render_paper_page(folder: Path, page: Path) -> str:
    """The page as Markdown.

    Args:
        folder: the folder of `paper.jsonl` and the figures.
        page: where the page will be; links to figures are relative to it.
    """
    return "\n".join([HEAD, *(_render_item(name, load_item(name), folder, page) for name in ITEMS)])


def _render_item(name: str, item: Item, folder: Path, page: Path) -> str:
    parts = [f"## {item.title}\n\n{item.caption}\n"]
    if (figure := folder / f"{name}.png").exists():
        link = Path(os.path.relpath(figure, page.parent)).as_posix()
        parts.append(f"![{item.title}]({link})\n")
    rows = list(paper_rows(name, folder))
    for section in dict.fromkeys(row.row.section for row in rows):
        parts += [f"### {section}\n"] if section else []
        parts.append(_render_rows(item, [row for row in rows if row.row.section == section]))
    return "\n".join(parts)


def _render_rows(item: Item, rows: Sequence[PaperRow]) -> str:
    has_published = any(row.row.published for row in rows)
    kinds = ("here", "the paper", "ratio") if has_published else ("here",)
    columns = ["", *(f"{column}: {kind}" for column in item.columns for kind in kinds), "how measured"]
    return table(columns, ([row.row.name, *_cells(row, item.percent, has_published), _how(row)] for row in rows))


def _cells(row: PaperRow, percent: bool, has_published: bool) -> Iterator[str]:
    for cell in row.cells:
        # A row without any measurement gives the reason once, in its last column.
        yield cell.value(percent, with_interval=True) if row.lines else ""
        if has_published:
            yield published_cell(cell.published, 2 if percent else 3)
            yield _ratio(cell, percent)


def _ratio(cell: PaperCell, percent: bool) -> str:
    values = [line.value for line in cell.lines if line.value is not None]
    if not values or not cell.published:
        return ""
    ratio = fmean(values) * (100 if percent else 1) / cell.published[0]
    return f"{ratio:.2f}" if ratio >= 0.01 else f"{ratio:.4f}"


def _how(row: PaperRow) -> str:
    """The commands that measured a row, on what and when; or why there are none."""
    if not row.lines:
        return row.row.why or MISSING
    return "; ".join(dict.fromkeys(_origin(cell) for cell in row.cells if cell.lines))


def _origin(cell: PaperCell) -> str:
    line = cell.lines[0]
    facts = [f"`{line.command}`", line.device, line.date]
    if line.beside is not None:
        facts.append(f"training: {timing(line.seconds, line.beside)}")
    if cell.search is not None:
        facts.append(f"search of {len(cell.search.errors)} trials: {timing(cell.search.seconds, cell.search.beside)}")
    return ", ".join(facts)
