"""Evaluations as tables."""

from pathlib import Path
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


def show_comparison(results: dict[str, Any]) -> None:
    """Prints a comparison of runs (`compare_runs`), one column for each."""
    runs = results["runs"]
    table = Table(title=f"{results['test_tasks']:,} test tasks of each kind")
    names = [Path(run["run"]).name for run in runs]
    table.add_column("")
    for run, name in zip(runs, names, strict=True):
        table.add_column(escape(name if names.count(name) == 1 else run["run"]), justify="right")
    for key in runs[0]["settings"]:
        table.add_row(key, *(escape(_text(run["settings"][key])) for run in runs))
    table.add_section()
    for fact in ("parameters", "steps", "train_seconds"):
        table.add_row(fact.replace("_", " "), *(f"{run[fact]:,}" for run in runs))
    table.add_section()
    for metric in dict.fromkeys(name for run in runs for name in run["metrics"]):
        values = [run["metrics"].get(metric) for run in runs]
        table.add_row(metric, *("–" if value is None else _with_interval(value) for value in values))
    out.print(table)
    out.print("mean ± standard deviation over seeds, 95 % interval over tasks in brackets")


def _text(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _with_interval(value: dict[str, Any]) -> str:
    interval = "" if value["interval"] is None else f" (± {value['interval']:.5f})"
    return format_mean_std(value) + interval
