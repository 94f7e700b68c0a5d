"""metafun reproduce: the paper's tables and figures, measured cell by cell."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import jax
import typer
from rich.markup import escape

from ..errors import Busy, Diverged, InvalidConfig, InvalidData, InvalidSearch
from ..paper import ITEMS, Job, Results, load_item, plan
from ..paper.runner import Runner
from ..paper.smoke import SMOKE, one_of_each, smoke_data
from ..training.devices import forget_programs
from .console import app, err

Items = Annotated[list[str], typer.Argument(metavar="ITEM…", help=f"{', '.join(ITEMS)}, or all.")]
Only = Annotated[
    str | None,
    typer.Option(
        "--only", metavar="ROW", help="The row with this name, or all rows whose name contains it.", show_default=False
    ),
]
SeedCount = Annotated[int, typer.Option("--seeds", min=1, help="Number of models of each cell, with seeds 0, 1, …")]
Trials = Annotated[int, typer.Option("--trials", min=1, help="Trials of each search.")]
Replacements = Annotated[
    list[str] | None, typer.Option("--data", metavar="NAME=OTHER", help="Use OTHER as the data set NAME.")
]
ResultsFolder = Annotated[Path, typer.Option("--results", help="Folder of paper.jsonl.")]
RunsFolder = Annotated[Path, typer.Option("--out", help="Folder of the runs.")]
Smoke = Annotated[bool, typer.Option("--smoke", help="Tiny models on random data, to see that everything works.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what is missing, and stop.")]


@app.command()
def reproduce(
    what: Items,
    only: Only = None,
    seeds: SeedCount = 5,
    trials: Trials = 64,
    data: Replacements = None,
    results: ResultsFolder = Path("results"),
    out_dir: RunsFolder = Path("runs/paper"),
    smoke: Smoke = False,
    dry: DryRun = False,
) -> None:
    """Measure the paper's tables and figures, beside the published values.

    tiered-standin is no table of the paper: it measures the methods of Table 2 on a stand-in for tieredImageNet.

    Cells in results/paper.jsonl are not measured again, and interrupted runs continue. Start the same command several
    times, and the processes share the work.

    Examples:

      metafun reproduce table1

      metafun reproduce table2 --only LEO --seeds 2

      metafun reproduce all --smoke --results /tmp/smoke --out /tmp/smoke/runs
    """
    names = list(ITEMS) if "all" in what else list(dict.fromkeys(what))
    for name in names:
        load_item(name)
    if smoke and results.resolve() == Path("results").resolve():
        raise InvalidConfig("--smoke measures nothing worth keeping; give it another folder with --results.")
    results.mkdir(parents=True, exist_ok=True)
    replacements = _pairs(data or ())
    if smoke:
        seeds, trials, replacements = 1, 1, smoke_data(out_dir)
        jax.config.update("jax_disable_most_optimizations", True)  # compile time dominates
    changes = SMOKE if smoke else None
    jobs = plan(names, only=only, seeds=seeds, trials=trials, data=replacements, changes=changes)
    jobs = one_of_each(jobs) if smoke else jobs
    runner = Runner(out_dir, results, data or (), err)
    _measure(runner, jobs, dry)
    if not dry and only is None:
        for figure in runner.draw(names, jobs):
            err.print(str(figure))


def _measure(runner: Runner, jobs: Sequence[Job], dry: bool) -> None:
    """Measures the missing jobs one after another; a job that fails is skipped with a message."""
    found = Results(runner.results)
    if found.broken:
        err.print(escape(f"{found.path}: its last line is broken and is ignored"))
    missing = [job for job in jobs if runner.is_missing(job, found)]
    err.print(f"{len(jobs) - len(missing)} of {len(jobs)} trainings are done, {len(missing)} are missing")
    skipped = 0
    for i, job in enumerate(missing, 1):
        err.print(escape(f"[{i}/{len(missing)}] {'; '.join(map(str, job.addresses))}"))
        if dry:
            continue
        try:
            runner.measure(job)
        except Busy:
            err.print("another process is measuring it")
        except (InvalidData, Diverged, InvalidSearch) as error:
            skipped += 1
            err.print(escape(f"skipped: {error}"))
        forget_programs()
    if skipped:
        err.print(f"{skipped} trainings were skipped; the reasons are above")


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, other in pairs:
        if not (name and equals and other):
            raise InvalidConfig(f"--data {name}{equals}{other} must have the form NAME=OTHER.")
    return {name: other for name, _, other in pairs}
