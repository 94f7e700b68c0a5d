"""metafun reproduce: the paper's tables and figures, measured cell by cell."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import typer
from rich.markup import escape

from .. import __version__
from ..config import Config, load_space, with_changes
from ..data import Table
from ..data.table_folder import save_table
from ..errors import Busy, Diverged, InvalidConfig, InvalidData, InvalidSearch
from ..files import locked
from ..paper import ITEMS, Address, Job, Measured, Results, load_item, plan
from ..schema import flatten, to_table
from ..training.devices import forget_programs
from ..training.run_folder import Run
from . import protocol, running
from .console import app, err

# What makes every training a matter of seconds, where a configuration has such a setting.
SMOKE: dict[str, Any] = {
    "model.width": 16,
    "model.iterations": 2,
    "model.update.layers": 1,
    "model.pooling.layers": 1,
    "model.steps": 1,
    "model.test_steps": 2,
    "model.latent_steps": 1,
    "model.weight_steps": 1,
    "tasks.queries": 3,
    "training.steps": 20,
    "training.batch": 4,
    "training.chunk": 10,
    "training.validate_every": 10,
    "training.validation_tasks": 10,
    "evaluation.tasks": 20,
    "evaluation.targets": 5,
}
SMOKE_SPLITS = {"train": 8, "val": 6, "test": 6}


@app.command()
def reproduce(
    what: Annotated[list[str], typer.Argument(metavar="ITEM…", help=f"{', '.join(ITEMS)}, or all.")],
    only: Annotated[
        str | None, typer.Option("--only", metavar="ROW", help="Rows with this in their name.", show_default=False)
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Seeds trained at once: 0, 1, …")] = 5,
    trials: Annotated[int, typer.Option("--trials", min=1, help="Trials of each search.")] = 64,
    data: Annotated[
        list[str] | None, typer.Option("--data", metavar="NAME=OTHER", help="Take OTHER for the data set NAME.")
    ] = None,
    results: Annotated[Path, typer.Option("--results", help="Folder of results, for paper.jsonl.")] = Path("results"),
    out_dir: Annotated[Path, typer.Option("--out", help="Folder of the runs.")] = Path("runs/paper"),
    smoke: Annotated[bool, typer.Option("--smoke", help="Tiny sizes and data, to see that all of it works.")] = False,
    dry: Annotated[bool, typer.Option("--dry-run", help="Say what is missing, and stop.")] = False,
) -> None:
    """Measure the paper's tables and figures, beside the published values.

    What results/paper.jsonl holds already is not measured again, and a run that was interrupted goes on. Start the
    same command several times, and the processes share the work.

    Examples:

      metafun reproduce table1

      metafun reproduce table2 --only LEO --seeds 2

      metafun reproduce all --smoke --results /tmp/smoke --out /tmp/smoke/runs
    """
    names = _names(what)
    if smoke and results.resolve() == Path("results").resolve():
        raise InvalidConfig("--smoke measures nothing worth keeping; give it a folder of its own with --results.")
    results.mkdir(parents=True, exist_ok=True)
    instead = _pairs(data or ())
    if smoke:
        seeds, trials, instead = 1, 1, _smoke_data(out_dir)
        jax.config.update("jax_disable_most_optimizations", True)  # what counts is how soon it is compiled
    jobs = plan(names, only=only, seeds=seeds, trials=trials, data=instead, changes=SMOKE if smoke else None)
    if smoke:
        jobs = _one_of_each(jobs)
    found = Results(results)
    if found.broken:
        err.print(escape(f"{found.path}: its last line is broken and does not count"))
    missing = [job for job in jobs if _is_missing(found, job, seeds)]
    err.print(f"{len(jobs) - len(missing)} of {len(jobs)} trainings are there, {len(missing)} are to be done")
    left_out = 0
    for i, job in enumerate(missing, 1):
        err.print(escape(f"[{i}/{len(missing)}] {'; '.join(map(str, job.addresses))}"))
        if dry:
            continue
        try:
            _measure_once(job, out_dir / job.key, results, seeds, data or ())
        except Busy:
            err.print("another process is at it")
        except (InvalidData, Diverged, InvalidSearch) as error:
            left_out += 1
            err.print(escape(f"left out: {error}"))
        forget_programs()
    if not dry and only is None:
        _draw(names, jobs, out_dir, results)
    if left_out:
        err.print(f"{left_out} trainings were left out; why is said above")


def _one_of_each(jobs: Sequence[Job]) -> list[Job]:
    """One job for each kind of model, with a search and without; those that fill the most cells."""
    kinds: dict[Any, Job] = {}
    for job in sorted(jobs, key=lambda job: -len({address.item for address in job.addresses})):
        model = flatten(to_table(job.config.model))
        kind = tuple(model.get(part) for part in ("kind", "loss.kind", "update.kind", "decoder.kind"))
        kinds.setdefault((kind, job.search), job)
    searches = [job for job in kinds.values() if job.search is not None]
    # One search is like another.
    return [replace(job, search=None) if job in searches[1:] else job for job in kinds.values()]


def _names(what: Sequence[str]) -> list[str]:
    names = list(ITEMS) if "all" in what else list(dict.fromkeys(what))
    for name in names:
        load_item(name)
    return names


def _pairs(settings: Sequence[str]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, other in pairs:
        if not (name and equals and other):
            raise InvalidConfig(f"--data {name}{equals}{other} must have the form NAME=OTHER.")
    return {name: other for name, _, other in pairs}


def _is_missing(found: Results, job: Job, seeds: int) -> bool:
    try:
        data = _fingerprint(job.config.resolved())
    except InvalidData:
        return True  # it will say so when its turn comes
    return any(not set(range(seeds)) <= found.seeds(address, job.key, data) for address in job.addresses)


def _fingerprint(config: Config) -> str:
    return getattr(config.tasks, "fingerprint", None) or ""


def _measure_once(job: Job, folder: Path, results: Path, seeds: int, data: Sequence[str]) -> None:
    """Unless another process is measuring it, or has done so meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "measuring"):
        found = Results(results)
        if _is_missing(found, job, seeds):
            found.append(_measure(job, folder, data))


def _measure(job: Job, folder: Path, data: Sequence[str]) -> list[Measured]:
    """Trains what a job says, from where it was stopped, and measures all its cells."""
    config, chosen = job.config.resolved(), ""
    if job.search is not None:
        config, chosen = _searched(job, config, folder / "search")
    # Other seeds are another run.
    folder = folder / f"{len(config.training.seeds)}-seeds"
    if job.protocol:
        run, _ = protocol.follow(folder, config, overwrite=False, resume=True)
    else:
        run = running.open_run(folder, config, overwrite=False, resume=True)
        running.train(run)
    measured = running.measure(run)

    def finite(value: float | None) -> float | None:
        return value if value is not None and np.isfinite(value) else None

    return [
        Measured(
            **{name: getattr(address, name) for name in ("item", "row", "column", "metric")},
            seed=seed,
            value=finite(value),
            interval=finite(measured["metrics"][address.metric]["interval"]),
            tasks=measured["test_tasks"],
            job=job.key,
            data=_fingerprint(run.config),
            version=__version__,
            device=jax.local_devices()[0].device_kind,
            seconds=measured["train_seconds"],
            date=measured["date"],
            command=_command(job, address, data),
            found=chosen,
        )
        for address in job.addresses
        for seed, value in zip(config.training.seeds, measured["metrics"][address.metric]["seeds"], strict=True)
    ]


def _command(job: Job, address: Address, data: Sequence[str]) -> str:
    """What measures this cell again."""
    words = ["metafun", "reproduce", address.item, "--only", address.row, "--seeds", len(job.config.training.seeds)]
    if job.search is not None:
        words += ["--trials", job.trials]
    if job.protocol:
        used = [pair for pair in data if pair.partition("=")[2] == getattr(job.config.tasks, "data", None)]
        words += [word for pair in used for word in ("--data", pair)]
    return shlex.join(map(str, words))


def _searched(job: Job, config: Config, folder: Path) -> tuple[Config, str]:
    """The configuration that did best on val, and what the search chose of it."""
    from ..training import search as searching
    from .search import follow

    assert job.search is not None
    trial = with_changes(config, {"training.seeds": [0], "training.steps": min(2000, config.training.steps)})
    space = load_space(job.search, trial, job.fixed)
    folder.mkdir(parents=True, exist_ok=True)
    study = searching.open_study(job.key, str(folder / "study.journal"), space, pruner="none")
    # Named by its cell: what is drawn must not depend on where the data lie, as the key does.
    worker = str(job.addresses[0])
    moments = searching.work(study, space, folder / "worker-0", worker=worker, trials=job.trials, batch=8)
    follow(study, moments, job.trials)
    values = searching.best(study).params
    chosen = {key: value for key, value in values.items() if key not in job.fixed}
    said = (f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in chosen.items())
    return load_space(job.search, config, job.fixed).configure(values), ", ".join(said)


def _draw(names: Sequence[str], jobs: Sequence[Job], out_dir: Path, results: Path) -> None:
    """The figures that need trained models, if all of theirs are there."""
    folders = {a: out_dir / job.key / f"{len(job.config.training.seeds)}-seeds" for job in jobs for a in job.addresses}
    for name in names:
        paths = {address.row: path for address, path in folders.items() if address.item == name}
        draw = load_item(name).draw
        if draw not in ("comparison", "curves") or not all((p / "config.toml").exists() for p in paths.values()):
            continue
        from ..plots import compare, curves

        runs = {row: Run(path) for row, path in paths.items()}
        for suffix in (".png", ".svg"):
            path = results / f"{name}{suffix}"
            err.print(str(compare(runs, path) if draw == "comparison" else curves(next(iter(runs.values())), path)))


def _smoke_data(folder: Path) -> dict[str, str]:
    """A few random classes that stand in for all data."""
    rng, dx, rows = np.random.default_rng(0), 8, 8
    count = sum(SMOKE_SPLITS.values())
    centres = np.repeat(rng.normal(size=(count, dx)), rows, axis=0)
    features = (np.abs(centres) + 0.3 * rng.normal(size=centres.shape)).astype(np.float32)
    labels = np.repeat([f"class {i}" for i in range(count)], rows).tolist()
    splits = np.repeat(np.repeat(list(SMOKE_SPLITS), list(SMOKE_SPLITS.values())), rows).tolist()
    path = folder.resolve() / "data"
    if not (path / "smoke").exists():
        save_table(Table.of("smoke", features, labels, splits), path, "random numbers")
    named = ("miniimagenet-center", "miniimagenet-multiview", "tieredimagenet-center", "tieredimagenet-multiview")
    return dict.fromkeys(named, str(path / "smoke"))
