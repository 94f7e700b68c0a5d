"""Runs as the commands handle them: open, train with a progress bar, measure, show."""

import contextlib
import dataclasses
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import jax
import typer
from rich.markup import escape
from rich.table import Table

from .. import __version__
from ..config import Config, EpisodesConfig, load_config, parse_setting, with_changes
from ..errors import InvalidConfig, InvalidRun
from ..model.nn import count_parameters
from ..paper.published import format_mean_std, published
from ..schema import flatten, to_table
from ..training.evaluation import evaluate
from ..training.progress import watched
from ..training.run_folder import Run
from .console import err, out

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set training.steps=1000.")
]
Data = Annotated[str | None, typer.Option("--data", help="A table of features: a name or a path.", show_default=False)]
Seeds = Annotated[
    int | None, typer.Option("--seeds", min=1, help="Seeds trained at once: 0, 1, …", show_default="as the preset says")
]
Vary = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="KEY=[A,B,…]",
        help="Train these values of a setting at once and keep the best on validation; several settings vary together.",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="HOST:PORT",
        help="Where several processes that train together meet.",
        show_default=False,
    ),
]
Processes = Annotated[int, typer.Option("--processes", min=1, help="How many they are.")]
Process = Annotated[int, typer.Option("--process", min=0, help="Which of them this is; the first is 0.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the run in the folder stopped.")]
Record = Annotated[
    Path | None, typer.Option("--record", help="Append the result to this .jsonl file.", show_default=False)
]


def configure(
    source: str, settings: Sequence[str] | None, seeds: int | None, data: str | None, vary: Sequence[str] | None = None
) -> Config:
    """A preset or file, with the settings that have options of their own."""
    changes: dict[str, Any] = {"training.seeds": None if seeds is None else list(range(seeds)), "tasks.data": data}
    changes = {key: value for key, value in changes.items() if value is not None}
    for key in changes:
        if any(setting.startswith(key + "=") for setting in settings or ()):
            raise InvalidConfig(f"--{key.split('.')[1]} and --set {key}=… say the same thing; give one of them.")
    if data is not None:
        expect_episodes(load_config(source))
    if vary:
        changes["vary"] = dict(map(parse_setting, vary))
    return load_config(source, settings or (), changes)


def expect_episodes(config: Config) -> EpisodesConfig:
    """The tasks, if it makes sense to name data for them."""
    if not isinstance(config.tasks, EpisodesConfig):
        raise InvalidConfig(f"--data is for tasks from a table of features; tasks.kind = '{config.tasks.kind}'.")
    return config.tasks


def open_run(path: Path, config: Config, *, overwrite: bool, resume: bool, as_it_is: bool = False) -> Run:
    """A new run, or with `resume` the one in the folder: `as_it_is`, or if it has the settings asked for."""
    if overwrite and resume:
        raise InvalidConfig("--resume and --overwrite contradict each other; give one of them.")
    if not resume or Run.is_free(path):
        return Run.create(path, config, overwrite=overwrite)
    run = Run(path)
    if not as_it_is and run.config != (asked := config.resolved()):
        there, here = (flatten(to_table(c)) for c in (run.config, asked))
        key = next(key for key in {**there, **here} if there.get(key) != here.get(key))
        raise InvalidConfig(
            f"{path} was started with other settings: {key} is {there.get(key)} there and {here.get(key)} here. "
            "Leave the settings out to go on with those of the folder, or choose another --out."
        )
    return run


def train(run: Run, title: str = "training") -> None:
    """Trains with a progress bar on a terminal, and with a line for each validation elsewhere."""
    end = run.config.training.end
    with stop_signal() as stopped:
        for report in watched(run, err, title):
            if stopped.is_set() and report.record.step < end:
                raise KeyboardInterrupt(f"stopped at step {report.record.step}; --resume goes on from there.")


def varied(run: Run, variant: int | None = None) -> str:
    """The settings that set a variant, or the best one, apart from the others."""
    config = run.variant if variant is None else run.config.variants()[variant]
    settings = flatten(to_table(config))
    return ", ".join(f"{key}={settings[key]:g}" for key in run.config.vary or ())


@contextlib.contextmanager
def stop_signal() -> Iterator[threading.Event]:
    """Ctrl-C asks for a stop after this chunk: raised inside JAX's callbacks it would be lost. A second one insists."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(signum: int, frame: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        err.print("stopping after this chunk of steps; Ctrl-C again stops at once")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def measure(
    run: Run, which: str = "best", changes: Mapping[str, Any] | None = None, data: str | None = None
) -> dict[str, Any]:
    """The metrics over the seeds, and all one needs to know where the numbers come from."""
    config = with_changes(run.variant, changes or {})
    if data is not None:
        tasks = dataclasses.replace(expect_episodes(config), data=data, fingerprint=None)
        config = dataclasses.replace(config, tasks=tasks)
    record, models = run.record, run.models(which)
    if record.step < run.config.training.end and not record.stopped_early:
        err.print(f"note: training was stopped after {record.step} of {run.config.training.end} steps")
    return {
        "run": run.path.name,
        "which": which,
        "trained_on": run.config.tasks.trained_on,
        "tested_on": config.tasks.tested_on,
        "metrics": evaluate(models, config),
        "test_tasks": config.evaluation.tasks,
        "parameters": count_parameters(models) // len(config.training.seeds),
        "steps": record.step,
        "best_step": record.best_step,
        "train_seconds": round(record.seconds, 2),
        "steps_per_second": run.steps_per_second(),
        "device": jax.local_devices()[0].device_kind,
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "config": config.to_toml(),
    }


def show(results: dict[str, Any]) -> None:
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


def check_record(path: Path | None) -> None:
    """Before the work, not after it."""
    if path is not None:
        _check_folder("--record", path)


def _check_folder(option: str, path: Path) -> None:
    if not path.absolute().parent.is_dir():
        raise InvalidConfig(f"{option} {path}: there is no folder {path.absolute().parent}; make it first.")


def plot(run: Run) -> dict[str, Path]:
    # matplotlib is slow to import, and most commands do without.
    from ..plots import draw

    return draw(run)


def compare(runs: Sequence[Run], path: Path) -> Path:
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidConfig(f"--out {path}: a figure is a .png, .svg or .pdf file.")
    _check_folder("--out", path)
    named = {run.path.name: run for run in runs}
    if len(named) < len(runs):
        raise InvalidRun("the runs to compare must have names of their own; one folder name came twice.")
    from ..plots import compare

    return compare(named, path)
