"""The paper's protocol: choose the number of steps on val, train on train+val, test once."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from ..config import Config, Experiment, resolve
from ..errors import InvalidConfig, InvalidRun
from ..files import subfolder
from ..tasks.episode_tasks import FOLDS
from .progress import train
from .run import Run
from .run_folder import CONFIG, RunFolder


def check_protocol(config: Config) -> None:
    """InvalidConfig unless the tasks have a validation split that is not trained on."""
    config.tasks.including_validation()
    if not config.training.validate_every:
        raise InvalidConfig("the protocol validates on val: training.validate_every must not be 0.")


def choose_step(tuned: Sequence[Run]) -> dict[str, Any]:
    """The step and variant with the least mean error on val over folds and seeds; that error, each seed's, seconds.

    Where the untrained model was validated too, it is chosen unless a later step is as good in every fold.

    Args:
        tuned: a run for each fold of the validation classes; steps that not all have reached do not count.
    """
    found = [{e["step"]: e["validation"] for e in run.metrics() if "validation" in e} for run in tuned]
    steps = [step for step in found[0] if all(step in errors for errors in found)]
    if not steps:
        raise InvalidRun(f"{tuned[0].path}/metrics.jsonl has no validation to choose by; start again with --overwrite.")
    seeds = len(tuned[0].config.training.seeds)
    each = np.array([[fold[step] for fold in found] for step in steps], float)
    each = each.reshape(len(steps), len(tuned), -1, seeds)
    errors, means = each.mean(1), np.nan_to_num(each.mean((1, 3)), nan=np.inf)
    if steps[0] == 0:  # the untrained model: what was learned must be better in every fold
        means = np.where((each.mean(3) <= each[0].mean(-1)).all(1), means, np.inf)
    entry, variant = np.unravel_index(means.argmin(), means.shape)
    return {
        "step": steps[entry],
        "variant": int(variant),
        "error": float(means[entry, variant]),
        "seeds": errors[entry, variant].tolist(),
        "seconds": round(sum(run.record.seconds for run in tuned), 2),
    }


def _begun(folder: Path) -> Experiment | None:
    """The settings of the tuning in the folder, of its first fold if it has folds; None if there is no tuning."""
    tuning = (subfolder(folder, name) for name in ("tune", "tune-1"))
    return next((Run(path).experiment for path in tuning if not RunFolder.is_free(path)), None)


def _clear(folder: Path) -> None:
    """Removes the runs of a protocol: one with folds may replace one without, and `final` belongs to its tuning."""
    for name in ("final", "tune", *sorted(path.name for path in folder.glob("tune-[0-9]*"))):
        if (subfolder(folder, name) / CONFIG).exists():
            Run(folder / name).folder.clear()


def _tuned(
    folder: Path, experiment: Experiment, console: Console, overwrite: bool, resume: bool, keep_settings: bool
) -> list[Run]:
    """Runs that validate on val, one for each fold if the other classes of val are to be trained on."""
    options: dict[str, Any] = {"overwrite": overwrite, "resume": resume, "keep_settings": keep_settings}
    sources: list[Any] = experiment.tasks.tuning_sources(FOLDS)
    if len(sources) == 1:
        if sources[0] != experiment.tasks:
            console.print(f"note: val has too few classes for {FOLDS} folds, so tasks.val_share is not used.")
            experiment = resolve(dataclasses.replace(experiment.config, tasks=sources[0]))
        runs = {"tuning": Run.open(subfolder(folder, "tune"), experiment, **options)}
    else:
        folds = [resolve(dataclasses.replace(experiment.config, tasks=tasks)) for tasks in sources]
        runs = {
            f"tuning, fold {i} of {len(folds)}": Run.open(subfolder(folder, f"tune-{i}"), fold, **options)
            for i, fold in enumerate(folds, 1)
        }
    for title, run in runs.items():
        train(run, console, title)
    return list(runs.values())


def final_config(tuned: Run, chosen: dict[str, Any]) -> Config:
    """Training on train+val for the chosen number of steps, without validation."""
    config = tuned.experiment.variants[chosen["variant"]].config
    return dataclasses.replace(
        config,
        tasks=config.tasks.including_validation(),
        training=dataclasses.replace(config.training, stop=chosen["step"], validate_every=0, patience=None),
    )


def run_protocol(
    folder: Path,
    config: Config | Experiment,
    console: Console,
    *,
    overwrite: bool = False,
    resume: bool = False,
    keep_settings: bool = False,
) -> tuple[Run, dict[str, Any]]:
    """Both trainings: the run to be tested, and the choice made on val (see `choose_step`).

    Args:
        folder: gets the run folders `tune`, or `tune-1`, `tune-2`, … if there are folds, and `final`.
        config: what to train; its tasks come from a table with a val split.
        console: shows progress.
        overwrite, resume, keep_settings: as in `Run.open`.
    """
    begun = _begun(folder) if resume and keep_settings else None
    experiment = begun or resolve(config)
    if begun is None:
        check_protocol(experiment.config)
    if overwrite:
        _clear(folder)
    runs = _tuned(folder, experiment, console, overwrite, resume, keep_settings)
    chosen, tuned = choose_step(runs), runs[0]
    variant = f" with {tuned.describe_variant(chosen['variant'])}" if tuned.config.vary else ""
    best = f"best validation accuracy {1 - chosen['error']:.2%} after {chosen['step']} steps{variant}"
    console.print(escape(best))
    final = Run.open(subfolder(folder, "final"), final_config(tuned, chosen), overwrite=overwrite, resume=resume)
    train(final, console, "final training")
    return final, chosen
