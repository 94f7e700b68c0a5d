"""One iteration after another, as in the paper's Figure 1: local updates, functional pooling, the step of r."""

from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..config import Experiment
from ..errors import InvalidConfig
from ..model.learner import Learner
from ..model.metafun import MetaFun
from ..model.task import Task
from .style import BLUE, GREEN, GREY, INK, PURPLE, RED, save, style_axis

# One colour for each direction of r that is drawn.
COLOURS: tuple[Any, ...] = (BLUE, PURPLE, GREEN)
# Of this many test tasks, the one with the largest outputs is drawn: a small one would hide the steps.
CANDIDATES = 16
CONTEXT_POINTS, TARGETS = 6, 200
TITLES = ("local updates  −α uᵢ", "pooled  −α Σᵢ k(x, xᵢ) uᵢ", "r(x), before and after", "prediction, before and after")


class Steps(eqx.Module):
    """What one task goes through in T iterations, at m inputs.

    Args:
        r: r⁽⁰⁾(x), …, r⁽ᵀ⁾(x).
        local: −α uᵢ⁽ᵗ⁾ at the context.
        mean: the mean of the prediction from each r⁽ᵗ⁾.
    """

    r: Float[Array, "t1 m dr"]
    local: Float[Array, "t n dr"]
    mean: Float[Array, "t1 m"]

    @classmethod
    @eqx.filter_jit
    def of(cls, model: MetaFun, task: Task, x: Float[Array, "m 1"]) -> "Steps":
        """The steps of a model on the context of a task, seen at x."""
        representation = model.encode(task.context)
        prediction: Any = model.predict_trajectory(representation, x)
        local = -representation.step_size * representation.updates
        return cls(representation.trajectory(x), local, prediction.mean[..., 0])


def plot_step_by_step(model: Learner, experiment: Experiment, path: Path) -> Path:
    """Draws a row for each iteration on a test task: −α uᵢ, its pooling over x, r and the prediction before and after.

    r has many entries. It is drawn along the few orthogonal directions in which it moves most (`leading_directions`).

    Args:
        model: a trained MetaFun for regression with one input; InvalidConfig otherwise.
        experiment: what it was trained on.
        path: the figure's file.
    """
    model = _checked(model, experiment)
    task = _test_task(experiment)
    low, high = experiment.tasks.input_bounds or (float(task.target.x.min()), float(task.target.x.max()))
    x = jnp.linspace(low, high, 300)[:, None]
    steps = Steps.of(model, task, x)
    directions, shares = leading_directions(jnp.diff(steps.r, axis=0), len(COLOURS))
    figure = Figure(figsize=(12.5, 1.9 * model.iterations + 0.8), layout="constrained")
    rows = figure.subplots(model.iterations, 4, sharex=True, squeeze=False)
    for t, row in enumerate(rows):
        _share_heights(row, rows[0])
        before, after = steps.r[t] @ directions, steps.r[t + 1] @ directions
        local = steps.local[t] @ directions
        _draw_local(row[0], task, local, 1.0)
        _draw_local(row[1], task, local, 0.3)
        _draw_lines(row[1], x, after - before)
        _draw_step(row[2], x, before, after)
        _draw_prediction(row[3], task, x, steps.mean[t], steps.mean[t + 1])
        row[0].set_ylabel(f"iteration {t + 1}", fontsize=10)
    for axis, title in zip(rows[0], TITLES, strict=True):
        axis.set_title(title, fontsize=10)
    for axis in rows[-1]:
        axis.set_xlabel("x")
    _draw_legend(figure, shares)
    return save(figure, path)


def leading_directions(
    steps: Float[Array, "t m dr"], count: int
) -> tuple[Float[Array, "dr d"], Float[np.ndarray, " d"]]:
    """The leading right singular vectors of all steps, and the share of the squared length of the steps along each.

    Args:
        steps: r⁽ᵗ⁺¹⁾(x) − r⁽ᵗ⁾(x).
        count: number of directions d; fewer if r has fewer entries.
    """
    _, sizes, directions = jnp.linalg.svd(steps.reshape(-1, steps.shape[-1]), full_matrices=False)
    directions, squares = directions[:count], np.square(np.asarray(sizes))
    # The sign of a singular vector is arbitrary: let the first step go up.
    upwards = jnp.where((steps[0] @ directions.T).sum(0) < 0, -1.0, 1.0)
    return (upwards[:, None] * directions).T, squares[:count] / max(squares.sum(), 1e-30)


def _checked(model: Learner, experiment: Experiment) -> MetaFun:
    """The model; InvalidConfig unless its steps can be drawn over a line."""
    tasks = experiment.tasks
    if tasks.problem == "regression" and isinstance(model, MetaFun) and model.iterations and tasks.sizes[0] == 1:
        return model
    kind = f"{tasks.sizes[0]} input{'s' * (tasks.sizes[0] != 1)}, {tasks.problem}, {type(model).__name__}"
    raise InvalidConfig(
        f"--step-by-step draws MetaFun for regression with one input, without a latent, but this model has: {kind}; "
        "try metafun plot sinusoid --step-by-step."
    )


def _test_task(experiment: Experiment) -> Task:
    """The test task with the largest outputs among the first few."""
    _, tasks = next(iter(experiment.tasks.test(shots=[CONTEXT_POINTS], targets=TARGETS)))
    keys = jax.random.split(jax.random.key(experiment.evaluation.seed), CANDIDATES)
    drawn = jax.vmap(tasks.sample)(keys)
    sizes = jnp.where(drawn.target.mask[..., None], jnp.abs(drawn.target.y), 0).max((1, 2))
    task = jax.tree.map(lambda a: a[sizes.argmax()], drawn)
    return Task(*(jax.tree.map(lambda a, p=p: a[p.mask], p) for p in (task.context, task.target)))


def _share_heights(row: np.ndarray, first: np.ndarray) -> None:
    """The same scale in each column, and in the two columns of updates."""
    for axis, like in zip(row, (first[0], first[0], first[2], first[3]), strict=True):
        if axis is not like:
            axis.sharey(like)
        style_axis(axis)


def _draw_local(axis: Axes, task: Task, local: Float[Array, "n d"], alpha: float) -> None:
    x = np.asarray(task.context.x[:, 0])
    axis.axhline(0, color=GREY, lw=0.8, zorder=1)
    for values, colour in zip(local.T, COLOURS, strict=False):
        axis.vlines(x, 0, values, color=colour, lw=1.2, alpha=0.5 * alpha)
        axis.plot(x, values, "o", color=colour, ms=5, mec="white", alpha=alpha, zorder=3)


def _draw_lines(axis: Axes, x: Float[Array, "m 1"], values: Float[Array, "m d"]) -> None:
    for line, colour in zip(values.T, COLOURS, strict=False):
        axis.plot(x[:, 0], line, color=colour, lw=2.2, zorder=4)


def _draw_step(axis: Axes, x: Float[Array, "m 1"], before: Float[Array, "m d"], after: Float[Array, "m d"]) -> None:
    for old, new, colour in zip(before.T, after.T, COLOURS, strict=False):
        axis.fill_between(x[:, 0], old, new, color=colour, alpha=0.15, lw=0)
        axis.plot(x[:, 0], old, color=colour, lw=1.2, alpha=0.5)
    _draw_lines(axis, x, after)


def _draw_prediction(
    axis: Axes, task: Task, x: Float[Array, "m 1"], before: Float[Array, " m"], after: Float[Array, " m"]
) -> None:
    axis.plot(task.target.x[:, 0], task.target.y[:, 0], ".", color=GREY, ms=2.5)
    axis.plot(x[:, 0], before, color=INK, lw=1.2, alpha=0.5)
    axis.plot(x[:, 0], after, color=INK, lw=2.2)
    axis.plot(task.context.x[:, 0], task.context.y[:, 0], "o", color=RED, ms=5, mec="white", zorder=5)


def _draw_legend(figure: Figure, shares: Float[np.ndarray, " d"]) -> None:
    handles = {
        f"direction {i} of r, {share:.0%} of its movement": Line2D([], [], color=colour, lw=2.2)
        for i, (share, colour) in enumerate(zip(shares, COLOURS, strict=False), 1)
    }
    handles |= {
        "context": Line2D([], [], color=RED, marker="o", ls="", ms=5, mec="white"),
        "targets": Line2D([], [], color=GREY, marker=".", ls="", ms=4),
        "before": Line2D([], [], color=INK, lw=1.2, alpha=0.5),
        "after": Line2D([], [], color=INK, lw=2.2),
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", fontsize=8, frameon=False, ncols=7)
