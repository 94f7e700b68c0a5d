"""Advice on training: the preset for a table, and tasks small enough for it."""

from dataclasses import dataclass, field

from .catalog import BUILT_IN
from .table import Table, counted


@dataclass(frozen=True)
class TrainingAdvice:
    """How to train on a table.

    Args:
        possible: whether the table has enough classes and rows for any tasks.
        changes: settings of the task that must be smaller than by default.
        warnings: what the table lacks.
    """

    possible: bool
    changes: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def preset_for(table: Table) -> str:
    """The preset that trains on tables like this one."""
    return "images" if table.image is not None and table.name != BUILT_IN else "features"


def content_warnings(table: Table) -> list[str]:
    """Rows that training can make no use of."""
    count = 0 if table.image is not None else table.zero_rows()
    zeros = f"{table.name} has {counted(count, 'rows')} of zeros only, which cannot be scaled to length one."
    return [zeros] if count else []


def advise(table: Table, *, ways: int, shots: int, queries: int) -> TrainingAdvice:
    """How to train on `table`, starting from the default size of a task.

    Args:
        table: the table to train on.
        ways: classes per task.
        shots: context rows per class.
        queries: target rows per class.
    """
    classes, rows = table.class_counts(), min(part.count for part in table.classes)
    default = {"ways": ways, "queries": queries}
    fitting = {"ways": min([ways, *(n for n in classes.values() if n > 1)]), "queries": min(queries, rows - shots)}
    changes = {key: value for key, value in fitting.items() if value != default[key]}
    warnings = []
    if changes or min(classes.values()) < 2:
        have = ", ".join(f"{n:,} in {split}" for split, n in classes.items())
        warnings.append(
            f"by default a task has {ways} classes of one split and {shots + queries} rows of each; {table.name} has "
            f"{have}, and its smallest class has {counted(rows, 'rows')}."
        )
    possible = min(classes["train"], classes["val"]) > 1 and fitting["queries"] > 0
    if not possible:
        warnings.append(f"training needs 2 classes in train, 2 in val, and {shots + 1} rows of each; add more.")
    return TrainingAdvice(possible, changes, tuple(warnings))
