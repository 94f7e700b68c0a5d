"""Training loss and validation error of a run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .style import RED, SHADES, save, style_axis


def plot_training(metrics: Sequence[dict[str, Any]], path: Path) -> Path:
    """Draws the training loss and the validation error of every seed over the steps.

    Args:
        metrics: the lines of a run's metrics.jsonl, with `step` and `loss` or `validation`, one value per seed.
        path: the figure's file.
    """
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    curves = {"training loss": ("loss", SHADES(0.6)), "validation error": ("validation", RED)}
    for axis, (label, (name, color)) in zip(figure.subplots(1, 2), curves.items(), strict=True):
        entries = [entry for entry in metrics if name in entry]
        values = np.array([entry[name] for entry in entries], float)
        axis.plot([entry["step"] for entry in entries], values, "." if len(entries) == 1 else "-", color=color, lw=1)
        # A negative log-likelihood may be below zero.
        axis.set(xlabel="step", ylabel=label, yscale="log" if values.size and not (values <= 0).any() else "linear")
        style_axis(axis)
    return save(figure, path)
