"""docs/results.md: every published value beside what was measured here, and the command that measures it."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

from .items import ITEMS, Item, Row, load_item
from .results import Measured, Results

HEAD = """# Results

The paper's tables and figures, rendered by `metafun report` from [`results/paper.jsonl`](../results/paper.jsonl), to
which `metafun reproduce` adds what it measures. *Here* is the mean over the seeds ± their standard deviation, with the
95 % interval of that mean over the test tasks in brackets; *ratio* is the value here over the published one. The
features of images are of a network of ours, not those of the paper: on them, methods compare with each other, not with
the paper.
"""
MISSING = "not measured yet"


def render(folder: Path, page: Path) -> str:
    """The text of `page`, which figures are linked from."""
    results = Results(folder)
    return "\n".join([HEAD, *(_item(name, load_item(name), results, page) for name in ITEMS)])


def _item(name: str, item: Item, results: Results, page: Path) -> str:
    lines = [f"## {item.title}", "", item.caption, ""]
    if (figure := results.path.parent / f"{name}.png").exists():
        lines += [f"![{item.title}]({os.path.relpath(figure, page.parent)})", ""]
    sections = list(dict.fromkeys(row.section for row in item.rows))
    for section in sections:
        rows = [row for row in item.rows if row.section == section]
        lines += [f"### {section}", ""] if section else []
        lines += [*_table(name, item, rows, results), ""]
    return "\n".join(lines)


def _table(name: str, item: Item, rows: Sequence[Row], results: Results) -> list[str]:
    published = any(row.published for row in rows)
    parts = ("here", "the paper", "ratio") if published else ("here",)
    titles = [f"{column}: {part}" for column in item.columns for part in parts]
    lines = [f"| | {' | '.join(titles)} | how |", "|---" * (len(titles) + 2) + "|"]
    for row in rows:
        measured = [results.latest(name, row.name, column) for column in item.columns]
        cells = []
        for i, found in enumerate(measured):
            there = row.published[i] if row.published else ()
            cells += [_here(found, item.percent)]
            if published:
                cells += [_there(there, item.percent), _ratio(found, there, item.percent)]
        lines.append(f"| {row.name} | {' | '.join(cells)} | {_how(row, measured)} |")
    return lines


def _here(found: Sequence[Measured], percent: bool) -> str:
    if not found:
        return ""
    scale, digits = (100, 2) if percent else (1, 5)
    values = [scale * line.value for line in found if line.value is not None]
    if len(values) < len(found):
        return f"{len(found) - len(values)} of {len(found)} seeds are not finite"
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    interval = "" if found[0].interval is None else f" ({scale * found[0].interval:.{digits}f})"
    return f"{fmean(values):.{digits}f}{spread}{interval}"


def _there(published: Sequence[float], percent: bool) -> str:
    digits = 2 if percent else 3
    return " ± ".join(f"{value:.{digits}f}" for value in published)


def _ratio(found: Sequence[Measured], published: Sequence[float], percent: bool) -> str:
    values = [line.value for line in found if line.value is not None]
    if not values or not published:
        return ""
    return f"{fmean(values) * (100 if percent else 1) / published[0]:.2f}"


def _how(row: Row, measured: Sequence[Sequence[Measured]]) -> str:
    lines = [line for found in measured for line in found]
    if not lines:
        return row.why or MISSING
    return "; ".join(dict.fromkeys(f"`{line.command}`, {line.device}, {line.date}" for line in lines))
