"""Accuracy over the number of iterations (the paper's Figure 5)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from .style import RED, SHADES, save, style_axis


def plot_iterations(curves: Mapping[str, Sequence[Sequence[float]]], path: Path) -> Path:
    """Draws a panel for each curve: means over the seeds at T = 1, 2, …, every seed as a point, the best T in red.

    Args:
        curves: for each model the accuracies of its seeds, between 0 and 1, at each T.
        path: the figure's file.
    """
    figure = Figure(figsize=(3 * len(curves), 3), layout="constrained")
    for axis, (name, values) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        means = [100 * np.mean(seeds) for seeds in values]
        steps = range(1, len(means) + 1)
        for t, seeds in zip(steps, values, strict=True):
            axis.plot([t] * len(seeds), 100 * np.asarray(seeds), ".", color=SHADES(0.4), ms=4)
        axis.plot(steps, means, "o-", color=SHADES(0.8), ms=4, lw=1.4)
        axis.plot(1 + int(np.argmax(means)), max(means), "o", color=RED, ms=6, zorder=3)
        axis.set_title(name, fontsize=9)
        axis.set(xlabel="iterations T", xticks=list(steps))
        style_axis(axis)
    figure.axes[0].set_ylabel("accuracy, %")
    return save(figure, path)
