"""Figures for people."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from ..config import CurvesConfig, EpisodesConfig, SinusoidConfig
from ..errors import InvalidRun
from ..model.likelihoods import Gaussian
from ..model.stochastic import StochasticMetaFun
from ..tasks import Curves, Sinusoid
from ..training.run_folder import Run
from .calibration import plot_reliability
from .classification import plot_episodes, plot_weights
from .regression import plot_comparison, plot_curves, plot_samples, plot_updates
from .training import plot_training

__all__ = [
    "compare",
    "curves",
    "draw",
    "plot_comparison",
    "plot_curves",
    "plot_episodes",
    "plot_reliability",
    "plot_samples",
    "plot_training",
    "plot_updates",
    "plot_weights",
]


def draw(run: Run) -> dict[str, Path]:
    """All figures of a run, the one that shows predictions first."""
    config, model, seed, figures = run.config, run.model(), run.config.evaluation.seed, {}
    if isinstance(config.tasks, EpisodesConfig):
        _, tasks = next(config.tasks.test(config.evaluation))
        if (image := config.tasks.table().image) is not None:
            figures["episodes"] = plot_episodes(model, tasks, image, seed, run.path / "episodes.png")
            few = dataclasses.replace(config.evaluation, ways=(min(tasks.ways, 5),), shots=(min(tasks.shots, 3),))
            _, tasks = next(config.tasks.test(few))
            if (weights := plot_weights(model, tasks, image, seed, run.path / "weights.png")) is not None:
                figures["weights"] = weights
        figures["reliability"] = plot_reliability(run.models(), config, run.path / "reliability.png")
    elif isinstance(config.tasks, CurvesConfig):
        figures["curves"] = curves(run, run.path / "curves.png")
        if isinstance(model, StochasticMetaFun):
            figures["samples"] = plot_samples(model, config.tasks.training(), seed, run.path / "samples.png")
        if isinstance(model.likelihood, Gaussian):
            figures["reliability"] = plot_reliability(run.models(), config, run.path / "reliability.png")
    elif isinstance(config.tasks, SinusoidConfig):
        figures["updates"] = plot_updates(model, config.tasks.training(), seed, run.path / "updates.png")
    return figures | {"training": plot_training(run.metrics(), run.path / "training.png")}


def compare(runs: Mapping[str, Run], path: Path) -> Path:
    """The predictions of several runs on the same sinusoids, update by update."""
    waves = [_sinusoids(run) for run in runs.values()]
    models = {name: run.model() for name, run in runs.items()}
    return plot_comparison(models, waves[0], next(iter(runs.values())).config.evaluation.seed, path)


def curves(run: Run, path: Path) -> Path:
    """What a run predicts of curves, beside the exact GP."""
    tasks = run.config.tasks.training()
    assert isinstance(tasks, Curves)
    return plot_curves(run.model(), tasks, run.config.evaluation.seed, path)


def _sinusoids(run: Run) -> Sinusoid:
    tasks = run.config.tasks.training()
    if not isinstance(tasks, Sinusoid):
        raise InvalidRun(f"{run.path} was not trained on sinusoids; runs are compared on those only.")
    return tasks
