"""Calibration: predicted confidence beside observed accuracy or coverage."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..config import Experiment
from ..model.learner import Learner
from ..training.evaluation import evaluate
from .style import BLUE, GREY, save, style_axis

# Enough for a figure; `metafun evaluate` measures the numbers to report.
TASKS = 500


def plot_reliability(models: Learner, experiment: Experiment, path: Path) -> Path:
    """Draws accuracy over confidence in classification, and coverage of central intervals in regression.

    Args:
        models: a model for each seed, stacked along the first axis.
        experiment: the test tasks.
        path: the figure's file.
    """
    evaluation = dataclasses.replace(experiment.evaluation, tasks=TASKS)
    results = evaluate(models, Experiment(dataclasses.replace(experiment.config, evaluation=evaluation)))
    found = {
        name: value
        for name, value in results.items()
        if not name.startswith("oracle_") and ("reliability" in value or "coverage" in value)
    }
    figure = Figure(figsize=(4.2 * len(found), 4.2), layout="constrained")
    for axis, (name, value) in zip(np.ravel(figure.subplots(1, len(found))), found.items(), strict=True):
        if "reliability" in value:
            _draw_reliability(axis, np.array(value["reliability"]))
        else:
            _draw_coverage(axis, value, results.get(f"oracle_{name}"))
        kind = name.rsplit("error_")[-1].removeprefix("ece_").replace("way_", "-way ").replace("shot", "-shot")
        axis.set_title(f"{kind}: calibration error {value['mean']:.3f} on {TASKS} tasks", fontsize=10)
        axis.legend(frameon=False, fontsize=8, loc="upper left")
        style_axis(axis)
    return save(figure, path)


def _draw_coverage(axis: Axes, model: dict[str, Any], oracle: dict[str, Any] | None) -> None:
    axis.plot([0, 1], [0, 1], color=GREY, lw=1, ls=(0, (4, 3)), label="perfectly calibrated")
    if oracle is not None:
        axis.plot(*_shares(oracle), color="0.85", lw=6, label="exact GP", zorder=1)
    axis.plot(*_shares(model), "o-", ms=4, color=BLUE, clip_on=False, label="this model")
    axis.set(xlabel="probability of the central interval", ylabel="share of true values inside", aspect="equal")
    axis.set(xlim=(0, 1), ylim=(0, 1))


def _shares(summary: dict[str, Any]) -> tuple[Float[np.ndarray, " l"], Float[np.ndarray, " l"]]:
    """Probabilities of the central intervals, and the shares of true values inside."""
    shares = np.concatenate([[0.0], summary["coverage"], [1.0]])
    return np.linspace(0, 1, len(shares)), shares


def _draw_reliability(axis: Axes, reliability: Float[np.ndarray, "bins 3"]) -> None:
    share, confidence, accuracy = reliability.T
    edges, width = np.arange(len(share)) / len(share), 1 / len(share)
    used = share > 0
    axis.bar(edges, share, width, align="edge", color="0.88", label="share of predictions")
    axis.plot([0, 1], [0, 1], color=GREY, lw=1, ls=(0, (4, 3)), label="perfectly calibrated")
    x, y = confidence[used] / share[used], accuracy[used] / share[used]
    axis.plot(x, y, "o-", color=BLUE, clip_on=False, label="this model")
    axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), aspect="equal")
