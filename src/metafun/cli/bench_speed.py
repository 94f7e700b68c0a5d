"""metafun bench speed: training and prediction beside PyTorch, and cost by size."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from .console import AsJson, err, out
from .options import Figure, Methods, check_files, with_options

if TYPE_CHECKING:
    from ..bench.speed_results import SpeedCell


@dataclass(frozen=True)
class SpeedOptions:
    """The options of the benchmark of speed."""

    only: Methods = None
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="Turns of each method; medians count.")] = 5
    steps: Annotated[int, typer.Option("--steps", min=1, help="Training steps in a turn.")] = 500
    targets: Annotated[int, typer.Option("--targets", min=1, help="Targets of a prediction.")] = 100_000
    largest: Annotated[int, typer.Option("--largest", min=10, help="Largest size for the costs.")] = 100_000
    beside: Annotated[
        int | None,
        typer.Option("--beside", min=0, help="Other processes that share the machine, for the record."),
    ] = None
    results: Annotated[Path, typer.Option("--results", help="File of results.")] = Path("results/speed.jsonl")
    figure: Figure = None


@with_options(SpeedOptions)
def speed(options: SpeedOptions, as_json: AsJson = False) -> None:
    """Measure training steps and predictions per second, beside PyTorch, and the cost by size.

    The model is that of the paper's Table 1. If torch is installed, the same model in PyTorch is measured, as it is
    and compiled; if neuralprocesses is, also its attentive conditional neural process. The methods take turns, so that
    all of them see the same machine; quote their ratios, or times of a machine that does nothing else.

    Cells of the same kind and device in the results are replaced.

    Examples:

      metafun bench speed --beside 0

      metafun bench speed --only MetaFun --rounds 2 --steps 100 --largest 1000 --results /tmp/speed.jsonl
    """
    from ..bench.speed import Effort, check_methods, measure
    from ..bench.speed_results import add_speed_cell

    figure = options.figure or options.results.with_suffix(".png")
    check_files(options.results, figure)
    methods = check_methods(options.only or ())
    effort = Effort(options.rounds, options.steps, options.targets, options.largest)
    found = []
    for cell in measure(methods, effort, options.beside):
        err.print(escape(f"{cell.what}, {cell.method}, {_sizes(cell)}: {_seconds(cell.seconds)}"))
        add_speed_cell(options.results, cell)
        found.append(cell)
    if as_json:
        print(json.dumps([asdict(cell) for cell in found]))
    else:
        _show(found)
    _draw(found, figure)


def _show(cells: "Sequence[SpeedCell]") -> None:
    """A table of the methods for training and for prediction, and one of the costs."""
    from ..bench.speed import METAFUN
    from ..bench.speed_results import PREDICTION, TRAINING, costs, slope

    for what, unit in ((TRAINING, "steps/s"), (PREDICTION, "targets/s")):
        there = [cell for cell in cells if cell.what == what]
        if not there:
            continue
        shown = Table(title=escape(f"{what}, {_sizes(there[0])}, {there[0].device}"))
        for name in ("method", unit, f"over {METAFUN}", "first call, s"):
            shown.add_column(name, justify="left" if name == "method" else "right")
        ours = next((cell.per_second for cell in there if cell.method == METAFUN), None)
        for cell in there:
            ratio = "–" if ours is None else f"{cell.per_second / ours:.2f}"
            shown.add_row(escape(cell.method), f"{cell.per_second:,.0f}", ratio, f"{cell.first_seconds:.1f}")
        out.print(shown)
    for axis, values in costs(cells).items():
        sizes = ", ".join(f"{size:,}: {_seconds(seconds)}" for size, seconds in values)
        out.print(escape(f"{axis}  {sizes}; the time grows with size^{slope(values):.1f} at the end"))


def _draw(cells: "Sequence[SpeedCell]", figure: Path) -> None:
    from ..bench.speed_results import costs, slope
    from ..plots.speed import plot_costs

    found = costs(cells)
    if found:
        err.print(str(plot_costs(found, {axis: slope(values) for axis, values in found.items()}, figure)), markup=False)


def _sizes(cell: "SpeedCell") -> str:
    return ", ".join(f"{value:,} {name}" for name, value in cell.sizes.items())


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.2g} ms"
