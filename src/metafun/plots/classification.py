"""Episodes over pictures: what the model was told, what it was asked, what it said, and what it looked at."""

import math
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ..model.learner import Learner
from ..model.likelihoods import Categorical
from ..tasks import Episodes
from .style import GREEN, GREY, RED, SHADES, save

# Queries of each class in a picture of an episode.
SHOWN = 6


def plot_episodes(model: Learner, tasks: Episodes, image: tuple[int, int], seed: int, path: Path) -> Path:
    """Tasks over a table of pictures: the context, the queries, and what the model said of them."""
    # Wide enough for three, and so high that pictures are as large as that allows.
    columns = tasks.shots + min(tasks.queries, SHOWN) + 1
    figure = Figure(figsize=(11, 1.3 + 3.6 * tasks.ways / columns), layout="constrained")
    predict = jax.jit(lambda task: model.predict(model.encode(task.context), task.target.x))
    for i, axis in enumerate(figure.subplots(1, 3)):
        task = tasks.sample(jax.random.fold_in(jax.random.key(seed), i))
        context, queries = (_by_class(p.x, tasks.ways, image) for p in (task.context, task.target))
        said = np.asarray(predict(task).probabilities).reshape(tasks.ways, tasks.queries, tasks.ways)
        _draw_episode(axis, context, queries, said)
    figure.suptitle(
        "Unseen classes, one a row: left of the line all that the model is told, right of it new pictures.\n"
        "Green: recognised. Red: taken for the class named below, with the probability given to it.",
        fontsize=10,
    )
    return save(figure, path)


def plot_weights(model: Learner, tasks: Episodes, image: tuple[int, int], seed: int, path: Path) -> Path | None:
    """One task, a row for each of some queries, a column for each picture of the context: k(x, xᵢ) between them.

    None for models that do not weigh the context point by point.
    """
    task = tasks.sample(jax.random.key(seed))
    representation = model.encode(task.context)
    weights = model.weights(representation, task.target.x)
    if weights is None:
        return None
    said = model.predict(representation, task.target.x)
    assert isinstance(said, Categorical)
    context, queries = (_by_class(p.x, tasks.ways, image) for p in (task.context, task.target))
    ways, shots, shown = *context.shape[:2], min(queries.shape[1], 2)
    by_class = np.asarray(weights).reshape(ways, -1, ways * shots)[:, :shown].reshape(ways * shown, ways * shots)
    right = (np.asarray(said.probabilities).argmax(-1).reshape(ways, -1) == np.arange(ways)[:, None])[:, :shown].ravel()
    figure = Figure(figsize=(2 + 0.5 * ways * shots, 2 + 0.45 * ways * shown), layout="constrained")
    axis = figure.subplots()
    drawn = axis.imshow(by_class, cmap=SHADES, vmin=0, extent=(0, ways * shots, ways * shown, 0))
    figure.colorbar(drawn, ax=axis, fraction=0.03, pad=0.01)
    for column, picture in enumerate(context.reshape(-1, *context.shape[2:])):
        _picture(axis, picture, column + 0.05, -1.1)
    for row, picture in enumerate(queries[:, :shown].reshape(-1, *queries.shape[2:])):
        _picture(axis, picture, -1.1, row + 0.05)
        axis.add_patch(Rectangle((-1.1, row + 0.05), 0.9, 0.9, fill=False, ec=GREEN if right[row] else RED, lw=1.2))
    for k in range(ways):
        axis.add_patch(Rectangle((k * shots, k * shown), shots, shown, fill=False, ec=GREY, lw=1))
    axis.set(xlim=(-1.3, ways * shots + 0.1), ylim=(ways * shown + 0.1, -1.2), aspect="equal")
    axis.set_axis_off()
    figure.suptitle(
        "How much a query (left) takes from\neach picture of the context (top)\nframed: its own class", fontsize=9
    )
    return save(figure, path)


def _by_class(x: Float[Array, "m dx"], ways: int, image: tuple[int, int]) -> Float[np.ndarray, "ways each *shape"]:
    shape = image if x.shape[1] == math.prod(image) else (*image, 3)
    return np.asarray(x).reshape(ways, -1, *shape)


def _draw_episode(
    axis: Axes,
    context: Float[np.ndarray, "ways shots height width *colours"],
    queries: Float[np.ndarray, "ways queries height width *colours"],
    said: Float[np.ndarray, "ways queries ways"],
) -> None:
    """A row for each class: its context, a line, its first queries, framed by whether they are recognised."""
    ways, shots, shown = *context.shape[:2], min(queries.shape[1], SHOWN)
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


def _picture(axis: Axes, picture: Float[np.ndarray, "height width *colours"], left: float, top: float) -> None:
    """A drawing, most of which is empty, as ink on paper; any other image as it is."""
    shades = "gray_r" if np.median(picture) == 0 else "gray"
    # Pixels are from 0 to 1; of features of length one only the largest is known.
    most = max(1.0, picture.max()) if shades == "gray" else picture.max()
    axis.imshow(picture, shades, vmin=0, vmax=most, extent=(left, left + 0.9, top + 0.9, top), interpolation="nearest")
