"""Figures for people."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .config import Config, CurvesConfig, EpisodesConfig
from .evaluation import evaluate
from .learner import Learner
from .likelihoods import Normal
from .model import MetaFun
from .runs import Run
from .task import Task
from .tasks import Curves, Episodes, Sinusoid

# One blue for all t, from pale to dark, so that the eye reads a direction.
SHADES = matplotlib.colormaps["Blues"]
RED, GREEN, GREY, INK = "#d62728", "#2ca02c", "0.55", "0.1"
# Enough for a picture; what is reported comes from `metafun evaluate`.
RELIABILITY_TASKS = 500


def draw(run: Run) -> dict[str, Path]:
    """All figures of a run, the one that shows predictions first."""
    config, model, figures = run.config, run.model(), {}
    if isinstance(config.tasks, EpisodesConfig):
        _, tasks = next(config.tasks.test(config.evaluation))
        if (image := config.tasks.table().image) is not None:
            figures["episodes"] = plot_episodes(model, tasks, image, config.evaluation.seed, run.path / "episodes.png")
        figures["reliability"] = plot_reliability(run.models(), config, run.path / "reliability.png")
    elif isinstance(config.tasks, CurvesConfig):
        curves = config.tasks.training()
        figures["curves"] = plot_curves(model, curves, config.evaluation.seed, run.path / "curves.png")
    else:
        waves = config.tasks.training()
        figures["updates"] = plot_updates(model, waves, config.evaluation.seed, run.path / "updates.png")
    return figures | {"training": plot_training(run.metrics(), run.path / "training.png")}


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


def plot_curves(model: Learner, tasks: Curves, seed: int, path: Path) -> Path:
    """The paper's Figure 4: predictions with uncertainty beside those of the exact GP, for 5 and 15 context points."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    x = jnp.linspace(tasks.low, tasks.high, 300)[:, None] * jnp.eye(1, tasks.dx)
    predict = jax.jit(lambda task: model.predict(model.encode(task.context), task.target.x))
    for i, (axis, n) in enumerate(zip(figure.subplots(1, 3, sharey=True), (5, 15, 15), strict=True)):
        task, oracle = tasks.curve(jax.random.fold_in(jax.random.key(seed), i), n, x)
        for prediction, color, label in ((oracle, GREY, "exact GP"), (predict(task), SHADES(0.8), "MetaFun")):
            mean, std = prediction.mean[:, 0], prediction.std[:, 0]
            axis.plot(x[:, 0], mean, color=color, lw=1.6, label=label)
            axis.fill_between(x[:, 0], mean - 2 * std, mean + 2 * std, color=color, alpha=0.2, lw=0)
        axis.plot(task.context.x[:, 0], task.context.y[:, 0], "o", color=RED, ms=5, mec="white", label="context")
        axis.set(xlabel="x", title=f"{n} points")
        _plain(axis)
    figure.axes[0].set_ylabel("y ± 2 standard deviations")
    figure.axes[0].legend(frameon=False, fontsize=8, ncols=3)
    return _save(figure, path)


def plot_episodes(model: Learner, tasks: Episodes, image: tuple[int, int], seed: int, path: Path) -> Path:
    """Tasks over a table of pictures: the context, the queries, and what the model said of them."""
    figure = Figure(figsize=(11, 3.9), layout="constrained")
    predict = jax.jit(lambda task: model.predict(model.encode(task.context), task.target.x))
    for i, axis in enumerate(figure.subplots(1, 3)):
        task = tasks.sample(jax.random.fold_in(jax.random.key(seed), i))
        context, queries = (np.asarray(p.x).reshape(tasks.ways, -1, *image) for p in (task.context, task.target))
        said = np.asarray(predict(task).probabilities).reshape(tasks.ways, tasks.queries, tasks.ways)
        _draw_episode(axis, context, queries, said)
    figure.suptitle(
        "Unseen classes, one a row: left of the line all that the model is told, right of it new pictures.\n"
        "Green: recognised. Red: taken for the class named below, with the probability given to it.",
        fontsize=10,
    )
    return _save(figure, path)


def plot_reliability(models: Learner, config: Config, path: Path) -> Path:
    """How often the model is right among predictions of about equal confidence."""
    evaluation = dataclasses.replace(config.evaluation, tasks=RELIABILITY_TASKS)
    results = evaluate(models, dataclasses.replace(config, evaluation=evaluation))
    found = {name: value for name, value in results.items() if "reliability" in value}
    figure = Figure(figsize=(4.2 * len(found), 4.2), layout="constrained")
    for axis, (name, value) in zip(np.ravel(figure.subplots(1, len(found))), found.items(), strict=True):
        _draw_reliability(axis, np.array(value["reliability"]))
        kind = name.removeprefix("ece_").replace("way_", "-way ").replace("shot", "-shot")
        axis.set_title(f"{kind}: calibration error {value['mean']:.3f} on {RELIABILITY_TASKS} tasks", fontsize=10)
    return _save(figure, path)


def plot_training(metrics: Sequence[dict[str, Any]], path: Path) -> Path:
    """Training loss and validation error of every seed over the steps, each in a panel of its own."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    curves = {"training loss": ("loss", SHADES(0.6)), "validation error": ("validation", RED)}
    for axis, (label, (name, color)) in zip(figure.subplots(1, 2), curves.items(), strict=True):
        entries = [entry for entry in metrics if name in entry]
        values = np.array([entry[name] for entry in entries]).reshape(len(entries), -1)
        axis.plot([entry["step"] for entry in entries], values, "." if len(entries) == 1 else "-", color=color, lw=1)
        # A log-likelihood may make the loss negative.
        axis.set(xlabel="step", ylabel=label, yscale="log" if values.size and values.min() > 0 else "linear")
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


def _draw_episode(
    axis: Axes,
    context: Float[np.ndarray, "ways shots height width"],
    queries: Float[np.ndarray, "ways queries height width"],
    said: Float[np.ndarray, "ways queries ways"],
) -> None:
    """A row for each class: its context, a line, its first queries, framed by whether they are recognised."""
    ways, shots, shown = *context.shape[:2], min(queries.shape[1], 6)
    names = [chr(ord("A") + i) if ways <= 26 else str(i + 1) for i in range(ways)]
    right = said.argmax(-1) == np.arange(ways)[:, None]
    for row in range(ways):
        axis.text(-0.2, row + 0.5, names[row], ha="right", va="center", fontsize=9, color=GREY)
        for column in range(shots):
            _picture(axis, context[row, column], column, row)
        for column in range(shown):
            left, color = shots + 0.4 + column, GREEN if right[row, column] else RED
            _picture(axis, queries[row, column], left, row)
            axis.add_patch(Rectangle((left, row), 0.9, 0.9, fill=False, ec=color, lw=1.2))
            if not right[row, column]:
                text = f"{names[said[row, column].argmax()]} {said[row, column].max():.0%}"
                axis.text(
                    left + 0.45,
                    row + 1.02,
                    text,
                    ha="center",
                    va="bottom",
                    fontsize=6,
                    color="white",
                    bbox=dict(fc=RED, ec="none", pad=0.8),
                )
    axis.plot([shots + 0.15] * 2, [0, ways], color=GREY, lw=0.8)
    axis.set_title(f"{right.mean():.0%} of {right.size} queries recognised", fontsize=9)
    axis.set(xlim=(-0.5, shots + shown + 0.5), ylim=(ways, -0.1), aspect="equal")
    axis.set_axis_off()


def _picture(axis: Axes, picture: Float[np.ndarray, "height width"], left: float, top: float) -> None:
    axis.imshow(picture, cmap="gray_r", extent=(left, left + 0.9, top + 0.9, top), interpolation="nearest")


def _draw_reliability(axis: Axes, reliability: Float[np.ndarray, "bins 3"]) -> None:
    share, confidence, accuracy = reliability.T
    edges, width = np.arange(len(share)) / len(share), 1 / len(share)
    there = share > 0
    axis.bar(edges, share, width, align="edge", color="0.88", label="share of the predictions")
    axis.plot([0, 1], [0, 1], color=GREY, lw=1, ls=(0, (4, 3)), label="perfectly calibrated")
    axis.plot(
        confidence[there] / share[there],
        accuracy[there] / share[there],
        "o-",
        color=SHADES(0.8),
        clip_on=False,
        label="this model",
    )
    axis.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    _plain(axis)


def _plain(axis: Axes) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(colors=GREY, labelcolor=INK)


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    return path
