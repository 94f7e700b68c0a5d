"""Training loss and validation error of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, INK, RED, save, style_axis


def plot_training(metrics: Sequence[dict[str, Any]], path: Path) -> Path:
    """Draws the training loss and the validation error of every seed over the steps.

    Args:
        metrics: the lines of a run's metrics.jsonl, with `step` and `loss` or `validation`, one value per seed.
        path: the figure's file.
    """
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    curves = {"training loss": ("loss", BLUE), "validation error": ("validation", RED)}
    for axis, (label, (name, color)) in zip(figure.subplots(1, 2), curves.items(), strict=True):
        entries = [entry for entry in metrics if name in entry]
        axis.set(xlabel="step", ylabel=label, xlim=(0, max((entry["step"] for entry in metrics), default=1)))
        style_axis(axis)
        if entries:
            _draw_seeds(axis, [entry["step"] for entry in entries], np.array([entry[name] for entry in entries], float))
            for line in axis.get_lines():
                line.set_color(color)
        else:
            axis.text(0.5, 0.5, "not measured in this run", ha="center", color=INK, transform=axis.transAxes)
    return save(figure, path)


def _draw_seeds(axis: Axes, steps: Sequence[int], values: Float[np.ndarray, "entries seeds"]) -> None:
    """A line for each seed; a level with its value where there is a single entry, which has no course."""
    if len(steps) == 1:
        for value in values[0]:
            axis.axhline(value, lw=1, ls="--")
        shown = ", ".join(f"{value:.4g}" for value in values[0])
        axis.set_title(f"measured once, at step {steps[0]:,}: {shown}", fontsize=9, color=INK)
        axis.margins(y=0.5)
        return
    axis.plot(steps, values, lw=1.4)
    # A negative log-likelihood may be below zero.
    axis.set_yscale("log" if not (values <= 0).any() else "linear")
