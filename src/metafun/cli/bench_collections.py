"""metafun bench collections: `meta_fit` beside simple methods, on collections of related tasks."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from ..data.table import counted
from .console import AsJson, err, out
from .options import Figure, Methods, check_files, with_options

if TYPE_CHECKING:
    from ..bench.collection_results import CollectionCell
    from ..bench.collections import Job

Files = Annotated[
    list[str] | None,
    typer.Argument(metavar="[FILE]...", help="CSV or .npz files, or bundled collections.", show_default="the bundled"),
]
Target = Annotated[str, typer.Option("--target", metavar="COLUMN", help="Column or array of the outputs.")]
TaskColumn = Annotated[str, typer.Option("--task", metavar="COLUMN", help="Column or array with the task of each row.")]
Points = Annotated[
    list[int] | None,
    typer.Option("--points", min=1, help="Context points of a task. Repeatable.", show_default="3 and 6"),
]


@dataclass(frozen=True)
class CollectionOptions:
    """The options of the benchmark on collections."""

    files: Files = None
    target: Target = "y"
    task: TaskColumn = "task"
    only: Methods = None
    points: Points = None
    splits: Annotated[int, typer.Option("--splits", min=1, help="Random choices of the held-out tasks.")] = 3
    results: Annotated[Path, typer.Option("--results", help="File of results.")] = Path("results/collections.jsonl")
    figure: Figure = None

    def jobs(self) -> "list[Job]":
        """What to measure."""
        from ..bench.collection_data import BUNDLED, open_collection
        from ..bench.collections import Job, check_methods, check_points

        points = tuple(dict.fromkeys(self.points or (3, 6)))
        collections = [open_collection(file, self.target, self.task) for file in dict.fromkeys(self.files or BUNDLED)]
        for collection in collections:
            check_points(collection, points, self.splits)
        words = [word for n in points for word in ("--points", str(n))]
        words += ["--target", self.target, "--task", self.task]
        methods = check_methods(self.only or ())
        return [Job(each, method, points, self.splits, tuple(words)) for each in collections for method in methods]


@with_options(CollectionOptions)
def collections(options: CollectionOptions, as_json: AsJson = False) -> None:
    """Compare meta_fit with simple methods on collections of related regression tasks.

    A quarter of the tasks is held out. Each method learns from the others, sees 3 or 6 points of a held-out task and
    predicts the rest of it. GPBoost is measured too if it is installed (pip install gpboost).

    Cells that are in the results already are not measured again. Stop with Ctrl-C; the same command continues.

    Examples:

      metafun bench collections

      metafun bench collections sensors.csv --target temperature --task sensor --results /tmp/sensors.jsonl

      metafun bench collections growth --only meta_fit --points 5 --splits 1 --results /tmp/growth.jsonl
    """
    # scikit-learn is slow to import; the other commands do not need it.
    from ..bench.collection_results import add_collection_cell, compare, in_order, read_collection_cells
    from ..bench.collections import draw, measure, plan

    figure = options.figure or options.results.with_suffix(".png")
    check_files(options.results, figure)
    jobs = options.jobs()
    missing = plan(jobs, options.results)
    for i, job in enumerate(missing, 1):
        err.print(escape(f"[{i}/{len(missing)}] {job}"))
        for cell in measure(job):
            add_collection_cell(options.results, cell)
    measured = read_collection_cells(options.results)
    wanted = {(job.collection.fingerprint, n, job.method) for job in jobs for n in job.points}
    found = in_order([cell for cell in measured if cell.key in wanted])
    comparisons = list(map(str, compare(found)))
    if as_json:
        print(json.dumps({"cells": [asdict(cell) for cell in found], "comparisons": comparisons}))
    else:
        _show(found)
        for sentence in comparisons:
            out.print(escape(sentence))
    err.print(str(draw(found, figure)), markup=False)


def _show(cells: "Sequence[CollectionCell]") -> None:
    """A table for each collection and number of points."""
    from ..bench.collection_results import with_distinct_names

    cells = with_distinct_names(cells)
    for data, points in dict.fromkeys((cell.data, cell.points) for cell in cells):
        there = [cell for cell in cells if (cell.data, cell.points) == (data, points)]
        about = f"{there[0].tasks:,} tasks, {counted(len(there[0].seeds), 'splits')}"
        shown = Table(title=escape(f"{data}, {points} context points: {about}"))
        for name in ("method", "RMSE / std", "log-likelihood", "95 % coverage", "seconds"):
            shown.add_column(name, justify="left" if name == "method" else "right")
        for cell in there:
            values = (f"{cell.mean('rmse'):.3f}", f"{cell.mean('log_likelihood'):.3f}", f"{cell.mean('coverage'):.1%}")
            shown.add_row(escape(cell.method), *values, f"{cell.seconds:.1f}")
        out.print(shown)
