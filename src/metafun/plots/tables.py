"""The benchmark on small tables: scores over the number of training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .style import GREY, INK, RED, save, style_axis

COLOURS = {"k-nearest neighbours": "#8c6bb1", "random forest": "#41ab5d", "Gaussian process": "#fe9929"}
LINEAR_MODEL = "#2171b5"


@dataclass(frozen=True)
class Panel:
    """The scores on one data set.

    Args:
        title: name of the data set.
        classifies: whether scores are accuracies over rows of each class, or R² over rows.
        sizes: numbers of training rows on the horizontal axis.
        scores: for each model its score by number of rows; the name of a tuned model ends in ", tuned".
    """

    title: str
    classifies: bool
    sizes: Sequence[int]
    scores: Mapping[str, Mapping[int, float]]


def plot_tables(panels: Sequence[Panel], highlighted: str, path: Path) -> Path:
    """Scores over the number of training rows; tuned models are dashed.

    Args:
        panels: one for each data set.
        highlighted: the model drawn in red.
        path: the figure's file.
    """
    figure = Figure(figsize=(3.1 * len(panels), 3.4), layout="constrained")
    lines: dict[str, Line2D] = {}
    for axis, panel in zip(np.ravel(figure.subplots(1, len(panels), squeeze=False)), panels, strict=True):
        for model, scores in panel.scores.items():
            lines[model] = _draw_model(axis, model, scores, model == highlighted)
        axis.set_xscale("log")
        axis.set_xticks(panel.sizes, [str(size) for size in panel.sizes])
        axis.minorticks_off()
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel("rows per class" if panel.classifies else "rows", fontsize=8)
        axis.set_ylabel("accuracy" if panel.classifies else "R²", fontsize=8)
        if not panel.classifies:
            axis.set_ylim(bottom=-0.3)
        axis.grid(color=GREY, alpha=0.2)
        style_axis(axis)
    style = {"fontsize": 8, "frameon": False, "labelcolor": INK}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=5, **style)
    return save(figure, path)


def _draw_model(axis: Axes, model: str, scores: Mapping[int, float], highlighted: bool) -> Line2D:
    name, _, tuned = model.partition(", ")
    (line,) = axis.plot(
        list(scores),
        list(scores.values()),
        "--" if tuned else "-",
        color=RED if highlighted else COLOURS.get(name, LINEAR_MODEL),
        lw=2.2 if highlighted else 1.1,
        marker="o",
        ms=3,
        zorder=3 if highlighted else 2,
    )
    return line
