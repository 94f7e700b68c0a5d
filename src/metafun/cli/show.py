"""Evaluations as tables."""

from typing import Any

from rich.markup import escape
from rich.table import Table

from ..paper.published import format_mean_std, published
from .console import out


def show(results: dict[str, Any]) -> None:
    """Prints an evaluation, beside the paper's values where it has some."""
    title = f"{results['run']}: {results['test_tasks']:,} test tasks, {results['parameters']:,} parameters"
    caption = f"trained on {results['trained_on']}; tested on {results['tested_on']}"
    table = Table(title=escape(title), caption=escape(caption))
    paper = published(results)
    for column in ("metric", "here", "95 % interval", *(["the paper"] if paper else [])):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, value in results["metrics"].items():
        interval = "–" if value["interval"] is None else f"± {value['interval']:.5f}"
        beside = [f"{paper[name][0]:.3f} ± {paper[name][1]:.3f}" if name in paper else "–"] if paper else []
        table.add_row(name, format_mean_std(value), interval, *beside)
    out.print(table)
