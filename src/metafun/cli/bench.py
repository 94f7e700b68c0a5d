"""metafun bench: how models do beside those of scikit-learn."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from ..errors import InvalidConfig, suggest
from .console import AsJson, err, out

# scikit-learn is slow to import; the other commands do not need it.
if TYPE_CHECKING:
    from ..bench.tables import Cell

app = typer.Typer(no_args_is_help=True, help="How models do beside those of scikit-learn.")


@app.callback()
def benchmarks() -> None:
    """How models do beside those of scikit-learn."""


@app.command()
def tables(
    splits: Annotated[int, typer.Option("--splits", min=1, help="Random splits of each set and size.")] = 100,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="MODEL", help="May be given again.", show_default=False)
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="SET", help="May be given again.", show_default=False)
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that share the work.")] = 1,
    results: Annotated[Path, typer.Option("--results", help="Where the numbers are kept.")] = Path(
        "results/tables.jsonl"
    ),
    figure: Annotated[Path, typer.Option("--figure", help="Where the figure goes.")] = Path("docs/tables.png"),
    as_json: AsJson = False,
) -> None:
    """Few rows of scikit-learn's own tables: the models of any table beside its estimators, with defaults and tuned.

    What the results hold already is not measured again. Ctrl-C at any time; the same command goes on.

    Examples:

      metafun bench tables --jobs 8

      metafun bench tables --only MetaFun --data iris --splits 20 --results /tmp/tables.jsonl --figure /tmp/tables.png
    """
    from ..bench import tables as measuring

    for path, option in ((results, "--results"), (figure, "--figure")):
        if not path.absolute().parent.is_dir():
            raise InvalidConfig(f"{option} {path}: there is no folder {path.absolute().parent}; make it first.")
    known = {name for problem in measuring.OTHERS for name in measuring.models(problem)}
    for name in only or ():
        if name not in known:
            raise InvalidConfig(f"--only {name}: there is no such model; {suggest(name, sorted(known))}")
    for name in data or ():
        if name not in measuring.SETS:
            raise InvalidConfig(f"--data {name}: there is no such set; {suggest(name, list(measuring.SETS))}")
    missing = list(measuring.missing(results, splits, only or (), data or ()))
    columns = (TextColumn("measuring"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=len(missing))
        for cell in _measured(missing, splits, jobs):
            measuring.add(results, cell)
            bar.advance(task)
    cells = measuring.read(results)
    found = measuring.summary(cells, data or tuple(measuring.SETS))
    if as_json:
        print(json.dumps(found))
    else:
        _show(found)
    from ..plots.tables import plot_tables

    err.print(str(plot_tables(cells, figure)), markup=False)


def _measured(missing: Sequence[tuple[str, int, str]], splits: int, jobs: int) -> "Iterator[Cell]":
    from ..bench.tables import measure

    if jobs == 1:
        yield from (measure(*cell, splits) for cell in missing)
        return
    # A process that JAX has started threads in cannot be forked.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(measure, *cell, splits) for cell in missing]
        try:
            for done in as_completed(waiting):
                yield done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _show(summary: dict[str, dict[str, dict[str, float]]]) -> None:
    for problem, found in summary.items():
        metrics = list(dict.fromkeys(name for values in found.values() for name in values))
        shown = Table(title=f"{problem}: means over the sets")
        for name in ("model", *metrics):
            shown.add_column(name, justify="left" if name == "model" else "right")
        for model, values in found.items():
            shown.add_row(model, *(f"{values[name]:.3f}" if name in values else "–" for name in metrics))
        out.print(shown)
