"""metafun search: hyperparameters by random search, trials trained together, workers on one study."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from ..config import SPACES, Space, default_space, load_space, resolve
from ..errors import InvalidConfig, InvalidSearch, suggest
from ..files import write_atomically
from .console import AsJson, app, err, out, write_json
from .options import (
    Data,
    OutDir,
    Preset,
    Resume,
    Seeds,
    Settings,
    check_resumable,
    configure,
    with_options,
    with_plugins,
)

# Optuna is slow to import; the other commands do not need it.
if TYPE_CHECKING:
    import optuna

SHOWN = 10

Storage = Annotated[
    str | None,
    typer.Option("--storage", help="A database URL that workers share.", show_default="a journal file in the folder"),
]
StudyName = Annotated[
    str | None, typer.Option("--study", help="Name in the storage.", show_default="that of the folder")
]
RangesFile = Annotated[
    str | None,
    typer.Option(
        "--space",
        metavar="NAME_OR_TOML",
        help="Ranges of the settings: a TOML file, or one of " + ", ".join(SPACES) + ".",
        show_default="the first of these whose settings the preset has",
    ),
]
Fixed = Annotated[
    list[str] | None,
    typer.Option("--fix", metavar="KEY", help="Keep this setting of the space as it is. May be repeated."),
]
Forget = Annotated[bool, typer.Option("--forget", help="Mark unfinished trials as failed and run new ones.")]


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search."""

    preset: Preset
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials of the study, by all workers together.")] = 64
    space: RangesFile = None
    fixed: Fixed = None
    settings: Settings = None
    data: Data = None
    seeds: Seeds = None
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps of a trial.")] = 1000
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="Trials drawn at once; those of equal shape train together.")
    ] = 8
    sampler: Annotated[str, typer.Option("--sampler", help="random, tpe or qmc.")] = "random"
    pruner: Annotated[str, typer.Option("--pruner", help="median or none.")] = "median"
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the sampler.")] = 0
    storage: Storage = None
    study_name: StudyName = None
    workers: Annotated[int, typer.Option("--workers", min=1, help="Processes on this machine.")] = 1
    out_dir: OutDir = None
    resume: Resume = False
    forget: Forget = False
    as_json: AsJson = False
    worker: Annotated[int, typer.Option(hidden=True)] = 0

    @property
    def folder(self) -> Path:
        return self.out_dir or Path("runs") / f"{Path(self.preset).stem}-search"

    def check(self) -> None:
        """InvalidConfig or InvalidSearch for options that contradict each other or what is in the folder."""
        from ..training.search import PRUNERS, SAMPLERS

        for name, value, known in (("sampler", self.sampler, SAMPLERS), ("pruner", self.pruner, PRUNERS)):
            if value not in known:
                raise InvalidConfig(f"--{name} {value} is not known; {suggest(value, known)}")
        if any(setting.startswith("training.steps=") for setting in self.settings or ()):
            raise InvalidConfig("--steps and --set training.steps=… set the same thing; give --steps.")
        check_resumable(self.resume, self.folder)
        if self.folder.exists() and any(self.folder.iterdir()) and not self.resume:
            raise InvalidSearch(
                f"{self.folder} holds a search already; add --resume to continue it, or choose another --out."
            )

    def ranges(self) -> Space:
        """The search space over the preset with its changes."""
        settings = [*(self.settings or ()), f"training.steps={self.steps}"]
        config = configure(self.preset, settings, self.seeds, self.data)
        config = resolve(config).config
        return load_space(self.space or default_space(config, self.fixed or ()), config, self.fixed or ())


@app.command()
@with_plugins
@with_options(SearchOptions)
def search(options: SearchOptions) -> None:
    """Search for hyperparameters, as in the paper's Appendix; the best on validation are written as TOML.

    Stop with Ctrl-C, continue with --resume. Several machines can share a study: give them one --storage and --study.

    Examples:

      metafun search sinusoid --trials 16

      metafun search mini-dfp-1shot --trials 64

      metafun search mini-kfp-5shot --fix model.step_size --workers 2

      metafun search features --data mine --space ranges.toml --storage postgresql://user@host/name --study mine
    """
    if options.workers > 1 or options.worker:
        # Otherwise each process reserves most of a GPU's memory.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    options.check()
    space, folder = options.ranges(), options.folder
    folder.mkdir(parents=True, exist_ok=True)
    from ..training import search as searching

    journal = str(folder / "study.journal")
    storage = options.storage or journal
    study = searching.open_study(options.study_name or folder.name, storage, space, pruner=options.pruner)
    if options.forget:
        err.print(f"{searching.forget(study)} unfinished trials will be replaced")
    _work(study, space, options, is_shared=storage != journal)
    if not options.worker:
        _report(study, space, options)


def _work(study: "optuna.Study", space: Space, options: SearchOptions, *, is_shared: bool) -> None:
    """Works on the study in this process, and in as many others as asked for."""
    from optuna.exceptions import StorageInternalError

    from ..training import search as searching
    from ..training.search_progress import run_search

    others = [] if options.worker else [_start(i, options.folder) for i in range(1, options.workers)]
    folder = options.folder / f"worker-{options.worker}"
    limits: dict[str, Any] = {"trials": options.trials, "batch": options.batch}
    try:
        name = searching.worker_name(folder, is_shared)
        progress = searching.work(
            study, space, folder, worker=name, sampler=options.sampler, seed=options.seed, **limits
        )
        run_search(study, progress, options.trials, err, quiet=options.worker > 0)
    except BaseException as error:
        for process in others:
            process.terminate()  # on POSIX, it stops after its chunk
        if isinstance(error, StorageInternalError):
            raise InvalidSearch(f"the storage failed: {error}; --resume continues when it is back.") from None
        raise
    finally:
        failed = [process for process in others if process.wait()]
    if failed:
        raise InvalidSearch(f"{len(failed)} of {options.workers} workers failed; see above. --resume continues.")


def _start(worker: int, folder: Path) -> subprocess.Popen:
    """The same command in another process, as another worker."""
    arguments = [a for a in sys.argv[1:] if a not in ("--resume", "--forget", "--json")]
    arguments += ["--worker", str(worker), "--resume", "--out", str(folder)]
    # -P: with -m alone, Python would import modules from the current folder, which may hold a stranger's files.
    return subprocess.Popen([sys.executable, "-P", "-m", "metafun.cli", *arguments], stdout=subprocess.DEVNULL)


def _report(study: "optuna.Study", space: Space, options: SearchOptions) -> None:
    """Writes best.toml, search.json and the figures, and prints the best trials."""
    from ..plots.search import draw_study
    from ..training import search as searching
    from ..training.search_progress import numbered

    folder, trials = options.folder, searching.summary(study)
    write_atomically(folder / "best.toml", searching.winner(study, space, options.preset).encode())
    figures = draw_study(space.ranges, trials, folder)
    results = {"study": study.study_name, "trials": trials, "best": str(folder / "best.toml"), "figures": figures}
    write_json(folder / "search.json", results)
    if options.as_json:
        print(json.dumps(results))
        return
    table = Table(title=escape(f"{study.study_name}: the best {min(SHOWN, len(trials))} of {len(trials)} trials"))
    for column in ("trial", "validation error", *space.ranges):
        table.add_column(column.removeprefix("model.").removeprefix("training."), justify="right", overflow="fold")
    for trial in trials[:SHOWN]:
        chosen = (trial["settings"][key] for key in space.ranges)
        values = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in chosen]
        error = "diverged" if trial["error"] is None else f"{trial['error']:.4f}"
        table.add_row(str(trial["trial"]), error + ("" if trial["finished"] else " (pruned)"), *values)
    out.print(table)
    if unfinished := searching.running(study):
        names = numbered([trial.number for trial in unfinished])
        err.print(f"{names} begun elsewhere and not finished; --forget replaces them")
    err.print(escape(f"Next: metafun train {folder / 'best.toml'}"))
