"""The benchmark on features: a table for each table of features, and its figure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from metafun.bench.feature_cases import contenders
from metafun.bench.feature_results import FeatureCell, latest_cells, read_feature_cells
from metafun.data.table import counted

from .cells import MISSING, broken_note, mean_std, seconds_cell
from .markdown import table, without_empty_columns

COLUMNS = ("accuracy, %", "95 % interval", "log-likelihood", "ECE", "GPU seconds")


def render_feature_benchmark(results: Path) -> str:
    """Every method of the benchmark on every table that has been measured, and the figure if there is one."""
    cells = latest_cells(read_feature_cells(results / "features.jsonl"))
    kinds = dict.fromkeys((cell.data, cell.ways) for cell in cells)
    parts = [_by_method([c for c in cells if (c.data, c.ways) == kind]) for kind in kinds]
    if cells and (results / "features.png").exists():
        parts.append("![Accuracy of each method on each table](../results/features.png)\n")
    return "\n".join(parts or [f"The benchmark is {MISSING}.\n"])


def _by_method(cells: Sequence[FeatureCell]) -> str:
    """One table of features with one number of classes."""
    shots = sorted({cell.shots for cell in cells})
    found = {(cell.method, cell.shots): cell for cell in cells}
    columns = [f"{n}-shot {name}" if i == 0 else name for n in shots for i, name in enumerate(COLUMNS)]
    methods = dict.fromkeys([*contenders(), *(cell.method for cell in cells)])
    rows = [(method, *(value for n in shots for value in _values(found, method, n))) for method in methods]
    first = cells[0]
    return "\n".join(
        (
            f"**{first.data}**, {first.ways}-way; {_about(cells)}.\n",
            table(*without_empty_columns((" ", *columns), rows)),
        )
    )


def _values(found: Mapping[tuple[str, int], FeatureCell], method: str, shots: int) -> tuple[str, ...]:
    """The cells of `COLUMNS`."""
    cell = found.get((method, shots))
    if cell is None:
        return MISSING, "", "", "", ""
    note = broken_note(cell.broke_away) + ("" if cell.is_current else "; earlier settings")
    interval = cell.intervals["accuracy"]
    return (
        _value(cell, "accuracy", 100, 2) + note,
        "" if interval is None else f"{100 * interval:.2f}",
        _value(cell, "log_likelihood", 1, 3),
        _value(cell, "ece", 1, 3),
        seconds_cell(cell.seconds, cell.beside, cell.device),
    )


def _value(cell: FeatureCell, metric: str, scale: float, digits: int) -> str:
    values = [scale * value for value in cell.metrics[metric] if value is not None]
    return mean_std(values, digits) if len(values) == len(cell.seeds) else "not finite"


def _about(cells: Sequence[FeatureCell]) -> str:
    """Test tasks, seeds, device and data of the cells; several where they differ."""
    facts = (
        (f"{cell.tasks:,} test tasks", counted(len(cell.seeds), "seeds"), cell.device, f"SHA-256 `{cell.fingerprint}`")
        for cell in cells
    )
    return ", ".join(" or ".join(dict.fromkeys(each)) for each in zip(*facts, strict=True))
