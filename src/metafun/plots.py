"""Figures for people."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .likelihoods import Normal
from .model import MetaFun
from .task import Task
from .tasks import Sinusoid

# One blue for all t, from pale to dark, so that the eye reads a direction.
SHADES = matplotlib.colormaps["Blues"]
RED, GREY, INK = "#d62728", "0.55", "0.1"


def plot_updates(model: MetaFun, tasks: Sinusoid, seed: int, path: Path) -> Path:
    """The paper's Figure 3 A: predictions at t = 0 … T beside the truth, for a few test tasks."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    x = jnp.linspace(tasks.low, tasks.high, 400)[:, None]
    panels = ((5, "anywhere", tasks.low), (5, "on one side", 0.0), (10, "anywhere", tasks.low))
    predict = jax.jit(lambda task: model.predict_trajectory(model.encode(task.context), task.target.x))
    for i, (axis, (n, where, low)) in enumerate(zip(axes, panels, strict=True)):
        task = tasks.curve(jax.random.fold_in(jax.random.key(seed), i), n, low, x)
        prediction = predict(task)
        _draw_updates(axis, task, prediction)
        error = float(jnp.square(prediction.mean[-1] - task.target.y).mean())
        axis.set_title(f"{n} points {where}, MSE {error:.4f}", fontsize=10)
    axes[0].set_ylabel("y")
    axes[0].legend(loc="upper left", fontsize=8, frameon=False, ncols=2)
    figure.suptitle("Functional updates of a trained MetaFun on unseen sinusoids", fontsize=11)
    return _save(figure, path)


def plot_training(metrics: Sequence[dict[str, Any]], path: Path) -> Path:
    """Training and validation loss of every seed over the steps."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axis = figure.subplots()
    curves = {"training": ("loss", SHADES(0.5)), "validation": ("validation", RED)}
    for label, (name, color) in curves.items():
        entries = [entry for entry in metrics if name in entry]
        steps = [entry["step"] for entry in entries]
        for seed, values in enumerate(zip(*(entry[name] for entry in entries), strict=True)):
            axis.plot(steps, values, color=color, lw=1, label=label if seed == 0 else None)
    # A log-likelihood may make the loss negative.
    positive = all(min(entry["loss"]) > 0 for entry in metrics)
    axis.set(xlabel="step", ylabel="loss", yscale="log" if positive else "linear")
    if metrics:
        axis.legend(frameon=False)
    _plain(axis)
    return _save(figure, path)


def _draw_updates(axis: Axes, task: Task, prediction: Normal) -> None:
    x, last = task.target.x[:, 0], len(prediction.mean) - 1
    axis.plot(x, task.target.y[:, 0], color=INK, lw=1.2, ls=(0, (4, 3)), label="truth", zorder=4)
    for t, mean in enumerate(prediction.mean):
        shade = SHADES(0.25 + 0.7 * t / last)
        axis.plot(x, mean[:, 0], color=shade, lw=2.4 if t == last else 1.3, label=f"t = {t}", zorder=2 + (t == last))
    axis.plot(
        task.context.x[:, 0],
        task.context.y[:, 0],
        "o",
        color=RED,
        ms=6,
        mec="white",
        label="context",
        zorder=5,
    )
    axis.set_xlabel("x")
    _plain(axis)


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=GREY, labelcolor=INK)


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path
