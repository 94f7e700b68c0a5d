"""What a search found: every trial as a line over its settings, and the error over each of them."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import optuna
from optuna.visualization.matplotlib import plot_parallel_coordinate, plot_slice

from .style import save


def plot_search(study: optuna.Study, folder: Path) -> list[Path]:
    """parallel.png and slices.png, once two trials are finished."""
    if len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))) < 2:
        return []
    matplotlib.use("Agg")
    draw: dict[str, Callable[..., Any]] = {"parallel": plot_parallel_coordinate, "slices": plot_slice}
    paths = []
    for name, function in draw.items():
        with warnings.catch_warnings(action="ignore"):  # both are called experimental
            axes = function(study, target_name="validation error")
        figure = (axes if hasattr(axes, "figure") else axes.flat[0]).figure
        figure.set_size_inches(max(8, 1.6 * len(study.best_params)), 4.5)
        paths.append(save(figure, folder / f"{name}.png"))
    return paths
