"""The paper's protocol: choose the number of steps on val, train on train+val, test once."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from ..config import Config, EpisodesConfig
from ..errors import InvalidConfig, InvalidRun
from .run_folder import Run


def paths(folder: Path) -> tuple[Path, Path]:
    """The run folders of the two trainings."""
    return folder / "tune", folder / "final"


def check(config: Config) -> EpisodesConfig:
    """The tasks, if they have a validation split that is not trained on."""
    if not isinstance(config.tasks, EpisodesConfig):
        raise InvalidConfig(f"the protocol is for tasks from a table of features; tasks.kind = '{config.tasks.kind}'.")
    if config.tasks.train_on != ("train",) or not config.training.validate_every:
        raise InvalidConfig("the protocol validates on val: leave tasks.train_on at ['train'] and validation on.")
    return config.tasks


def choose(tuned: Run) -> dict[str, Any]:
    """The step, and the variant, whose error on val, the mean over the seeds, is least, and that error."""
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


def final_config(tuned: Run) -> Config:
    """Train+val for as many steps as did best on val; nothing is left to choose."""
    chosen = choose(tuned)
    config = tuned.config.variants()[chosen["variant"]]
    return dataclasses.replace(
        config,
        tasks=dataclasses.replace(check(config), train_on=("train", "val")),
        training=dataclasses.replace(config.training, stop=chosen["step"], validate_every=0, patience=None),
    )
