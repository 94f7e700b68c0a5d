"""The paper's protocol: choose the number of steps on val, train on train+val, test once."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from ..config import Config, Experiment, resolve
from ..errors import InvalidConfig, InvalidRun
from .progress import train
from .run import Run


def check_protocol(config: Config) -> None:
    """InvalidConfig unless the tasks have a validation split that is not trained on."""
    config.tasks.including_validation()
    if not config.training.validate_every:
        raise InvalidConfig("the protocol validates on val: training.validate_every must not be 0.")


def choose_step(tuned: Run) -> dict[str, Any]:
    """The step and variant with the least error on val, mean over the seeds; that error, and each seed's."""
    entries = [entry for entry in tuned.metrics() if "validation" in entry]
    if not entries:
        raise InvalidRun(f"{tuned.path}/metrics.jsonl has no validation to choose by; start again with --overwrite.")
    seeds = len(tuned.config.training.seeds)
    errors = np.array([entry["validation"] for entry in entries], float).reshape(len(entries), -1, seeds)
    means = np.nan_to_num(errors.mean(2), nan=np.inf)
    entry, variant = np.unravel_index(means.argmin(), means.shape)
    return {
        "step": entries[entry]["step"],
        "variant": int(variant),
        "error": float(means[entry, variant]),
        "seeds": errors[entry, variant].tolist(),
    }


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
        folder: gets two run folders, `tune` and `final`.
        config: what to train; its tasks come from a table with a val split.
        console: shows progress.
        overwrite, resume, keep_settings: as in `Run.open`.
    """
    experiment = resolve(config)
    check_protocol(experiment.config)
    if overwrite and (folder / "final" / "config.toml").exists():
        Run(folder / "final").folder.clear()  # it belongs to the tuning that is about to be replaced
    tuned = Run.open(folder / "tune", experiment, overwrite=overwrite, resume=resume, keep_settings=keep_settings)
    train(tuned, console, "tuning")
    chosen = choose_step(tuned)
    variant = f" with {tuned.describe_variant(chosen['variant'])}" if tuned.config.vary else ""
    best = f"best validation accuracy {1 - chosen['error']:.2%} after {chosen['step']} steps{variant}"
    console.print(escape(best))
    final = Run.open(folder / "final", final_config(tuned, chosen), overwrite=overwrite, resume=resume)
    train(final, console, "final training")
    return final, chosen
