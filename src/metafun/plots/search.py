"""The trials of a search: each as a line through its settings, and errors over each setting.

optuna.visualization.matplotlib is no substitute: it leaves pruned trials out, shows the ranges seen instead of those
searched, sets pyplot's global style and keeps its figures open.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..config.space import Range
from .style import BLUE, GREY, INK, RED, SHADES, save, style_axis

PARALLEL_FILE, SLICES_FILE = "parallel.png", "slices.png"
# Settings, validation error, and whether the trial was trained to the end; the best trial first.
Trials = Sequence[tuple[Mapping[str, Any], float, bool]]


def draw_study(ranges: Mapping[str, Range], trials: Sequence[Mapping[str, Any]], folder: Path) -> list[str]:
    """Both figures of a search in `folder`; `trials` as `training.search.summary` returns them."""
    shown = [(t["settings"], t["error"], t["finished"]) for t in trials if t["error"] is not None]
    figures = ((plot_parallel, PARALLEL_FILE), (plot_slices, SLICES_FILE))
    return [str(plot(ranges, shown, folder / name)) for plot, name in figures]


def plot_parallel(ranges: Mapping[str, Range], trials: Trials, path: Path) -> Path:
    """Draws parallel coordinates, one for each setting and one for the error: darker is better, the best is red.

    Args:
        ranges: the range of each setting.
        trials: settings, error and completion of each trial, the best first.
        path: the figure's file.
    """
    figure = Figure(figsize=(1.5 * (len(ranges) + 1) + 1, 4.2), layout="constrained")
    axis, errors = figure.subplots(), np.array([error for _, error, _ in trials])
    heights = [_positions(values, [settings[key] for settings, *_ in trials]) for key, values in ranges.items()]
    low, high = errors.min(), max(errors.max(), errors.min() + 1e-12)
    lines = np.stack([*heights, (errors - low) / (high - low)])
    rank = errors.argsort().argsort() / max(len(errors) - 1, 1)
    for i in errors.argsort()[::-1]:
        best = i == 0
        color = RED if best else SHADES(0.95 - 0.75 * rank[i])
        axis.plot(lines[:, i], color=color, lw=2 if best else 1, zorder=2 + best)
    ticks = [*map(_ticks, ranges.values()), [(0.0, f"{low:.3f}"), (1.0, f"{high:.3f}")]]
    for x, labels in enumerate(ticks):
        axis.axvline(x, color=GREY, lw=0.8, zorder=1)
        for height, label in labels:
            axis.annotate(label, (x, height), (4, 0), textcoords="offset points", fontsize=7, color=INK, va="center")
    axis.set_xticks(range(len(ranges) + 1), [*map(_name, ranges), "validation\nerror"], fontsize=8)
    axis.set(yticks=[], xlim=(-0.2, len(ranges) + 0.6), ylim=(-0.05, 1.05))
    axis.spines[:].set_visible(False)
    return save(figure, path)


def plot_slices(ranges: Mapping[str, Range], trials: Trials, path: Path) -> Path:
    """Draws the error of every trial over each setting: pruned trials are hollow, the best is red.

    Args:
        ranges: the range of each setting.
        trials: settings, error and completion of each trial, the best first.
        path: the figure's file.
    """
    columns = min(4, len(ranges))
    rows = -(-len(ranges) // columns)
    figure = Figure(figsize=(3 * columns, 2.5 * rows), layout="constrained")
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False)
    errors = np.array([error for _, error, _ in trials])
    completed = np.array([finished for *_, finished in trials])
    for axis, (key, values) in zip(axes.flat, ranges.items(), strict=False):
        x = _positions(values, [settings[key] for settings, *_ in trials])
        axis.scatter(x[completed], errors[completed], s=18, color=BLUE, alpha=0.8, lw=0)
        axis.scatter(x[~completed], errors[~completed], s=18, facecolors="none", edgecolors=GREY)
        axis.scatter(x[0], errors[0], s=40, color=RED, zorder=3)
        _label(axis, key, values)
    for axis in axes.flat[len(ranges) :]:
        axis.set_visible(False)
    for row in axes:
        row[0].set_ylabel("validation error", fontsize=8)
    return save(figure, path)


def _label(axis: Axes, key: str, values: Range) -> None:
    heights, labels = zip(*_ticks(values), strict=True)
    axis.set_xticks(heights, labels, fontsize=8)
    axis.set_xlabel(_name(key).replace("\n", " "), fontsize=8)
    axis.set_xlim(-0.1, 1.1)
    style_axis(axis)


def _name(key: str) -> str:
    """`model.decoder.dropout` as "decoder dropout", in two lines."""
    return "\n".join(key.split(".")[-2:]).removeprefix("model\n").removeprefix("training\n").replace("_", " ")


def _positions(values: Range, found: Sequence[Any]) -> Float[np.ndarray, " trials"]:
    """Positions between 0 and 1, the ends of the range; choices are evenly spaced in their order."""
    if values.choices is not None:
        return np.array([values.choices.index(value) for value in found]) / max(len(values.choices) - 1, 1)
    low, high, numbers = *values.examples, np.asarray(found, float)
    if values.log_uniform is not None:
        low, high, numbers = np.log(low), np.log(high), np.log(numbers)
    return (numbers - low) / max(high - low, 1e-12)


def _ticks(values: Range) -> list[tuple[float, str]]:
    examples = values.examples if values.integers is None else range(values.integers[0], values.integers[1] + 1)
    labels = [f"{example:g}" if isinstance(example, (int, float)) else str(example) for example in examples]
    return list(zip(_positions(values, list(examples)).tolist(), labels, strict=True))
