"""docs/results.md: every published value beside the measured one, and the command that measured it."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, stdev

from metafun.paper import ITEMS, Measured, Results, load_item
from metafun.paper.items import Item, Row

from .markdown import table

HEAD = """# Results

The paper's tables and figures. `python -m tools.report` renders this page from
[`results/paper.jsonl`](../results/paper.jsonl), to which `metafun reproduce` appends its measurements. *Here* is the
mean over the seeds ± their standard deviation, with the 95 % interval of the mean over the test tasks in brackets.
*Ratio* is the value here divided by the published one. The image features come from our own network, not from the
paper's: compare methods with each other on them, not with the paper.
"""
MISSING = "not measured yet"


def render_paper_page(folder: Path, page: Path) -> str:
    """The page as Markdown.

    Args:
        folder: the folder of `paper.jsonl` and the figures.
        page: where the page will be; links to figures are relative to it.
    """
    results = Results(folder)
    return "\n".join([HEAD, *(_render_item(name, load_item(name), results, page) for name in ITEMS)])


def _render_item(name: str, item: Item, results: Results, page: Path) -> str:
    parts = [f"## {item.title}\n\n{item.caption}\n"]
    if (figure := results.path.parent / f"{name}.png").exists():
        link = Path(os.path.relpath(figure, page.parent)).as_posix()
        parts.append(f"![{item.title}]({link})\n")
    for section in dict.fromkeys(row.section for row in item.rows):
        parts += [f"### {section}\n"] if section else []
        parts.append(_render_rows(name, item, [row for row in item.rows if row.section == section], results))
    return "\n".join(parts)


def _render_rows(name: str, item: Item, rows: Sequence[Row], results: Results) -> str:
    has_published = any(row.published for row in rows)
    kinds = ("here", "the paper", "ratio") if has_published else ("here",)
    columns = ["", *(f"{column}: {kind}" for column in item.columns for kind in kinds), "how measured"]
    lines = []
    for row in rows:
        measured = [results.latest(name, row.name, column) for column in item.columns]
        cells = _cells(row, measured, item.percent, has_published)
        lines.append([row.name, *cells, _commands(row, measured)])
    return table(columns, lines)


def _cells(row: Row, measured: Sequence[Sequence[Measured]], percent: bool, has_published: bool) -> Iterator[str]:
    for i, found in enumerate(measured):
        yield _measured_cell(found, percent)
        if has_published:
            published = row.published[i] if row.published else ()
            yield " ± ".join(f"{value:.{2 if percent else 3}f}" for value in published)
            yield _ratio(found, published, percent)


def _measured_cell(found: Sequence[Measured], percent: bool) -> str:
    if not found:
        return ""
    scale, digits = (100, 2) if percent else (1, 5)
    values = [scale * line.value for line in found if line.value is not None]
    if len(values) < len(found):
        return f"{len(found) - len(values)} of {len(found)} seeds are not finite"
    std = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    interval = "" if found[0].interval is None else f" ({scale * found[0].interval:.{digits}f})"
    return f"{fmean(values):.{digits}f}{std}{interval}"


def _ratio(found: Sequence[Measured], published: Sequence[float], percent: bool) -> str:
    values = [line.value for line in found if line.value is not None]
    if not values or not published:
        return ""
    return f"{fmean(values) * (100 if percent else 1) / published[0]:.2f}"


def _commands(row: Row, measured: Sequence[Sequence[Measured]]) -> str:
    """The commands that measured a row, or why there are none."""
    lines = [line for found in measured for line in found]
    if not lines:
        return row.why or MISSING
    return "; ".join(dict.fromkeys(f"`{line.command}`, {line.device}, {line.date}" for line in lines))
