"""The benchmark on small tables: scores over the number of training rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, save, style_axis

# Each kind of model has a colour, a marker and the words of its label.
KINDS = {
    "k-nearest neighbours": (PURPLE, "v", "nearest neighbours"),
    "random forest": (GREEN, "s", "random forest"),
    "Gaussian process": (ORANGE, "D", "Gaussian process"),
    "logistic regression": (SKY, "^", "logistic or ridge regression"),
    "gradient boosting": (INK, "P", "gradient boosting"),
    "SVM": (GREY, "X", "SVM"),
    "ridge": (SKY, "^", "logistic or ridge regression"),
}


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
    """Scores over the number of training rows: a line for each kind of model, tuned or not, whichever is better.

    Args:
        panels: one for each data set.
        highlighted: the model drawn as a thick line.
        path: the figure's file.
    """
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(3.3 * columns, 2.7 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for axis, panel in zip(axes, panels, strict=False):
        _draw_panel(axis, panel, highlighted)
    for axis in list(axes)[len(panels) :]:
        axis.set_visible(False)
    lines = {str(line.get_label()): line for axis in figure.axes for line in axis.get_lines()}
    lines = {highlighted: lines.pop(highlighted), **lines} if highlighted in lines else lines
    style = {"fontsize": 10, "frameon": False, "labelcolor": INK}
    if empty := list(figure.axes)[len(panels) :]:
        empty[0].set_visible(True)
        empty[0].set_axis_off()
        empty[0].legend(lines.values(), lines.keys(), loc="center", **style)
    else:
        figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=3, **style)
    return save(figure, path)


def best_of_kind(scores: Mapping[str, Mapping[int, float]]) -> dict[str, dict[int, float]]:
    """The better of the default and the tuned model of each kind, at each number of rows.

    Args:
        scores: for each model its score by number of rows, as in `Panel`.
    """
    found: dict[str, dict[int, float]] = {}
    for model, values in scores.items():
        best = found.setdefault(model.removesuffix(", tuned"), {})
        for size, value in values.items():
            best[size] = max(value, best.get(size, value))
    return found


def _draw_panel(axis: Axes, panel: Panel, highlighted: str) -> None:
    for kind, scores in best_of_kind(panel.scores).items():
        is_ours = kind == highlighted
        colour, marker, label = (BLUE, "o", highlighted) if is_ours else KINDS[kind]
        lw, ms, zorder = (2.8, 6, 3) if is_ours else (1.4, 4.5, 2)
        style = {"marker": marker, "color": colour, "label": label}
        axis.plot(list(scores), list(scores.values()), lw=lw, ms=ms, zorder=zorder, **style)  # type: ignore[arg-type]
    axis.set_xscale("log")
    axis.set_xticks(panel.sizes, [str(size) for size in panel.sizes])
    axis.minorticks_off()
    axis.set_title(panel.title, fontsize=11)
    axis.set_xlabel("rows per class" if panel.classifies else "rows", fontsize=10)
    axis.set_ylabel("accuracy" if panel.classifies else "R²", fontsize=10)
    if not panel.classifies:
        axis.set_ylim(bottom=-0.2)
    axis.grid(color=GREY, alpha=0.2)
    style_axis(axis)
