"""Predictions along a line: functional updates, predictive uncertainty, and sampled functions."""

from collections.abc import Callable, Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from ..model.learner import Learner
from ..model.likelihoods import Mixture, Normal
from ..model.stochastic import StochasticMetaFun
from ..model.task import Points, Task
from ..tasks import Curves, Sinusoid
from .style import BLUE, INK, RED, SHADES, save, style_axis

# Functions in a panel: enough to show the variation, few enough to tell apart.
DRAWS = 12
# The wave in the first row of the comparison is near the upper end of the amplitudes in training, 0.1 to 5: a small
# wave would hide the differences between models.
AMPLITUDE = 4.0
DASHES = (0, (4, 3))


def plot_updates(model: Learner, tasks: Sinusoid, seed: int, path: Path) -> Path:
    """Draws the paper's Figure 3 A: predictions at t = 0, …, T beside the truth, for a few test tasks.

    Args:
        model: the trained model.
        tasks: draws the sinusoids.
        seed: seed of the test tasks.
        path: the figure's file.
    """
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    x = jnp.linspace(tasks.low, tasks.high, 400)[:, None]
    panels = ((5, "anywhere", tasks.low), (5, "on one side", 0.0), (10, "anywhere", tasks.low))
    predict = _trajectory(model)
    for i, (axis, (n, where, low)) in enumerate(zip(axes, panels, strict=True)):
        task = tasks.curve(jax.random.fold_in(jax.random.key(seed), i), n, low, x)
        prediction = predict(task)
        _draw_updates(axis, task, prediction)
        error = float(jnp.square(prediction.mean[-1] - task.target.y).mean())
        axis.set_title(f"{n} points {where}, MSE {error:.4f}", fontsize=10)
    axes[0].set_ylabel("y")
    axes[0].legend(loc="upper left", fontsize=8, frameon=False, ncols=2)
    figure.suptitle("Predictions after each update, on unseen sinusoids", fontsize=11)
    return save(figure, path)


def plot_comparison(models: Mapping[str, Learner], tasks: Sinusoid, seed: int, path: Path) -> Path:
    """Draws the paper's Figure 3: the same two tasks for each model, 5 points anywhere and 5 points on one side.

    Args:
        models: the trained models by name.
        tasks, seed, path: as in `plot_updates`.
    """
    figure = Figure(figsize=(3.6 * len(models), 6), layout="constrained")
    rows = figure.subplots(2, len(models), sharex=True, sharey="row", squeeze=False)
    x = jnp.linspace(tasks.low, tasks.high, 400)[:, None]
    predict = {name: _trajectory(model) for name, model in models.items()}
    panels = ((tasks.low, AMPLITUDE), (0.0, None))
    for i, (row, (low, amplitude)) in enumerate(zip(rows, panels, strict=True)):
        task = tasks.curve(jax.random.fold_in(jax.random.key(seed), i), 5, low, x, amplitude)
        for axis, name in zip(row, models, strict=True):
            prediction = predict[name](task)
            _draw_updates(axis, task, prediction)
            error = float(jnp.square(prediction.mean[-1] - task.target.y).mean())
            axis.set_title(f"{name}, MSE {error:.4f}", fontsize=10)
        row[0].set_ylabel("y")
    # Models differ in the number of updates, so the legend names only the first and the last.
    truth, before, *_, after, context = rows[0, 0].get_lines()
    labels = ("truth", "before the first update", "after the last update", "context")
    handles = (truth, before, after, context)
    figure.legend(handles, labels, loc="outside lower center", fontsize=8, frameon=False, ncols=len(labels))
    return save(figure, path)


def plot_curve_comparison(models: Mapping[str, Learner], tasks: Curves, seed: int, path: Path) -> Path:
    """Draws the paper's Figure 4 for several models: each on the same two curves, with 5 and with 15 context points.

    Args:
        models: the trained models by name; each has a column.
        tasks: draws the curves; the exact GP's prediction is beside each model's.
        seed, path: as in `plot_updates`.
    """
    figure = Figure(figsize=(3.9 * len(models), 5.8), layout="constrained")
    rows = figure.subplots(2, len(models), sharex=True, sharey=True, squeeze=False)
    x = _line(tasks)
    predict = {name: _predictor(model) for name, model in models.items()}
    for i, (row, n) in enumerate(zip(rows, (5, 15), strict=True)):
        task, oracle = tasks.curve(jax.random.fold_in(jax.random.key(seed), i), n, x)
        for axis, name in zip(row, models, strict=True):
            _draw_task(axis, task, oracle)
            _draw_band(axis, x, predict[name](task), "the model")
            axis.set_title(f"{name}, {n} context points", fontsize=10)
    _label(figure, "y, with ± 2 standard deviations")
    return save(figure, path)


def plot_curves(model: Learner, tasks: Curves, seed: int, path: Path) -> Path:
    """Draws predictions with uncertainty beside the exact GP's, for 5 and 15 context points.

    Args:
        tasks: draws the curves.
        model, seed, path: as in `plot_updates`.
    """
    figure = Figure(figsize=(11, 5.8), layout="constrained")
    x = _line(tasks)
    predict = _predictor(model)
    axes = figure.subplots(2, 2, sharex=True, sharey=True).flat
    for i, (axis, n) in enumerate(zip(axes, (5, 5, 15, 15), strict=True)):
        task, oracle = tasks.curve(jax.random.fold_in(jax.random.key(seed), i), n, x)
        _draw_task(axis, task, oracle)
        _draw_band(axis, x, predict(task), "this model")
        axis.set_title(f"{n} context points", fontsize=11)
    _label(figure, "y, with ± 2 standard deviations")
    return save(figure, path)


def plot_samples(model: StochasticMetaFun, tasks: Curves, seed: int, path: Path) -> Path:
    """Draws functions sampled from a stochastic representation, one z each, over the exact GP's uncertainty.

    Arguments as in `plot_curves`.
    """
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    x = _line(tasks)
    draw = jax.jit(lambda task, key: model.functions(model.encode(task.context), task.target.x, key, DRAWS))
    for i, (axis, n) in enumerate(zip(figure.subplots(1, 3, sharey=True), (1, 5, 15), strict=True)):
        key_task, key_z = jax.random.split(jax.random.fold_in(jax.random.key(seed), i))
        task, oracle = tasks.curve(key_task, n, x)
        _draw_task(axis, task, oracle)
        drawn = axis.plot(x[:, 0], draw(task, key_z).mean[..., 0].T, color=BLUE, lw=0.9, alpha=0.8)
        drawn[0].set_label(f"{DRAWS} functions sampled from this model")
        axis.set_title(f"{n} context point{'s' * (n > 1)}", fontsize=11)
    _label(figure, "y; the exact GP with ± 2 standard deviations")
    return save(figure, path)


def _trajectory(model: Learner) -> Callable[[Task], Normal]:
    """Predictions for the targets of a task after t = 0, …, T updates."""
    return jax.jit(lambda task: model.predict_trajectory(model.encode(task.context), task.target.x))


def _predictor(model: Learner) -> Callable[[Task], Normal | Mixture]:
    """The prediction for the targets of a task."""
    return jax.jit(lambda task: model.predict(model.encode(task.context), task.target.x))


def _line(tasks: Curves) -> Float[Array, "m dx"]:
    """Inputs along the first axis; the others are 0."""
    return jnp.linspace(tasks.low, tasks.high, 300)[:, None] * jnp.eye(1, tasks.dx)


def _draw_task(axis: Axes, task: Task, oracle: Normal) -> None:
    """The exact GP's prediction as dashed lines, and the context."""
    x, mean, std = task.target.x[:, 0], oracle.mean[:, 0], oracle.std[:, 0]
    axis.plot(x, mean, color=INK, lw=1.4, ls=DASHES, label="exact GP", zorder=4)
    edges = [jnp.stack([x, mean + sign * std], axis=1) for sign in (-2, 2)]
    axis.add_collection(LineCollection(edges, colors=INK, linewidths=1, linestyles=[DASHES], zorder=3))
    _draw_context(axis, task.context)
    style_axis(axis)


def _draw_band(axis: Axes, x: Float[Array, "m dx"], prediction: Normal | Mixture, label: str) -> None:
    mean, std = prediction.mean[:, 0], prediction.std[:, 0]
    axis.plot(x[:, 0], mean, color=BLUE, lw=2, label=label)
    axis.fill_between(x[:, 0], mean - 2 * std, mean + 2 * std, color=BLUE, alpha=0.25, lw=0)


def _label(figure: Figure, y: str) -> None:
    """Names of the axes, and a legend below them."""
    figure.supxlabel("x", fontsize=10)
    figure.supylabel(y, fontsize=10)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", fontsize=10, frameon=False, ncols=len(labels))


def _draw_context(axis: Axes, context: Points) -> None:
    axis.plot(context.x[:, 0], context.y[:, 0], "o", color=RED, ms=5, mec="white", label="context", zorder=5)


def _draw_updates(axis: Axes, task: Task, prediction: Normal) -> None:
    x, last = task.target.x[:, 0], len(prediction.mean) - 1
    axis.plot(x, task.target.y[:, 0], color=INK, lw=1.2, ls=DASHES, label="truth", zorder=4)
    for t, mean in enumerate(prediction.mean):
        shade = SHADES(0.25 + 0.7 * t / last)
        axis.plot(x, mean[:, 0], color=shade, lw=2.4 if t == last else 1.3, label=f"t = {t}", zorder=2 + (t == last))
    _draw_context(axis, task.context)
    axis.set_xlabel("x")
    style_axis(axis)
