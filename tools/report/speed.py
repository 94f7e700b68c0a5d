"""The benchmark of speed: each method relative to MetaFun, times of a GPU that did nothing else, and costs by size."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from metafun.bench.speed import METAFUN
from metafun.bench.speed_results import PREDICTION, TRAINING, SpeedCell, costs, read_speed_cells, slope

from .cells import MISSING, shared
from .markdown import table

UNITS = {TRAINING: "training steps", PREDICTION: "targets"}


def render_speed_benchmark(results: Path) -> str:
    """The methods beside each other, then the growth of the time with each size."""
    cells = read_speed_cells(results / "speed.jsonl")
    if not cells:
        return f"The benchmark is {MISSING}.\n"
    parts = []
    for device in dict.fromkeys(cell.device for cell in cells):
        there = [cell for cell in cells if cell.device == device]
        for what in UNITS:
            parts.append(_beside(what, [cell for cell in there if cell.what == what]))
        parts.append(_growth(there))
    return "\n".join(parts)


def _beside(what: str, cells: Sequence[SpeedCell]) -> str:
    ours = next(cell.per_second for cell in cells if cell.method == METAFUN)
    rows = []
    for cell in cells:
        rate = f"{cell.per_second:,.0f}" if cell.beside == 0 and cell.device != "cpu" else ""
        rows.append((cell.method, f"{cell.per_second / ours:.2f}", rate, f"{cell.first_seconds:.1f}"))
    columns = ("", f"{UNITS[what]} per second, relative to {METAFUN}", "per second", "first call, s")
    return f"**{what.capitalize()}**, {_about(cells)}:\n\n{table(columns, rows)}"


def _growth(cells: Sequence[SpeedCell]) -> str:
    """The time of each size, relative to the first, and the exponent at the end."""
    rows = [
        (axis, f"{values[0][0]:,}", *_relative(values), f"{slope(values):.1f}") for axis, values in costs(cells).items()
    ]
    width = max(len(row) for row in rows)
    rows = [(*row[:-1], *[""] * (width - len(row)), row[-1]) for row in rows]
    columns = ("size", "smallest", *["larger: time"] * (width - 3), "exponent")
    return f"**Encoding and prediction by size**; times relative to the smallest size:\n\n{table(columns, rows)}"


def _relative(values: Sequence[tuple[int, float]]) -> Iterator[str]:
    first = values[0][1]
    return (f"{size:,}: {seconds / first:.3g}" for size, seconds in values[1:])


def _about(cells: Sequence[SpeedCell]) -> str:
    sizes = ", ".join(f"{value:,} {name}" for name, value in cells[0].sizes.items())
    return f"{sizes}, on {cells[0].device} shared with {shared(cells[0].beside)} (`{cells[0].command}`)"
