"""Figures, one module for each kind. `draw` makes all figures of a run."""

from collections.abc import Callable, Mapping
from functools import partial, singledispatch
from pathlib import Path

from ..errors import InvalidConfig, InvalidRun
from ..model.likelihoods import Gaussian
from ..model.stochastic import StochasticMetaFun
from ..tasks import CurveTasks, EpisodeTasks, SinusoidTasks, TaskSource
from ..training.run import Run
from ..training.run_folder import Figure
from .calibration import plot_reliability
from .classification import plot_episodes, plot_weights
from .regression import (
    plot_comparison,
    plot_curve_comparison,
    plot_curves,
    plot_samples,
    plot_updates,
)
from .training import plot_training

# How several models are compared, by the source of their tasks.
COMPARISONS: Mapping[type[TaskSource], Callable[..., Path]] = {
    SinusoidTasks: plot_comparison,
    CurveTasks: plot_curve_comparison,
}


def draw(run: Run) -> dict[str, Path]:
    """All figures of a run in its folder, by name; the one that shows predictions comes first."""
    drawn = {figure: write(run.path / figure) for figure, write in _figures(run).items()}
    return {Path(figure).stem: path for figure, path in drawn.items() if path is not None}


def draw_predictions(run: Run, path: Path) -> Path:
    """The first figure of `draw` alone, as the file `path`, .png, .svg or .pdf."""
    check_suffix(path)
    next(iter(_figures(run).values()))(path)
    return path


# Draws one figure as a file; None if the model has nothing to show in it.
Writer = Callable[[Path], Path | None]


def _figures(run: Run) -> dict[Figure, Writer]:
    return _predictions(run.experiment.tasks, run) | {Figure.TRAINING: partial(plot_training, run.metrics())}


@singledispatch
def _predictions(tasks: TaskSource, run: Run) -> dict[Figure, Writer]:
    return {}


@_predictions.register(EpisodeTasks)
def _(tasks: EpisodeTasks, run: Run) -> dict[Figure, Writer]:
    figures: dict[Figure, Writer] = {}
    evaluation, reliability = run.experiment.evaluation, partial(plot_reliability, run.models(), run.experiment)
    if (image := tasks.table().image) is not None:
        model, seed = run.model(), evaluation.seed
        _, episodes = next(tasks.test(shots=evaluation.shots, ways=evaluation.ways, targets=evaluation.targets))
        figures[Figure.EPISODES] = partial(plot_episodes, model, episodes, image, seed)
        few = {"ways": [run.experiment.fixed_classes or min(episodes.ways, 5)], "shots": [min(episodes.shots, 3)]}
        _, small = next(tasks.test(**few, targets=evaluation.targets))
        figures[Figure.WEIGHTS] = partial(plot_weights, model, small, image, seed)
    return figures | {Figure.RELIABILITY: reliability}


@_predictions.register(CurveTasks)
def _(tasks: CurveTasks, run: Run) -> dict[Figure, Writer]:
    model, seed = run.model(), run.experiment.evaluation.seed
    figures: dict[Figure, Writer] = {Figure.CURVES: partial(plot_curves, model, tasks.training(), seed)}
    if isinstance(model, StochasticMetaFun):
        figures[Figure.SAMPLES] = partial(plot_samples, model, tasks.training(), seed)
    if isinstance(model.likelihood, Gaussian):
        figures[Figure.RELIABILITY] = partial(plot_reliability, run.models(), run.experiment)
    return figures


@_predictions.register(SinusoidTasks)
def _(tasks: SinusoidTasks, run: Run) -> dict[Figure, Writer]:
    return {Figure.UPDATES: partial(plot_updates, run.model(), tasks.training(), run.experiment.evaluation.seed)}


def compare(runs: Mapping[str, Run], path: Path) -> Path:
    """The predictions of several runs on the same sinusoids, update by update, or on the same curves.

    Args:
        runs: runs on sinusoids, or runs on curves, by the title of their column; the tasks of the first are drawn.
        path: the figure, .png, .svg or .pdf.
    """
    check_suffix(path)
    first = next(iter(runs.values())).experiment
    for run in runs.values():
        tasks = run.experiment.tasks
        if type(tasks) not in COMPARISONS or type(tasks) is not type(first.tasks):
            raise InvalidRun(
                f"{run.path} was trained on {tasks.trained_on}; runs on sinusoids can be compared with each other, "
                "and so can runs on curves (tasks.kind = 'curves')."
            )
    models = {name: run.model() for name, run in runs.items()}
    return COMPARISONS[type(first.tasks)](models, first.tasks.training(), first.evaluation.seed, path)


def check_suffix(path: Path, option: str = "--out") -> None:
    """InvalidConfig unless a figure can be written to a file of this name, which `option` gave."""
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidConfig(f"{option} {path}: a figure is a .png, .svg or .pdf file.")
