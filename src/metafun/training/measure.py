"""The evaluation of a run, with all facts needed to repeat it."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np
from rich.console import Console

from .. import __version__
from ..config import Experiment, with_changes
from ..model.nn import count_parameters
from .evaluation import evaluate
from .run import Run
from .session import SessionRecord, best_variant, read_record
from .stability import describe_break_aways


def measure(
    run: Run,
    console: Console,
    *,
    which: str = "best",
    changes: Mapping[str, Any] | None = None,
    data: str | None = None,
) -> dict[str, Any]:
    """The metrics of all seeds (see `evaluate`), and where they come from.

    Args:
        run: a trained run.
        console: gets a note if training was stopped before its end.
        which: the `best` parameters on validation, or the `last`.
        changes: settings of the evaluation to change, by dotted key.
        data: name or path of another table to test on.
    """
    opened = run.checkpoint()
    record, variant = read_record(run.folder, opened), best_variant(opened)
    config = with_changes(run.experiment.variants[variant].config, changes or {})
    if data is not None:
        config = dataclasses.replace(config, tasks=config.tasks.with_data(data))
    experiment = Experiment(config)
    models, broken = opened.models(variant, which), _break_aways(run, variant)
    _warn(run, record, broken, console)
    return {
        "run": run.path.name,
        "which": which,
        "trained_on": run.experiment.tasks.trained_on,
        "tested_on": experiment.tasks.tested_on,
        "metrics": evaluate(models, experiment),
        "test_tasks": experiment.evaluation.tasks,
        "parameters": count_parameters(models) // len(experiment.training.seeds),
        "steps": record.step,
        "best_step": record.best_step,
        **({"extended": record.extended} if record.extended else {}),
        "train_seconds": round(record.seconds, 2),
        "steps_per_second": run.folder.steps_per_second(),
        "broke_away": broken,
        "seeds": list(experiment.training.seeds),
        "data": experiment.tasks.fingerprint or "",
        **origin(),
        "config": experiment.config.to_toml(),
    }


def _warn(run: Run, record: SessionRecord, broken: list[int | None], console: Console) -> None:
    """Notes on a training that did not end, or not well."""
    end = run.config.training.end
    if record.step < end and not record.stopped_early:
        console.print(f"note: training was stopped after {record.step} of {end} steps")
    if record.extended:
        steps = ", ".join(map(str, record.extended))
        console.print(f"note: training was extended at step {steps}; it is not one run of {end} steps")
    if note := describe_break_aways(run.config.training.seeds, broken):
        console.print(f"note: {note}")


def _break_aways(run: Run, variant: int) -> list[int | None]:
    """The step at which each seed of a variant broke away, or None."""
    seeds = len(run.config.training.seeds)
    return run.folder.stability().steps[variant * seeds : (variant + 1) * seeds] or [None] * seeds


def finite(value: float | None) -> float | None:
    """The value, or None if it is not finite: JSON has no other word for that."""
    return value if value is not None and np.isfinite(value) else None


def origin() -> dict[str, str]:
    """Device, version and date of a measurement."""
    return {
        "device": jax.local_devices()[0].device_kind,
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat(),
    }
