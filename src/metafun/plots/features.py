"""The benchmark on features: the accuracy of each method on each table."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, GREY, RED, save, style_axis


@dataclass(frozen=True)
class Panel:
    """The accuracies on one table, with one number of classes and shots.

    Args:
        title: what was measured.
        scores: mean and standard deviation over the seeds for each method, from top to bottom; they may be empty.
    """

    title: str
    scores: Mapping[str, tuple[float, float]]


def plot_features(panels: Sequence[Panel], rows: int, highlighted: Collection[str], path: Path) -> Path:
    """A dot for each method, its standard deviation over the seeds, and its accuracy in per cent.

    Args:
        panels: row by row; those without scores stay empty.
        rows: number of rows of panels.
        highlighted: the methods drawn in red.
        path: the figure's file.
    """
    columns, methods = len(panels) // rows, max(len(panel.scores) for panel in panels)
    size = (1.2 + 3.1 * columns, rows * (0.9 + 0.3 * methods))
    figure = Figure(figsize=size, layout="constrained")
    for axis, panel in zip(np.ravel(figure.subplots(rows, columns, squeeze=False)), panels, strict=True):
        if panel.scores:
            _draw_panel(axis, panel, highlighted)
        else:
            axis.set_axis_off()
    return save(figure, path)


def _draw_panel(axis: Axes, panel: Panel, highlighted: Collection[str]) -> None:
    for place, (method, (mean, std)) in enumerate(panel.scores.items()):
        colour = RED if method in highlighted else BLUE
        axis.errorbar(100 * mean, place, xerr=100 * std, fmt="o", ms=4, capsize=2, color=colour)
        at, style = (100 * mean, place), {"ha": "center", "fontsize": 7, "color": colour}
        axis.annotate(f"{100 * mean:.1f}", at, (0, 5), textcoords="offset points", **style)  # type: ignore[arg-type]
    axis.set_yticks(range(len(panel.scores)), list(panel.scores), fontsize=8)
    axis.set_ylim(len(panel.scores) - 0.5, -0.7)  # the first method is at the top
    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel("accuracy, %", fontsize=8)
    axis.tick_params(axis="x", labelsize=8)
    axis.margins(x=0.12)
    axis.grid(color=GREY, alpha=0.2)
    style_axis(axis)
