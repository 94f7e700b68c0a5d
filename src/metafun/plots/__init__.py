"""Figures, one module for each kind. `draw` makes all figures of a run."""

from collections.abc import Mapping
from functools import singledispatch
from pathlib import Path

from ..errors import InvalidConfig, InvalidRun
from ..model.likelihoods import Gaussian
from ..model.stochastic import StochasticMetaFun
from ..tasks import Curves, CurveTasks, EpisodeTasks, Sinusoid, SinusoidTasks, TaskSource
from ..training.run import Run
from ..training.run_folder import Figure
from .calibration import plot_reliability
from .classification import plot_episodes, plot_weights
from .regression import (
    plot_comparison,
    plot_curves,
    plot_samples,
    plot_updates,
)
from .training import plot_training


def draw(run: Run) -> dict[str, Path]:
    """All figures of a run, by name; the one that shows predictions comes first."""
    figures = _predictions(run.experiment.tasks, run)
    return figures | {"training": plot_training(run.metrics(), run.path / Figure.TRAINING)}


@singledispatch
def _predictions(tasks: TaskSource, run: Run) -> dict[str, Path]:
    return {}


@_predictions.register(EpisodeTasks)
def _(tasks: EpisodeTasks, run: Run) -> dict[str, Path]:
    figures, evaluation = {}, run.experiment.evaluation
    if (image := tasks.table().image) is not None:
        model, seed = run.model(), evaluation.seed
        _, episodes = next(tasks.test(shots=evaluation.shots, ways=evaluation.ways, targets=evaluation.targets))
        figures["episodes"] = plot_episodes(model, episodes, image, seed, run.path / Figure.EPISODES)
        few = {"ways": [run.experiment.fixed_classes or min(episodes.ways, 5)], "shots": [min(episodes.shots, 3)]}
        _, small = next(tasks.test(**few, targets=evaluation.targets))
        if (weights := plot_weights(model, small, image, seed, run.path / Figure.WEIGHTS)) is not None:
            figures["weights"] = weights
    return figures | {"reliability": plot_reliability(run.models(), run.experiment, run.path / Figure.RELIABILITY)}


@_predictions.register(CurveTasks)
def _(tasks: CurveTasks, run: Run) -> dict[str, Path]:
    model, seed = run.model(), run.experiment.evaluation.seed
    figures = {"curves": plot_curves(model, tasks.training(), seed, run.path / Figure.CURVES)}
    if isinstance(model, StochasticMetaFun):
        figures["samples"] = plot_samples(model, tasks.training(), seed, run.path / Figure.SAMPLES)
    if isinstance(model.likelihood, Gaussian):
        figures["reliability"] = plot_reliability(run.models(), run.experiment, run.path / Figure.RELIABILITY)
    return figures


@_predictions.register(SinusoidTasks)
def _(tasks: SinusoidTasks, run: Run) -> dict[str, Path]:
    seed = run.experiment.evaluation.seed
    return {"updates": plot_updates(run.model(), tasks.training(), seed, run.path / Figure.UPDATES)}


def compare(runs: Mapping[str, Run], path: Path) -> Path:
    """The predictions of several runs on the same sinusoids, update by update.

    Args:
        runs: runs on sinusoids, by the title of their column.
        path: the figure, .png, .svg or .pdf.
    """
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidConfig(f"--out {path}: a figure is a .png, .svg or .pdf file.")
    models, waves = {}, []
    for name, run in runs.items():
        if not isinstance(tasks := run.experiment.tasks.training(), Sinusoid):
            raise InvalidRun(f"{run.path} was not trained on sinusoids; only such runs can be compared.")
        waves.append((tasks, run.experiment.evaluation.seed))
        models[name] = run.model()
    return plot_comparison(models, *waves[0], path)


def curves(run: Run, path: Path) -> Path:
    """The predictions of a run on curves of a Gaussian process, beside the exact posterior."""
    tasks = run.experiment.tasks.training()
    assert isinstance(tasks, Curves)
    return plot_curves(run.model(), tasks, run.experiment.evaluation.seed, path)
