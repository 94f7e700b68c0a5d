"""The benchmark on collections of tasks: the error of each method on each collection."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, SKY, save, style_axis

# Colour and marker of each method, in turn; the highlighted one is blue.
MARKS = ((GREY, "o"), (PURPLE, "s"), (ORANGE, "D"), (GREEN, "^"), (RED, "v"), (INK, "<"), (SKY, "P"))


@dataclass(frozen=True)
class Panel:
    """The errors with one number of context points.

    Args:
        title: what was measured.
        errors: RMSE of each method on each collection, from top to bottom.
    """

    title: str
    errors: Mapping[str, Mapping[str, float]]


def plot_collections(panels: Sequence[Panel], highlighted: str, path: Path) -> Path:
    """A row of marks for each collection, one mark for each method.

    Args:
        panels: from left to right.
        highlighted: the method drawn larger, in blue.
        path: the figure's file.
    """
    methods = list(dict.fromkeys(name for panel in panels for each in panel.errors.values() for name in each))
    rows = max(len(panel.errors) for panel in panels)
    figure = Figure(figsize=(1.6 + 4.2 * len(panels), 1.3 + 0.36 * rows), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, panel in zip(axes, panels, strict=True):
        _draw_panel(axis, panel, methods, highlighted)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return save(figure, path)


def _draw_panel(axis: Axes, panel: Panel, methods: Sequence[str], highlighted: str) -> None:
    marks = dict(zip([name for name in methods if name != highlighted], cycle(MARKS), strict=False))
    for method in methods:
        there = [(each[method], row) for row, each in enumerate(panel.errors.values()) if method in each]
        colour, marker = marks.get(method, (BLUE, ">"))
        x, y = zip(*there, strict=True) if there else ((), ())
        size, order = (26, 2) if method in marks else (70, 3)
        axis.scatter(x, y, s=size, marker=marker, color=colour, label=method, zorder=order)
    axis.set_yticks(range(len(panel.errors)), [name.replace("_", " ") for name in panel.errors], fontsize=8)
    axis.set_ylim(len(panel.errors) - 0.5, -0.5)  # the first collection is at the top
    axis.set_xscale("log")
    axis.set_title(panel.title, fontsize=9)
    axis.set_xlabel("RMSE / standard deviation of y", fontsize=8)
    axis.grid(color=GREY, alpha=0.2)
    style_axis(axis)
