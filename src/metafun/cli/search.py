"""metafun search: hyperparameters by random search, trials trained together, workers on one study."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..config import load_space
from ..errors import InvalidConfig, InvalidSearch, suggest
from ..files import write_atomically
from . import running
from .console import AsJson, app, err, out, write_json
from .experiments import Preset
from .running import Data, Resume, Seeds, Settings

SHOWN = 10


@app.command()
def search(
    preset: Preset,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials of the study, by all workers together.")] = 64,
    space: Annotated[str, typer.Option("--space", help="Ranges of the settings: a name or a TOML file.")] = (
        "space-table4"
    ),
    fixed: Annotated[
        list[str] | None, typer.Option("--fix", metavar="KEY", help="Leave this setting of the space as it is.")
    ] = None,
    settings: Settings = None,
    data: Data = None,
    seeds: Seeds = None,
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps of a trial.")] = 1000,
    batch: Annotated[int, typer.Option("--batch", min=1, help="Trials of one shape that are trained at once.")] = 8,
    sampler: Annotated[str, typer.Option("--sampler", help="random, tpe or qmc.")] = "random",
    pruner: Annotated[str, typer.Option("--pruner", help="median or none.")] = "median",
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the sampler.")] = 0,
    storage: Annotated[
        str | None,
        typer.Option(
            "--storage", help="Where workers meet: a database URL.", show_default="a journal file in the folder"
        ),
    ] = None,
    study_name: Annotated[
        str | None, typer.Option("--study", help="Its name in the storage.", show_default="that of the folder")
    ] = None,
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes on this machine.")] = 1,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Folder; runs/PRESET-search if not given.", show_default=False)
    ] = None,
    resume: Resume = False,
    forget: Annotated[
        bool, typer.Option("--forget", help="Give up all trials that were begun and not finished; others replace them.")
    ] = False,
    as_json: AsJson = False,
    worker: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Search for hyperparameters, as the paper's Appendix does; the best ones on validation are written as TOML.

    Ctrl-C at any time; --resume goes on. Several machines can work on one study: give them one --storage and --study.

    Examples:

      metafun search mini-dfp-1shot --trials 64

      metafun search mini-kfp-5shot --fix model.step_size --workers 2

      metafun search features --data mine --space ranges.toml --storage postgresql://user@host/name --study mine
    """
    if workers > 1 or worker:
        # Each process would take most of a GPU's memory for itself.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    # Optuna is slow to import, and most commands do without.
    from ..training import search as searching

    for name, value, known in (("sampler", sampler, searching.SAMPLERS), ("pruner", pruner, searching.PRUNERS)):
        if value not in known:
            raise InvalidConfig(f"--{name} {value} is not known; {suggest(value, known)}")
    folder = out_dir or Path("runs") / f"{Path(preset).stem}-search"
    if folder.exists() and any(folder.iterdir()) and not resume:
        raise InvalidSearch(f"{folder} holds a search already; add --resume to go on with it, or choose another --out.")
    if any(setting.startswith("training.steps=") for setting in settings or ()):
        raise InvalidConfig("--steps and --set training.steps=… say the same thing; give --steps.")
    config = running.configure(preset, [*(settings or ()), f"training.steps={steps}"], seeds, data).resolved()
    ranges = load_space(space, config, fixed or ())
    folder.mkdir(parents=True, exist_ok=True)
    journal = str(folder / "study.journal")
    storage = storage or journal
    study = searching.open_study(study_name or folder.name, storage, ranges, pruner=pruner)
    if forget:
        err.print(f"{searching.forget(study)} trials are given up; others take their place")
    others = [_start(i, folder) for i in range(1, workers)] if not worker else []
    own = folder / f"worker-{worker}"
    options: dict[str, Any] = {"trials": trials, "batch": batch, "sampler": sampler, "seed": seed}
    try:
        moments = searching.work(study, ranges, own, worker=_worker_name(own, shared=storage != journal), **options)
        follow(study, moments, trials, quiet=worker > 0)
    except BaseException as error:
        for process in others:
            process.terminate()  # which asks it to stop after its chunk
        if isinstance(error, searching.StorageInternalError):
            raise InvalidSearch(f"the storage failed: {error}; --resume goes on when it is there again.") from None
        raise
    finally:
        failed = [process for process in others if process.wait()]
    if failed:
        raise InvalidSearch(f"{len(failed)} of {workers} workers failed; what they said is above. --resume goes on.")
    if not worker:
        _report(study, ranges, preset, folder, as_json)


def _worker_name(folder: Path, *, shared: bool) -> str:
    """One that no other worker has: in a storage that machines share, folders may have the same name."""
    if not shared:
        return folder.name
    path = folder / "name"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, uuid.uuid4().hex.encode())
    return path.read_text("utf-8")


def _start(worker: int, folder: Path) -> subprocess.Popen:
    """The same command once more, as another worker on the study."""
    own = ["--worker", str(worker), "--resume", "--out", str(folder)]
    arguments = [a for a in sys.argv[1:] if a not in ("--resume", "--forget", "--json")]
    return subprocess.Popen([sys.executable, "-m", "metafun.cli", *arguments, *own], stdout=subprocess.DEVNULL)


def follow(study: Any, moments: Any, trials: int, *, quiet: bool = False) -> None:
    """Goes through the moments of a search, with a progress bar on a terminal and a line for each batch elsewhere."""
    from ..training import search as searching

    columns = (
        TextColumn("trials"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}  best {task.fields[best]}"),
        TimeElapsedColumn(),
    )
    hidden = quiet or not err.is_terminal
    with Progress(*columns, console=err, disable=hidden) as bar, running.stop_signal() as stopped:
        task = bar.add_task("", total=trials, now="…", best="…")
        for moment in moments:
            done = searching.finished(study)
            best = f"{searching.error(done[0]):.4f}" if done else "…"
            step = moment.report.record.step if moment.report else 0
            now = f"{len(moment.trials)} at once, step {step:,} of {moment.run.config.training.end:,}"
            bar.update(task, completed=len(done), now=now, best=best)
            if moment.report is None and not err.is_terminal:
                err.print(f"{len(done)} of {trials} trials done, best {best}; next: {_list(moment.trials)}")
            if stopped.is_set():
                moments.close()
                raise KeyboardInterrupt("stopped; --resume goes on from there.")


def _report(study: Any, ranges: Any, preset: str, folder: Path, as_json: bool) -> None:
    from ..plots.search import PARALLEL_FILE, SLICES_FILE, plot_parallel, plot_slices
    from ..training import search as searching

    done = searching.finished(study)
    ended = {t.number for t in done if t.state.name == "COMPLETE"}
    write_atomically(folder / "best.toml", searching.winner(study, ranges, preset).encode())
    rows: list[dict[str, Any]] = [
        {
            "trial": t.number,
            "error": t.value,
            "finished": t.number in ended,
            "settings": t.params,
        }
        for t in done
    ]
    results: dict[str, Any] = {"study": study.study_name, "trials": rows, "best": str(folder / "best.toml")}
    shown = [(t.params, t.value, t.number in ended) for t in done if t.value is not None]
    figures = [
        plot(ranges.ranges, shown, folder / name)
        for plot, name in ((plot_parallel, PARALLEL_FILE), (plot_slices, SLICES_FILE))
    ]
    results["figures"] = list(map(str, figures))
    write_json(folder / "search.json", results)
    if as_json:
        print(json.dumps(results))
        return
    table = Table(title=escape(f"{study.study_name}: the best {min(SHOWN, len(rows))} of {len(rows)} trials"))
    for column in ("trial", "validation error", *ranges.ranges):
        table.add_column(column.removeprefix("model.").removeprefix("training."), justify="right")
    for row in rows[:SHOWN]:
        values = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in (row["settings"][k] for k in ranges.ranges)]
        error = "diverged" if row["error"] is None else f"{row['error']:.4f}"
        table.add_row(str(row["trial"]), error + ("" if row["finished"] else " (given up)"), *values)
    out.print(table)
    if lost := searching.running(study):
        err.print(f"{_list([t.number for t in lost])} begun elsewhere, not finished; --forget replaces them")
    err.print(escape(f"Next: metafun train {folder / 'best.toml'}"))


def _list(numbers: Any) -> str:
    return f"trial{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
