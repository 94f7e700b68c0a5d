"""The command line: metafun demo | train | evaluate | plot | info."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from typer.core import TyperGroup

from . import __version__
from .config import Config, load_config, presets
from .devices import use_all_cores
from .errors import InvalidConfig, MetaFunError
from .evaluation import evaluate
from .nn import count_parameters
from .runs import Run

# Table 1 of the paper, to print beside our own numbers.
PAPER = {"mse_5shot": 0.040, "mse_10shot": 0.017}

out, err = Console(soft_wrap=True), Console(stderr=True, soft_wrap=True)


class Commands(TyperGroup):
    """A mistake of the user's ends in one line and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (MetaFunError, OSError) as error:
            err.print(f"[bold red]error:[/] {_escape(str(error))}", highlight=False)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            err.print("interrupted; what was learned so far is saved. Add --resume to go on.", highlight=False)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Meta-learning with functional representations. Start with: [bold]metafun demo[/]",
)

Out = Annotated[Path | None, typer.Option("--out", help="Run folder.", show_default=False)]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="KEY=VALUE", help="Change a setting: --set training.steps=1000.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the run in the folder stopped.")]
RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `metafun train`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command()
def demo(
    out_dir: Annotated[Path, typer.Option("--out", help="Run folder.")] = Path("demo"),
    settings: Settings = [],  # noqa: B006
    overwrite: Overwrite = False,
    resume: Resume = False,
) -> None:
    """Train on sinusoids for about a minute, evaluate, draw the functional updates.

    Example: metafun demo --out demo
    """
    run = _open_run(out_dir, load_config("demo", settings), overwrite=overwrite, resume=resume)
    _train(run)
    results = _evaluate(run, "best")
    _print_results(results)
    figure = _plot(run)["updates"]
    metrics = {name: value["mean"] for name, value in results["metrics"].items()}
    keys = ("parameters", "train_seconds", "steps", "test_tasks", "device", "version")
    summary = metrics | {key: results[key] for key in keys} | {"paper": PAPER, "figure": str(figure)}
    (run.path / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    out.print(f"figure:  {figure}\nsummary: {run.path / 'summary.json'}", highlight=False)


@app.command()
def train(
    preset: Annotated[
        str, typer.Argument(metavar="PRESET_OR_TOML", help=f"One of {', '.join(presets())}; or a TOML file.")
    ],
    settings: Settings = [],  # noqa: B006
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, help="Train this many seeds at once: 0, 1, …", show_default=False),
    ] = None,
    out_dir: Out = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
) -> None:
    """Train a model. Ctrl-C at any time; --resume goes on.

    Examples:

      metafun train sinusoid --seeds 5

      metafun train sinusoid --set model.pooling.kind=deep-kernel --out runs/deep

      metafun train sinusoid --resume
    """
    if seeds is not None:
        settings = [*settings, f"training.seeds={list(range(seeds))}"]
    run = _open_run(
        out_dir or Path("runs") / Path(preset).stem,
        load_config(preset, settings),
        overwrite=overwrite,
        resume=resume,
    )
    _train(run)
    best = run.record.best_loss
    err.print(
        f"{run.path}: best validation loss {np.mean(best):.5f}, mean of {len(best)} seed(s). "
        f"Next: metafun evaluate {run.path}",
        highlight=False,
    )


@app.command("evaluate")
def evaluate_command(
    path: RunPath,
    as_json: AsJson = False,
    tasks: Annotated[
        int | None,
        typer.Option("--tasks", min=1, help="Test tasks for each number of shots.", show_default=False),
    ] = None,
    shots: Annotated[
        list[int],
        typer.Option("--shots", min=0, help="Context points; may be given several times.", show_default=False),
    ] = [],  # noqa: B006
    last: Annotated[bool, typer.Option("--last", help="The last parameters, not the best on validation.")] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Append the result to this .jsonl file.", show_default=False),
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
    checkpoint_text = json.dumps(results)
    (path / "evaluation.json").write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    if record is not None:
        with open(record, "a", encoding="utf-8") as file:
            file.write(checkpoint_text + "\n")
    if as_json:
        print(checkpoint_text)
    else:
        _print_results(results)


@app.command()
def plot(path: RunPath) -> None:
    """Draw a run: the functional updates on test tasks and the losses over training.

    Example: metafun plot runs/sinusoid
    """
    for figure in _plot(Run(path)).values():
        out.print(str(figure), highlight=False)


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
        out.print(f"{name:10} {', '.join(value) if isinstance(value, list) else value}", highlight=False)


def main() -> None:
    """The entry point of the `metafun` command."""
    use_all_cores()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "metafun" / "compiled"
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(cache)))
    app()


def _open_run(path: Path, config: Config, *, overwrite: bool, resume: bool) -> Run:
    if not resume or not path.exists():
        return Run.create(path, config, overwrite=overwrite)
    run = Run(path)
    if run.config != config:
        raise InvalidConfig(f"{path} was started with other settings; see its config.toml, or choose another --out.")
    return run


def _train(run: Run) -> None:
    """Trains with a progress bar on a terminal, in silence elsewhere."""
    columns = (
        TextColumn("training"), BarColumn(), MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[rate]} tasks/s"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        task = bar.add_task("", total=run.config.training.steps, loss="…", rate="compiling, …")
        for report in run.train():
            bar.update(
                task,
                completed=report.record.step,
                loss=f"{report.loss:.4f}",
                rate=f"{report.tasks_per_second:,.0f}",
            )


def _evaluate(run: Run, which: str, settings: list[str] = []) -> dict[str, Any]:  # noqa: B006
    """Means and deviations over the seeds, and all one needs to know where the numbers come from."""
    config = load_config(str(run.path / "config.toml"), settings)
    models, record = run.models(which), run.record
    metrics = evaluate(models, config)
    return {
        "run": run.path.name,
        "which": which,
        "metrics": {name: _over_seeds(values) for name, values in metrics.items() if not name.startswith("loss")},
        "test_tasks": config.evaluation.tasks,
        "parameters": count_parameters(models) // len(config.training.seeds),
        "steps": record.step,
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
    table = Table(title=f"{results['run']}: {results['test_tasks']:,} test tasks, {results['parameters']:,} parameters")
    for column in ("metric", "here", "the paper"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    for name, value in results["metrics"].items():
        spread = "" if value["std"] is None else f" ± {value['std']:.5f}"
        table.add_row(name, f"{value['mean']:.5f}{spread}", f"{PAPER[name]:.3f}" if name in PAPER else "–")
    out.print(table)


def _plot(run: Run) -> dict[str, Path]:
    from .plots import (
        plot_training,
        plot_updates,
    )  # matplotlib is slow to import, and most commands do without

    model = run.model()
    return {
        "updates": plot_updates(model, run.config.tasks.build(), run.config.evaluation.seed, run.path / "updates.png"),
        "training": plot_training(run.metrics(), run.path / "training.png"),
    }


def _escape(text: str) -> str:
    return text.replace("[", r"\[")


if __name__ == "__main__":
    main()
