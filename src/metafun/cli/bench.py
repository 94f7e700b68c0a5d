"""metafun bench: MetaFun beside the methods that one would choose otherwise."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..bench.feature_cases import Case, Setup, plan
from ..bench.feature_results import FeatureCell, read_feature_cells
from ..bench.features import FeatureBenchmark, draw_accuracies
from ..config import EvaluationConfig
from ..data.table import counted
from ..errors import Busy, Diverged
from ..training.devices import forget_programs
from .bench_collections import collections
from .bench_speed import speed
from .console import AsJson, err, out
from .options import Figure, Methods, Settings, check_files, with_options

app = typer.Typer(no_args_is_help=True, help="Compare MetaFun with the methods that one would choose otherwise.")

Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="MODEL", help="Measure this model only. Repeatable.", show_default=False),
]
Data = Annotated[
    list[str] | None,
    typer.Option("--data", metavar="SET", help="Measure on this data set only. Repeatable.", show_default=False),
]


app.command()(collections)
app.command()(speed)


@app.callback()
def benchmarks() -> None:
    """Compare MetaFun with the methods that one would choose otherwise."""


@app.command()
def tables(
    splits: Annotated[int, typer.Option("--splits", min=1, help="Random splits of each set and size.")] = 100,
    only: Only = None,
    data: Data = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of processes.")] = 1,
    results: Annotated[Path, typer.Option("--results", help="File of results.")] = Path("results/tables.jsonl"),
    figure: Annotated[Path, typer.Option("--figure", help="File of the figure.")] = Path("docs/tables.svg"),
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

    check_files(results, figure)
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


Tables = Annotated[
    list[str], typer.Option("--data", metavar="TABLE", help="A table of features: a name or a path. Repeatable.")
]
Ways = Annotated[int, typer.Option("--ways", min=2, help="Classes of a task.")]
Shots = Annotated[
    list[int] | None,
    typer.Option("--shots", min=1, help="Context rows of each class. Repeatable.", show_default="1 and 5"),
]


@dataclass(frozen=True)
class FeatureOptions:
    """The options of the benchmark on features."""

    data: Tables
    only: Methods = None
    ways: Ways = 5
    shots: Shots = None
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Models of each method, with seeds 0, 1, …")] = 5
    tasks: Annotated[int, typer.Option("--tasks", min=1, help="Test tasks.")] = EvaluationConfig.tasks
    settings: Settings = None
    results: Annotated[Path, typer.Option("--results", help="File of results.")] = Path("results/features.jsonl")
    out_dir: Annotated[Path, typer.Option("--out", help="Folder of the runs.")] = Path("runs/bench-features")
    figure: Figure = None

    def cases(self) -> list[Case]:
        """What to measure."""
        shots = self.shots or [1, 5]
        setup = Setup(self.ways, shots[0], self.seeds, self.tasks, tuple(self.settings or ()))
        return plan(self.data, shots, setup, self.only or ())


@app.command()
@with_options(FeatureOptions)
def features(options: FeatureOptions, as_json: AsJson = False) -> None:
    """Compare few-shot methods on tables of features: nearest class mean, SimpleShot, logistic regression, …

    Each method is trained by the paper's protocol (see `metafun protocol`): the number of steps is chosen on val, then
    it is trained on train+val and tested once. A setting changed with --set changes in every method that has it.

    Cells that are in the results already, with the same settings and data, are not measured again. Stop with Ctrl-C;
    the same command continues. Start it several times, and the processes share the work.

    Examples:

      metafun bench features --data mine

      metafun bench features --data mine --data other --shots 1 --only MetaFun --only SimpleShot

      metafun bench features --data mine --ways 3 --seeds 2 --tasks 1000 --results /tmp/mine.jsonl
    """
    figure = options.figure or options.results.with_suffix(".png")
    check_files(options.results, figure)
    cases = options.cases()
    benchmark = FeatureBenchmark(options.out_dir, options.results, err)
    _measure(benchmark, cases)
    found = benchmark.found(cases)
    if as_json:
        print(json.dumps([asdict(cell) for cell in found]))
    else:
        _show_features(found)
    if found:
        err.print(str(draw_accuracies(read_feature_cells(options.results), figure)), markup=False)


def _measure(benchmark: FeatureBenchmark, cases: Sequence[Case]) -> None:
    """Measures the missing cases one after another; one that diverges is skipped with a message."""
    missing = benchmark.missing(cases)
    err.print(f"{len(cases) - len(missing)} of {len(cases)} cells are measured, {len(missing)} are missing")
    for i, case in enumerate(missing, 1):
        err.print(escape(f"[{i}/{len(missing)}] {case}"))
        try:
            benchmark.measure(case)
        except Busy:
            err.print("another process is measuring it")
        except Diverged as error:
            err.print(escape(f"skipped: {error}"))
        forget_programs()


def _show_features(cells: Sequence[FeatureCell]) -> None:
    """A table for each table of features and number of shots."""
    for kind in dict.fromkeys((cell.data, cell.ways, cell.shots) for cell in cells):
        there = [cell for cell in cells if (cell.data, cell.ways, cell.shots) == kind]
        data, ways, shots = kind
        about = f"{there[0].tasks:,} test tasks, {counted(min(len(cell.seeds) for cell in there), 'seeds')}"
        shown = Table(title=escape(f"{data}, {ways}-way {shots}-shot: {about}"))
        for name in ("method", "accuracy, %", "log-likelihood", "ece", "seconds"):
            shown.add_column(name, justify="left" if name == "method" else "right")
        for cell in there:
            values = (_mean_std(cell, "accuracy", 100, 2), *(_mean(cell, m) for m in ("log_likelihood", "ece")))
            shown.add_row(escape(cell.method), *values, f"{cell.seconds:.0f}")
        out.print(shown)


def _mean_std(cell: FeatureCell, metric: str, scale: float, digits: int) -> str:
    found = cell.mean_std(metric)
    if found is None:
        return "not finite"
    mean, std = (f"{scale * value:.{digits}f}" for value in found)
    return mean if len(cell.seeds) == 1 else f"{mean} ± {std}"


def _mean(cell: FeatureCell, metric: str) -> str:
    found = cell.mean_std(metric)
    return "not finite" if found is None else f"{found[0]:.3f}"
