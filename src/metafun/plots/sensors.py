"""Readings of new sensors, what a few of them tell, and the error of each method."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from .style import BLUE, GREY, INK, ORANGE, RED, save, style_axis

GAUSSIAN_PROCESS = "per-task GP"


@dataclass(frozen=True)
class Sensor:
    """One new sensor.

    Args:
        hours: hours of the day, [m].
        truth: temperature without noise at these hours, [m].
        known: hours and values of the readings that the methods see.
        predictions: mean and standard deviation at `hours` of each method.
    """

    hours: NDArray
    truth: NDArray
    known: tuple[NDArray, NDArray]
    predictions: Mapping[str, tuple[NDArray, NDArray]]


def plot_sensors(
    sensors: Sequence[Sensor], errors: Mapping[str, Sequence[float]], highlighted: str, path: Path
) -> Path:
    """A panel for each sensor, and a row of errors for each method.

    Args:
        sensors: from left to right.
        errors: RMSE of each method for each seed.
        highlighted: the method that is drawn beside the Gaussian process.
        path: the figure's file.
    """
    figure = Figure(figsize=(10.5, 3.1), layout="constrained")
    *panels, last = figure.subplots(1, len(sensors) + 1, width_ratios=[1] * len(sensors) + [1.15])
    for axis, sensor in zip(panels, sensors, strict=True):
        _draw_sensor(axis, sensor, highlighted)
    panels[0].set_ylabel("temperature, °C", fontsize=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=4, frameon=False, fontsize=9, labelcolor=INK)
    _draw_errors(last, errors, highlighted)
    return save(figure, path)


def _draw_sensor(axis: Axes, sensor: Sensor, highlighted: str) -> None:
    axis.plot(sensor.hours, sensor.truth, color=INK, lw=1.2, ls=(0, (4, 3)), label="truth", zorder=3)
    drawn = (
        (highlighted, "MetaFun, with 95 % interval", BLUE, "-"),
        (GAUSSIAN_PROCESS, "Gaussian process", ORANGE, "-."),
    )
    for name, label, colour, style in drawn:
        mean, std = sensor.predictions[name]
        axis.plot(sensor.hours, mean, color=colour, ls=style, lw=2, label=label)
        if name == highlighted:
            axis.fill_between(sensor.hours, mean - 1.96 * std, mean + 1.96 * std, color=colour, alpha=0.25, lw=0)
    label = f"{len(sensor.known[0])} readings"
    axis.plot(*sensor.known, "o", color=RED, ms=6, mec="white", label=label, zorder=4)
    axis.set_xticks([0, 6, 12, 18, 24])
    axis.set_xlabel("hour of the day", fontsize=9)
    axis.tick_params(labelsize=8)
    style_axis(axis)


def _draw_errors(axis: Axes, errors: Mapping[str, Sequence[float]], highlighted: str) -> None:
    names = sorted(errors, key=lambda name: np.mean(errors[name]))
    for place, name in enumerate(names):
        colour, mean = BLUE if name == highlighted else GREY, float(np.mean(errors[name]))
        axis.barh(place, mean, 0.5, color=colour, alpha=0.8)
        axis.plot(errors[name], [place] * len(errors[name]), "|", color=INK, ms=9)
        label = "MetaFun" if name == highlighted else name.replace("per-task GP", "Gaussian process")
        axis.text(0, place - 0.33, f"{label}: {mean:.2f} °C", fontsize=9, color=INK, va="bottom")
    axis.set_ylim(len(names) - 0.6, -0.75)
    axis.set_yticks([])
    axis.set_xlabel("RMSE on new sensors, °C", fontsize=9)
    axis.tick_params(labelsize=8)
    style_axis(axis)
    axis.spines["left"].set_visible(False)
