"""metafun train | protocol | evaluate | compare | plot | info."""

import json
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from rich.markup import escape

from .. import __version__
from ..config import describe_preset, presets
from ..errors import InvalidConfig, InvalidRun
from ..estimators.trained import open_trained, start_from
from ..files import append_json
from ..training import protocol as paper_protocol
from ..training.compare import compare_runs
from ..training.devices import join_processes
from ..training.measure import measure
from ..training.progress import train as train_run
from ..training.run import Run
from .console import AsJson, app, err, out, write_json
from .options import Data, RecordTo, TrainingOptions, check_folder, check_resumable, with_options, with_plugins
from .show import show, show_comparison

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `metafun train`.")]
Compared = Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders made by `metafun train`.")]
Drawn = Annotated[
    list[Path],
    typer.Argument(
        metavar="RUN…",
        help="Run folders made by `metafun train`; with --step-by-step also a checkpoint or the name of a shipped one.",
    ),
]
Coordinator = Annotated[
    str | None,
    typer.Option("--coordinator", metavar="HOST:PORT", help="Address of the first process.", show_default=False),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="CHECKPOINT",
        help="Start from this model: a shipped one, a run folder or a file.",
        show_default=False,
    ),
]
Processes = Annotated[int, typer.Option("--processes", min=1, help="Number of processes that train together.")]
Process = Annotated[int, typer.Option("--process", min=0, help="Index of this process, from 0.")]
Tasks = Annotated[int | None, typer.Option("--tasks", min=1, help="Test tasks of each kind.", show_default=False)]
Shots = Annotated[
    list[int] | None,
    typer.Option("--shots", min=0, help="Context points (of each class). May be repeated.", show_default=False),
]
Ways = Annotated[
    list[int] | None, typer.Option("--ways", min=2, help="Classes of a task. May be repeated.", show_default=False)
]
Last = Annotated[bool, typer.Option("--last", help="Evaluate the last parameters instead of the best on validation.")]
FigureFile = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="File of the figure. Of one run, it shows the predictions only.",
        show_default="in the run folder, comparison.png or step-by-step.png",
    ),
]
StepByStep = Annotated[bool, typer.Option("--step-by-step", help="Draw a model iteration by iteration (Figure 1).")]


@app.command()
@with_plugins
@with_options(TrainingOptions)
def train(
    options: TrainingOptions,
    start: From = None,
    coordinator: Coordinator = None,
    processes: Processes = 1,
    process: Process = 0,
) -> None:
    """Train a model. Stop with Ctrl-C, continue with --resume.

    --resume keeps the settings of the run except its length: --resume --set training.steps=… extends it, also if it is
    finished. The cosine schedule is then that of the new length, so the learning rate rises again to where the longer
    schedule is at this step.

    --from starts all seeds from a trained model of the same sizes; it is noted in the header of the checkpoint.

    Tasks are divided among all devices of this machine. Several machines train together if each is given the same
    --coordinator; all but the first keep their copy in RUN.process-N.

    Examples:

      metafun train sinusoid --seeds 5

      metafun train features --data mine

      metafun train sinusoid --set model.pooling.kind=deep-kernel --out runs/deep

      metafun train features --vary training.learning_rate=1e-4,3e-4,1e-3

      metafun train sinusoid --resume

      metafun train sinusoid --resume --set training.steps=160000

      metafun train gp-rbf --from gp-rbf --set tasks.noise=0.1 --out runs/noisy

      metafun train gp-bnp --coordinator first:4567 --processes 2 --process 0
    """
    path = _joined(options.folder(), coordinator, processes, process)
    check_resumable(options.resume, path)
    run = options.open_run(path, None if start is None else start_from(start))
    if options.resume and run.is_complete:
        err.print(escape(f"note: {path} is complete; extend it with --resume --set training.steps=…"))
    train_run(run, err)
    err.print(escape(f"{_validated(run)}Next: metafun evaluate {path}"))


def _joined(path: Path, coordinator: str | None, processes: int, process: int) -> Path:
    """The folder of this process, after it has joined the others."""
    if coordinator is None:
        if (processes, process) != (1, 0):
            raise InvalidConfig("--processes and --process need a --coordinator; give its address.")
        return path
    join_processes(coordinator, processes, process)
    return path.with_name(f"{path.name}.process-{process}") if process else path


def _validated(run: Run) -> str:
    """The validation error of a finished run; empty where there was no validation."""
    if not (errors := run.record.best_error):
        return ""
    error = np.reshape(errors, (-1, len(run.config.training.seeds))).mean(1).min()
    which, variant = run.config.training.keep, f" with {run.describe_variant()}" if run.config.vary else ""
    return f"{which} validation error {error:.5f}{variant}. "


@app.command()
@with_plugins
@with_options(TrainingOptions)
def protocol(options: TrainingOptions, as_json: AsJson = False, record: RecordTo = None) -> None:
    """The paper's protocol: choose the number of steps on val, train on train+val, test once.

    It makes two run folders, `tune` and `final`, and tests only the second.

    Examples:

      metafun protocol mini-dfp-1shot --seeds 5

      metafun protocol mini-kfp-5shot --data mine --record results/mine.jsonl
    """
    check_folder("--record", record)
    folder = options.folder("-protocol")
    check_resumable(options.resume, folder)
    final, chosen = paper_protocol.run_protocol(folder, options.config(), err, **options.for_protocol())
    results = measure(final, err) | {"run": folder.name, "preset": options.preset, "validation": chosen}
    if as_json:
        print(json.dumps(results))
    else:
        show(results)
    err.print(escape(f"the model is in {final.path}. Next: metafun plot {final.path}"))
    write_json(folder / "evaluation.json", results)
    if record is not None:
        append_json(record, results)


@app.command()
@with_plugins
def evaluate(
    path: RunPath,
    as_json: AsJson = False,
    tasks: Tasks = None,
    shots: Shots = None,
    ways: Ways = None,
    data: Data = None,
    last: Last = False,
    record: RecordTo = None,
) -> None:
    """Measure a trained run on fixed, seeded test tasks. RUN/evaluation.json keeps the latest result.

    Examples:

      metafun evaluate runs/sinusoid

      metafun evaluate runs/sinusoid --shots 1 --shots 5 --json

      metafun evaluate runs/features --ways 5 --ways 20
    """
    check_folder("--record", record)
    changes = _evaluation_changes(tasks, shots, ways)
    results = measure(Run(path), err, which="last" if last else "best", changes=changes, data=data)
    if as_json:
        print(json.dumps(results))
    else:
        show(results)
    write_json(path / "evaluation.json", results)
    if record is not None:
        append_json(record, results)


@app.command()
@with_plugins
def compare(
    paths: Compared, as_json: AsJson = False, tasks: Tasks = None, shots: Shots = None, ways: Ways = None
) -> None:
    """Measure several runs on the same test tasks, beside the settings in which they differ.

    All are evaluated with the settings of the first; runs whose test tasks would differ are refused.

    Examples:

      metafun compare runs/sinusoid runs/maml

      metafun compare runs/a runs/b runs/c --tasks 1000 --json
    """
    results = compare_runs([Run(path) for path in paths], err, _evaluation_changes(tasks, shots, ways))
    if as_json:
        print(json.dumps(results))
    else:
        show_comparison(results)


def _evaluation_changes(
    tasks: int | None, shots: Sequence[int] | None, ways: Sequence[int] | None
) -> dict[str, int | Sequence[int]]:
    values = {"evaluation.tasks": tasks, "evaluation.shots": shots or None, "evaluation.ways": ways or None}
    return {key: value for key, value in values.items() if value is not None}


@app.command()
@with_plugins
def plot(paths: Drawn, figure: FigureFile = None, step_by_step: StepByStep = False) -> None:
    """Draw a run: its predictions on test tasks, its calibration, its losses over training.

    Several runs on sinusoids are drawn side by side, update by update; several runs on curves, with the exact GP.

    With --step-by-step, a model for regression is drawn iteration by iteration: local updates, functional pooling, and
    the step of the representation.

    Examples:

      metafun plot runs/sinusoid

      metafun plot runs/sinusoid --out predictions.svg

      metafun plot runs/sinusoid runs/maml runs/maml-large --out figure3.png

      metafun plot runs/gp-paper-kfp runs/gp-paper-dfp runs/gp --out figure4.png

      metafun plot sinusoid --step-by-step --out steps.png
    """
    from ..plots import compare, draw, draw_predictions  # matplotlib is slow to import

    if step_by_step:
        out.print(str(_plot_step_by_step(paths, figure or Path("step-by-step.png"))))
        return
    runs = {path.name: Run(path) for path in paths}
    if len(runs) < len(paths):
        raise InvalidRun("the runs to compare must have different folder names; one came twice.")
    check_folder("--out", figure)
    if len(paths) > 1:
        drawn = [compare(runs, figure or Path("comparison.png"))]
    else:
        run = runs[paths[0].name]
        drawn = list(draw(run).values()) if figure is None else [draw_predictions(run, figure)]
    for path in drawn:
        out.print(str(path))


def _plot_step_by_step(paths: Sequence[Path], figure: Path) -> Path:
    from ..plots import check_suffix
    from ..plots.step_by_step import plot_step_by_step

    if len(paths) != 1:
        raise InvalidConfig(f"--step-by-step draws one model, but {len(paths)} were given; name one of them.")
    check_suffix(figure)
    check_folder("--out", figure)
    trained = open_trained(paths[0])
    return plot_step_by_step(trained.model, trained.experiment, figure)


@app.command()
def info(as_json: AsJson = False) -> None:
    """Versions, devices and presets: what a bug report needs."""
    facts = {
        "metafun": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in ("jax", "equinox", "optax", "numpy")},
        "platform": platform.platform(),
        "devices": [device.device_kind for device in jax.local_devices()],
        "presets": {name: describe_preset(name) for name in presets()},
    }
    if as_json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            out.print(f"{name}:", *(f"  {key:26} {text}" for key, text in value.items()), sep="\n")
        else:
            out.print(f"{name:10} {', '.join(value) if isinstance(value, list) else value}")
