"""metafun bench: the shipped models beside scikit-learn's estimators."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from .console import AsJson, err, out
from .options import check_folder

app = typer.Typer(no_args_is_help=True, help="Compare the shipped models with scikit-learn's estimators.")

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="MODEL", help="Measure this model only. Repeatable.", show_default=False),
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="SET", help="Measure on this data set only. Repeatable.", show_default=False),
]


@app.callback()
def benchmarks() -> None:
    """Compare the shipped models with scikit-learn's estimators."""


@app.command()
def tables(
    splits: Annotated[int, typer.Option("--splits", min=1, help="Random splits of each set and size.")] = 100,
    only: Only = None,
    data: Data = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of processes.")] = 1,
    results: Annotated[Path, typer.Option("--results", help="File of results.")] = Path("results/tables.jsonl"),
    figure: Annotated[Path, typer.Option("--figure", help="File of the figure.")] = Path("docs/tables.png"),
    as_json: AsJson = False,
) -> None:
    """Fit few rows of scikit-learn's bundled tables with MetaFun and with its estimators, default and tuned.

    Cells that are in the results already are not measured again. Stop with Ctrl-C; the same command continues.

    Examples:

      metafun bench tables --jobs 8

      metafun bench tables --only MetaFun --data iris --splits 20 --results /tmp/tables.jsonl --figure /tmp/tables.png
    """
    # scikit-learn is slow to import; the other commands do not need it.
    from ..bench.results import add_cell, read_cells, summary
    from ..bench.tables import draw, measure_cells, missing_cells

    check_folder("--results", results)
    check_folder("--figure", figure)
    missing = list(missing_cells(results, splits, only or (), data or ()))
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        for cell in bar.track(measure_cells(missing, splits, jobs), total=len(missing)):
            add_cell(results, cell)
    cells = read_cells(results)
    found = summary(cells, data or ())
    if as_json:
        print(json.dumps(found))
    else:
        _show(found)
    err.print(str(draw(cells, figure)), markup=False)


def _show(summary: dict[str, dict[str, dict[str, float]]]) -> None:
    for problem, found in summary.items():
        metrics = list(dict.fromkeys(name for values in found.values() for name in values))
        shown = Table(title=f"{problem}: means over the data sets")
        for name in ("model", *metrics):
            shown.add_column(name, justify="left" if name == "model" else "right")
        for model, values in found.items():
            shown.add_row(model, *(f"{values[name]:.3f}" if name in values else "–" for name in metrics))
        out.print(shown)
