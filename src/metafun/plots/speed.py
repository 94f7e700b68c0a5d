"""The benchmark of speed: seconds over the size of each axis."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from .style import BLUE, GREY, save, style_axis


def plot_costs(costs: Mapping[str, Sequence[tuple[int, float]]], slopes: Mapping[str, float], path: Path) -> Path:
    """A panel for each axis, with logarithmic scales.

    Args:
        costs: (size, seconds) of each axis.
        slopes: the exponent at the largest sizes, for the titles.
        path: the figure's file.
    """
    figure = Figure(figsize=(0.6 + 2.6 * len(costs), 2.6), layout="constrained")
    axes = figure.subplots(1, len(costs), squeeze=False, sharey=True)[0]
    for axis, (name, values) in zip(axes, costs.items(), strict=True):
        sizes, seconds = zip(*values, strict=True)
        axis.plot(sizes, [1000 * value for value in seconds], "o-", color=BLUE, markersize=4)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xlabel(f"number of {name}" if name != "context" else "context points", fontsize=8)
        axis.set_title(f"∝ size^{slopes[name]:.1f} at the end", fontsize=9)
        axis.grid(color=GREY, alpha=0.2)
        style_axis(axis)
    axes[0].set_ylabel("milliseconds", fontsize=8)
    return save(figure, path)
