"""metafun train | evaluate | plot | info."""

import json
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import typer
from rich.markup import escape

from .. import __version__
from ..config import describe_preset, presets
from ..errors import InvalidConfig
from ..training.devices import join_processes
from ..training.run_folder import Run
from . import running
from .console import AsJson, app, append_json, err, out, write_json
from .running import Coordinator, Data, Overwrite, Process, Processes, Record, Resume, Seeds, Settings, Vary

RunPath = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder made by `metafun train`.")]
Preset = Annotated[str, typer.Argument(metavar="PRESET_OR_TOML", help="A preset (see `metafun info`) or a TOML file.")]


@app.command()
def train(
    preset: Preset,
    settings: Settings = None,
    data: Data = None,
    seeds: Seeds = None,
    vary: Vary = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Run folder; runs/PRESET if not given.", show_default=False)
    ] = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    coordinator: Coordinator = None,
    processes: Processes = 1,
    process: Process = 0,
) -> None:
    """Train a model. Ctrl-C at any time; --resume goes on.

    Tasks are spread over all devices of this machine. Several machines train together if each is given the same
    --coordinator, on the first of them; all but the first keep their copy in RUN.process-N.

    Examples:

      metafun train sinusoid --seeds 5

      metafun train features --data mine

      metafun train sinusoid --set model.pooling.kind=deep-kernel --out runs/deep

      metafun train features --vary training.learning_rate=[1e-4,3e-4,1e-3]

      metafun train sinusoid --resume

      metafun train gp-bnp --coordinator first:4567 --processes 2 --process 0
    """
    path = out_dir or Path("runs") / Path(preset).stem
    if coordinator is None and (processes, process) != (1, 0):
        raise InvalidConfig("--processes and --process are for those that meet at a --coordinator; give one.")
    if coordinator is not None:
        join_processes(coordinator, processes, process)
        path = path.with_name(f"{path.name}.process-{process}") if process else path
    config = running.configure(preset, settings, seeds, data, vary)
    as_it_is = not settings and not vary and seeds is None and data is None
    run = running.open_run(path, config, overwrite=overwrite, resume=resume, as_it_is=as_it_is)
    running.train(run)
    best = ""
    if errors := run.record.best_error:
        error = np.reshape(errors, (-1, len(run.config.training.seeds))).mean(1).min()
        best = f"best validation error {error:.5f}{f' with {running.varied(run)}' if run.config.vary else ''}. "
    err.print(escape(f"{best}Next: metafun evaluate {path}"))


@app.command()
def evaluate(
    path: RunPath,
    as_json: AsJson = False,
    tasks: Annotated[
        int | None, typer.Option("--tasks", min=1, help="Test tasks of each kind.", show_default=False)
    ] = None,
    shots: Annotated[
        list[int] | None,
        typer.Option("--shots", min=0, help="Context points (of a class); may be given again.", show_default=False),
    ] = None,
    ways: Annotated[
        list[int] | None,
        typer.Option("--ways", min=2, help="Classes in a task; may be given again.", show_default=False),
    ] = None,
    data: Data = None,
    last: Annotated[
        bool, typer.Option("--last", help="The last parameters, without averaging, not the best on validation.")
    ] = False,
    record: Record = None,
) -> None:
    """Measure a trained run on fixed, seeded test tasks; RUN/evaluation.json keeps the latest result.

    Examples:

      metafun evaluate runs/sinusoid

      metafun evaluate runs/sinusoid --shots 1 --shots 5 --json

      metafun evaluate runs/features --ways 5 --ways 20
    """
    running.check_record(record)
    values = {"evaluation.tasks": tasks, "evaluation.shots": shots or None, "evaluation.ways": ways or None}
    changes = {key: value for key, value in values.items() if value is not None}
    results = running.measure(Run(path), "last" if last else "best", changes, data)
    if as_json:
        print(json.dumps(results))
    else:
        running.show(results)
    write_json(path / "evaluation.json", results)
    append_json(record, results)


@app.command()
def plot(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Run folders made by `metafun train`.")],
    figure: Annotated[Path, typer.Option("--out", help="Where the comparison of several runs goes.")] = Path(
        "comparison.png"
    ),
) -> None:
    """Draw a run: what it predicts on test tasks, how far to trust it, the losses over training.

    Several runs on sinusoids are drawn side by side, update by update.

    Examples:

      metafun plot runs/sinusoid

      metafun plot runs/sinusoid runs/maml runs/maml-large --out figure3.png
    """
    runs = [Run(path) for path in paths]
    for drawn in [running.compare(runs, figure)] if len(runs) > 1 else running.plot(runs[0]).values():
        out.print(str(drawn))


@app.command()
def info(as_json: AsJson = False) -> None:
    """Versions, devices and presets: what to paste into a bug report."""
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
