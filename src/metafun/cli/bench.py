"""metafun bench: MetaFun beside the methods that one would choose otherwise."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
from ..errors import Busy, Diverged, InvalidConfig
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


@dataclass(frozen=True)
class TableOptions:
    """The options of the benchmark on small tables."""

    folder: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="DIR",
            help="A folder of tables, CSV or .npz, perhaps in subfolders classification and regression.",
            show_default="scikit-learn's tables",
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="COLUMN", help="The column of CSV files to predict.", show_default="the last"),
    ] = None
    splits: Annotated[
        int | None,
        typer.Option("--splits", min=1, help="Random splits of each set and size.", show_default="100; 10 with --dir"),
    ] = None
    only: Only = None
    data: Data = None
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Number of processes.")] = 1
    results: Annotated[
        Path | None,
        typer.Option(
            "--results",
            help="File of results.",
            show_default="results/tables.jsonl; results/tables-DIR.jsonl with --dir",
        ),
    ] = None
    figure: Annotated[
        Path | None,
        typer.Option("--figure", help="File of the figure.", show_default="docs/tables.svg; none with --dir"),
    ] = None

    def in_place(self) -> "TableOptions":
        """The same with the files and number of splits that are used by default."""
        if self.folder is None:
            if self.target is not None:
                raise InvalidConfig("--target names a column of the tables in --dir; give that too.")
            defaults = replace(self, splits=100, results=Path("results/tables.jsonl"), figure=Path("docs/tables.svg"))
        else:
            defaults = replace(self, splits=10, results=Path(f"results/tables-{self.folder.resolve().name}.jsonl"))
        given = {name: getattr(self, name) for name in ("splits", "results", "figure")}
        return replace(defaults, **{name: value for name, value in given.items() if value is not None})

    def source(self) -> list[str]:
        """The options that say where the tables are."""
        named = {"--dir": self.folder, "--target": self.target}
        return [word for name, value in named.items() if value is not None for word in (name, str(value))]


@app.command()
@with_options(TableOptions)
def tables(options: TableOptions, as_json: AsJson = False) -> None:
    """Fit few rows of small tables with MetaFun and with scikit-learn's estimators, default and tuned.

    A folder holds CSV files, or .npz files with X (rows × columns), y (rows) and, if known, categorical (columns).
    Its subfolders classification and regression, if there are such, say what is predicted. Otherwise text and whole
    numbers of few kinds are classes. The other models get missing entries filled, and a column for each category.

    Cells that are in the results already are not measured again. Stop with Ctrl-C; the same command continues.

    Examples:

      metafun bench tables --jobs 8

      metafun bench tables --only MetaFun --data iris --splits 20 --results /tmp/tables.jsonl --figure /tmp/tables.png

      metafun bench tables --dir my_tables --target price --only MetaFun --only "random forest" --results /tmp/my.jsonl
    """
    # scikit-learn is slow to import; the other commands do not need it.
    from ..bench.datasets import SETS
    from ..bench.results import add_cell, summary
    from ..bench.table_files import open_folder
    from ..bench.tables import choose_sets, draw, measure_cells, measured_cells, missing_cells

    options = options.in_place()
    results, splits, figure = options.results, options.splits, options.figure
    assert results is not None and splits is not None
    check_files(results, figure)
    opened = SETS if options.folder is None else open_folder(options.folder, options.target)
    sets = choose_sets(opened, options.data or ())
    missing = list(missing_cells(results, splits, options.only or (), sets))
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        measuring = measure_cells(missing, splits, options.jobs, sets, options.source())
        for cell in bar.track(measuring, total=len(missing)):
            add_cell(results, cell)
    cells = measured_cells(results, sets)
    found = summary(cells, sets)
    if as_json:
        print(json.dumps(found))
    else:
        _show(found)
    if figure is not None:
        err.print(str(draw(measured_cells(results, opened), figure, opened)), markup=False)


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
