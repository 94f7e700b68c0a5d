"""The command line: metafun demo | train | evaluate | plot | info."""

import contextlib
import json
import os
import platform
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from typer.core import TyperGroup

from . import __version__
from .config import Config, load_config, presets
from .devices import use_all_cores
from .errors import InvalidConfig, MetaFunError
from .evaluation import evaluate
from .files import write_atomically
from .nn import count_parameters
from .report import PAPER, number
from .runs import Run

out = Console(soft_wrap=True, markup=False, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


class Commands(TyperGroup):
    """A mistake of the user's ends in one line and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (MetaFunError, OSError) as error:
            self._fail(str(error), 2)
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            self._fail("not enough memory; make the model, training.batch or training.seeds smaller.", 2)
        except KeyboardInterrupt as interrupt:
            self._fail(str(interrupt) or "interrupted.", 130)

    def _fail(self, message: str, code: int) -> None:
        err.print(f"[bold red]error:[/] {escape(message)}")
        raise typer.Exit(code) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Meta-learning with functional representations. Start with: [bold]metafun demo[/]",
)

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set training.steps=1000.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the run in the folder stopped.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `metafun train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command()
def demo(
    out_dir: Annotated[Path, typer.Option("--out", help="Run folder.")] = Path("demo"),
    settings: Settings = None,
    overwrite: Overwrite = False,
    resume: Resume = False,
) -> None:
    """Train on sinusoids for about a minute, evaluate, draw the functional updates.

    Example: metafun demo --out demo
    """
    run = _open_run(out_dir, load_config("demo", settings or ()), overwrite=overwrite, resume=resume)
    _train(run)
    results = _evaluate(run, "best")
    _print_results(results)
    figure = _plot(run)["updates"]
    metrics = {name: value["mean"] for name, value in results["metrics"].items()}
    facts = {key: results[key] for key in ("parameters", "train_seconds", "steps", "test_tasks", "device", "version")}
    paper = {name: mean for name, (mean, _) in PAPER.items()}
    summary = run.path / "summary.json"
    _write_json(summary, metrics | facts | {"paper": paper, "figure": str(figure)})
    out.print(f"figure:  {figure}\nsummary: {summary}")


@app.command()
def train(
    preset: Annotated[
        str, typer.Argument(metavar="PRESET_OR_TOML", help=f"One of {', '.join(presets())}; or a TOML file.")
    ],
    settings: Settings = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Train this many seeds at once: 0, 1, …", show_default=False)
    ] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Run folder; runs/PRESET if not given.", show_default=False)
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a model. Ctrl-C at any time; --resume goes on.

    Examples:

      metafun train sinusoid --seeds 5

      metafun train sinusoid --set model.pooling.kind=deep-kernel --out runs/deep

      metafun train sinusoid --resume
    """
    settings = list(settings or ())
    if seeds is not None:
        if any(setting.startswith("training.seeds=") for setting in settings):
            raise InvalidConfig("--seeds and --set training.seeds=… say the same thing; give one of them.")
        settings.append(f"training.seeds={list(range(seeds))}")
    path = out_dir or Path("runs") / Path(preset).stem
    run = _open_run(path, load_config(preset, settings), overwrite=overwrite, resume=resume)
    _train(run)
    best = run.record.best_loss
    message = f"{path}: best validation loss {np.mean(best):.5f}, mean of {len(best)} seed(s)."
    err.print(escape(f"{message} Next: metafun evaluate {path}"))


@app.command("evaluate")
def evaluate_run(
    path: RunPath,
    as_json: AsJson = False,
    tasks: Annotated[
        int | None, typer.Option("--tasks", min=1, help="Test tasks for each number of shots.", show_default=False)
    ] = None,
    shots: Annotated[
        list[int] | None,
        typer.Option("--shots", min=0, help="Context points; may be given several times.", show_default=False),
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The last parameters, not the best on validation.")] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Append the result to this .jsonl file.", show_default=False)
    ] = None,
) -> None:
    """Measure a trained run on fixed, seeded test tasks.

    Examples:

      metafun evaluate runs/sinusoid

      metafun evaluate runs/sinusoid --shots 1 --shots 5 --json
    """
    settings = [] if tasks is None else [f"evaluation.tasks={tasks}"]
    settings += [f"evaluation.shots={list(shots)}"] if shots else []
    results = _evaluate(Run(path), "last" if last else "best", settings)
    if as_json:
        print(json.dumps(results))
    else:
        _print_results(results)
    _write_json(path / "evaluation.json", results)
    if record is not None:
        with open(record, "a", encoding="utf-8") as file:
            file.write(json.dumps(results) + "\n")


@app.command()
def plot(path: RunPath) -> None:
    """Draw a run: the functional updates on test tasks and the losses over training.

    Example: metafun plot runs/sinusoid
    """
    for figure in _plot(Run(path)).values():
        out.print(str(figure))


@app.command()
def info(as_json: AsJson = False) -> None:
    """Versions, devices and presets: what to paste into a bug report."""
    facts = {
        "metafun": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "equinox", "optax", "numpy")},
        "platform": platform.platform(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "presets": presets(),
    }
    if as_json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        out.print(f"{name:10} {', '.join(value) if isinstance(value, list) else value}")


def main() -> None:
    """The entry point of the `metafun` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character still gets the table
    use_all_cores()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metafun" / "compiled"
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(cache)))
    app()


def _open_run(path: Path, config: Config, *, overwrite: bool, resume: bool) -> Run:
    if overwrite and resume:
        raise InvalidConfig("--resume and --overwrite contradict each other; give one of them.")
    if not resume or Run.is_free(path):
        return Run.create(path, config, overwrite=overwrite)
    run = Run(path)
    if run.config != config:
        raise InvalidConfig(f"{path} was started with other settings; see its config.toml, or choose another --out.")
    return run


def _train(run: Run) -> None:
    """Trains with a progress bar on a terminal, in silence elsewhere."""
    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[rate]} tasks/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar, _stop_signal() as stopped:
        task = bar.add_task("", total=run.config.training.steps, loss="…", rate="compiling, …")
        for report in run.train():
            loss, rate = f"{np.mean(report.loss):.4f}", f"{report.tasks_per_second:,.0f}"
            bar.update(task, completed=report.record.step, loss=loss, rate=rate)
            if stopped.is_set() and report.record.step < run.config.training.steps:
                raise KeyboardInterrupt(f"stopped at step {report.record.step}; --resume goes on from there.")


@contextlib.contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """Ctrl-C asks for a stop after this chunk: raised inside JAX's callbacks it would be lost. A second one insists."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(signum: int, frame: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _evaluate(run: Run, which: str, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Means and deviations over the seeds, and all one needs to know where the numbers come from."""
    config = load_config(str(run.path / "config.toml"), settings)
    record, models = run.record, run.models(which)
    metrics = evaluate(models, config)
    return {
        "run": run.path.name,
        "which": which,
        "metrics": {name: _over_seeds(values) for name, values in metrics.items()},
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


def _over_seeds(values: np.ndarray) -> dict[str, Any]:
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return {"mean": float(values.mean()), "std": std, "seeds": values.tolist()}


def _print_results(results: dict[str, Any]) -> None:
    title = f"{results['run']}: {results['test_tasks']:,} test tasks, {results['parameters']:,} parameters"
    table = Table(title=escape(title))
    for column in ("metric", "here", "the paper"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, value in results["metrics"].items():
        paper = f"{PAPER[name][0]:.3f} ± {PAPER[name][1]:.3f}" if name in PAPER else "–"
        table.add_row(name, number(value), paper)
    out.print(table)


def _plot(run: Run) -> dict[str, Path]:
    # matplotlib is slow to import, and most commands do without.
    from .plots import plot_training, plot_updates

    tasks, seed = run.config.tasks.build(), run.config.evaluation.seed
    return {
        "updates": plot_updates(run.model(), tasks, seed, run.path / "updates.png"),
        "training": plot_training(run.metrics(), run.path / "training.png"),
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
