"""Several runs side by side: the settings in which they differ, and their metrics on the same test tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from ..errors import InvalidRun
from ..schema import UNSET, flatten, to_table
from .measure import measure
from .run import Run

# Facts of an evaluation that a comparison shows.
FACTS = ("parameters", "steps", "train_seconds", "metrics")


def compare_runs(runs: Sequence[Run], console: Console, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Measures all runs on the test tasks of the first; InvalidRun if those of another differ.

    Args:
        runs: trained runs on tasks of one kind.
        console: gets notes on the trainings.
        changes: settings of the evaluation to change, by dotted key.
    """
    first = runs[0].experiment
    for run in runs[1:]:
        if type(run.experiment.tasks) is not type(first.tasks):
            raise InvalidRun(
                f"{run.path} was trained on {run.experiment.tasks.trained_on}, {runs[0].path} on "
                f"{first.tasks.trained_on}; compare runs on tasks of one kind."
            )
    sizes = runs[0].variant.tasks.test_sizes
    shared = {
        f"evaluation.{key}": _or_unset(sizes.get(key) if value is None else value)
        for key, value in vars(first.evaluation).items()
    } | dict(changes or {})
    for run in runs[1:]:
        _check_same_tasks(runs[0], run, has_shots=shared["evaluation.shots"] is not UNSET)
    measured = [measure(run, console, changes=shared) for run in runs]
    settings = [
        {key: value for key, value in flatten(to_table(run.variant.config)).items() if not key.startswith("evaluation")}
        for run in runs
    ]
    keys = [key for key in dict.fromkeys(key for table in settings for key in table) if _differs(key, settings)]
    columns = [
        {
            "run": str(run.path),
            "settings": {key: table.get(key) for key in keys},
            **{fact: found[fact] for fact in FACTS},
        }
        for run, table, found in zip(runs, settings, measured, strict=True)
    ]
    return {"test_tasks": measured[0]["test_tasks"], "runs": columns}


def _check_same_tasks(first: Run, other: Run, *, has_shots: bool) -> None:
    """InvalidRun if the test tasks of two runs differ."""
    ours, theirs = first.variant.tasks, other.variant.tasks
    for name in (*ours.test_settings, *(() if has_shots else ours.anyshot_settings)):
        here, there = getattr(ours, name), getattr(theirs, name)
        if here != there:
            remedy = "give the sizes of the context with --shots" if name in ours.anyshot_settings else ""
            if name == "fingerprint":
                name = "data"
                here, there = (f"{tasks.data}, SHA-256 {str(tasks.fingerprint)[:12]}…" for tasks in (ours, theirs))
            raise InvalidRun(
                f"{first.path} and {other.path} have different test tasks: tasks.{name} is {here!r} and {there!r}; "
                f"{remedy or 'compare runs with the same'}."
            )


def _differs(key: str, tables: Sequence[Mapping[str, Any]]) -> bool:
    return any(table.get(key) != tables[0].get(key) for table in tables)


def _or_unset(value: Any) -> Any:
    return UNSET if value is None else value
