"""How models do over the number of rows they are given."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from ..bench.tables import OURS, SETS, Cell
from .style import GREY, INK, RED, plain, save

COLOURS = {"k-nearest neighbours": "#8c6bb1", "random forest": "#41ab5d", "Gaussian process": "#fe9929"}
LINEAR = "#2171b5"


def plot_tables(cells: Sequence[Cell], path: Path) -> Path:
    """A panel for each set: accuracy or R² over the number of rows; dashed where a grid was searched."""
    sets = [name for name in SETS if any(cell.data == name for cell in cells)]
    figure = Figure(figsize=(3.1 * len(sets), 3.4), layout="constrained")
    drawn = {}
    for axis, data in zip(np.ravel(figure.subplots(1, len(sets), squeeze=False)), sets, strict=True):
        classes = SETS[data].problem == "classification"
        metric = "accuracy" if classes else "r2"
        for model in dict.fromkeys(cell.model for cell in cells if cell.data == data):
            own = sorted((c for c in cells if (c.data, c.model) == (data, model)), key=lambda cell: cell.size)
            name, _, tuned = model.partition(", ")
            colour = RED if model == OURS else COLOURS.get(name, LINEAR)
            means = [np.mean(cell.metrics[metric]) for cell in own]
            (drawn[model],) = axis.plot(
                [cell.size for cell in own],
                means,
                "--" if tuned else "-",
                color=colour,
                lw=2.2 if model == OURS else 1.1,
                marker="o",
                ms=3,
                zorder=3 if model == OURS else 2,
            )
        axis.set_xscale("log")
        axis.set_xticks(SETS[data].sizes, [str(size) for size in SETS[data].sizes])
        axis.minorticks_off()
        axis.set_title(data.replace("_", " "), fontsize=10)
        axis.set_xlabel("rows of each class" if classes else "rows", fontsize=8)
        axis.set_ylabel("accuracy" if classes else "R²", fontsize=8)
        if not classes:
            axis.set_ylim(bottom=-0.3)
        axis.grid(color=GREY, alpha=0.2)
        plain(axis)
    figure.legend(
        drawn.values(), drawn.keys(), loc="outside lower center", ncols=5, fontsize=8, frameon=False, labelcolor=INK
    )
    return save(figure, path)
