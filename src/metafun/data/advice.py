"""Advice on training: the preset for a table, and tasks small enough for it."""

from .catalog import BUILT_IN
from .table import Table, counted


def preset_for(table: Table) -> str:
    """The preset that trains on tables like this one."""
    return "images" if table.image is not None and table.name != BUILT_IN else "features"


def content_warnings(table: Table) -> list[str]:
    """Warnings about rows that cannot be used in training."""
    count = 0 if table.image is not None else table.zero_rows()
    zeros = f"{table.name} has {counted(count, 'rows')} of zeros only, which cannot be scaled to length one."
    return [zeros] if count else []


def advise(table: Table, *, ways: int, shots: int, queries: int) -> tuple[dict[str, int] | None, list[str]]:
    """Settings that must be smaller than by default to train on `table`, or None if it is too small; and warnings.

    Args:
        table: the table to train on.
        ways: classes per task by default.
        shots: context rows per class by default.
        queries: target rows per class by default.
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
    if min(classes["train"], classes["val"]) > 1 and fitting["queries"] > 0:
        return changes, warnings
    return None, [*warnings, f"training needs 2 classes in train, 2 in val, and {shots + 1} rows of each; add more."]
