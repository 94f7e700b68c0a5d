"""Episodes of images: context, queries, predictions and pooling weights."""

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
from .style import GREEN, GREY, INK, RED, SHADES, save

# Queries shown of each class.
SHOWN = 6


def plot_episodes(model: Learner, tasks: Episodes, image: tuple[int, int], seed: int, path: Path) -> Path:
    """Draws three test episodes: context images, query images, and which of these the model recognises.

    Args:
        model: the trained classifier.
        tasks: draws the episodes.
        image: height and width of an image.
        seed: seed of the episodes.
        path: the figure's file.
    """
    # Three panels fill the width; the height makes the images as large as that allows.
    columns = tasks.shots + min(tasks.queries, SHOWN) + 1
    figure = Figure(figsize=(11, 1.3 + 3.6 * tasks.ways / columns), layout="constrained")
    predict = jax.jit(lambda task: model.predict(model.encode(task.context), task.target.x))
    for i, axis in enumerate(figure.subplots(1, 3)):
        task = tasks.sample(jax.random.fold_in(jax.random.key(seed), i))
        context, queries = (_by_class(p.x, tasks.ways, image) for p in (task.context, task.target))
        probabilities = np.asarray(predict(task).probabilities).reshape(tasks.ways, tasks.queries, tasks.ways)
        _draw_episode(axis, context, queries, probabilities)
    figure.suptitle(
        "Unseen classes, one per row: labelled context images left of the line, queries right of it.\n"
        "Green: classified correctly. Orange: classified as the class named below, with that probability.",
        fontsize=10,
    )
    return save(figure, path)


def plot_weights(model: Learner, tasks: Episodes, image: tuple[int, int], seed: int, path: Path) -> Path | None:
    """Draws k(x, xᵢ) for one task: a row for each of some queries x, a column for each context image xᵢ.

    Returns None, and draws nothing, for models without weights on single context points. Arguments as in
    `plot_episodes`.
    """
    task = tasks.sample(jax.random.key(seed))
    representation = model.encode(task.context)
    weights = model.weights(representation, task.target.x)
    if weights is None:
        return None
    prediction = model.predict(representation, task.target.x)
    assert isinstance(prediction, Categorical)
    context, queries = (_by_class(p.x, tasks.ways, image) for p in (task.context, task.target))
    ways, shots, shown = *context.shape[:2], min(queries.shape[1], 2)
    by_class = np.asarray(weights).reshape(ways, -1, ways * shots)[:, :shown].reshape(ways * shown, ways * shots)
    predicted = np.asarray(prediction.probabilities).argmax(-1).reshape(ways, -1)[:, :shown]
    correct = (predicted == np.arange(ways)[:, None]).ravel()
    figure = Figure(figsize=(2.2 + 0.5 * ways * shots, 2.4 + 0.45 * ways * shown), layout="constrained")
    axis = figure.subplots()
    drawn = axis.imshow(by_class, cmap=SHADES, vmin=0, extent=(0, ways * shots, ways * shown, 0))
    figure.colorbar(drawn, ax=axis, fraction=0.03, pad=0.01, label="weight k(x, xᵢ)")
    for column, picture in enumerate(context.reshape(-1, *context.shape[2:])):
        _picture(axis, picture, column + 0.05, -1.1)
    for row, picture in enumerate(queries[:, :shown].reshape(-1, *queries.shape[2:])):
        _picture(axis, picture, -1.1, row + 0.05)
        axis.add_patch(Rectangle((-1.1, row + 0.05), 0.9, 0.9, fill=False, ec=GREEN if correct[row] else RED, lw=1.2))
    for k in range(ways):
        axis.add_patch(Rectangle((k * shots, k * shown), shots, shown, fill=False, ec=GREY, lw=1))
    axis.set(xlim=(-1.8, ways * shots + 0.1), ylim=(ways * shown + 1.6, -1.9), aspect="equal")
    axis.set_axis_off()
    axis.text(ways * shots / 2, -1.3, "labelled context images xᵢ", ha="center", va="bottom", fontsize=10, color=INK)
    axis.text(-1.3, ways * shown / 2, "queries x", ha="right", va="center", rotation=90, fontsize=10, color=INK)
    legend = "grey frames: the same class\ngreen: classified correctly\norange: not"
    axis.text(0, ways * shown + 0.2, legend, ha="left", va="top", fontsize=8, color=INK)
    return save(figure, path)


def _by_class(x: Float[Array, "m dx"], ways: int, image: tuple[int, int]) -> Float[np.ndarray, "ways each *shape"]:
    shape = image if x.shape[1] == math.prod(image) else (*image, 3)
    return np.asarray(x).reshape(ways, -1, *shape)


def _draw_episode(
    axis: Axes,
    context: Float[np.ndarray, "ways shots height width *colours"],
    queries: Float[np.ndarray, "ways queries height width *colours"],
    probabilities: Float[np.ndarray, "ways queries ways"],
) -> None:
    """A row for each class: its context, a line, its first queries, framed in green if classified correctly."""
    ways, shots, shown = *context.shape[:2], min(queries.shape[1], SHOWN)
    names = [chr(ord("A") + i) if ways <= 26 else str(i + 1) for i in range(ways)]
    correct = probabilities.argmax(-1) == np.arange(ways)[:, None]
    for row in range(ways):
        axis.text(-0.2, row + 0.5, names[row], ha="right", va="center", fontsize=9, color=GREY)
        for column in range(shots):
            _picture(axis, context[row, column], column, row)
        for column in range(shown):
            left, color = shots + 0.4 + column, GREEN if correct[row, column] else RED
            _picture(axis, queries[row, column], left, row)
            axis.add_patch(Rectangle((left, row), 0.9, 0.9, fill=False, ec=color, lw=1.2))
            if not correct[row, column]:
                text = f"{names[probabilities[row, column].argmax()]} {probabilities[row, column].max():.0%}"
                box = {"fc": RED, "ec": "none", "pad": 0.8}
                x, y = left + 0.45, row + 1.02
                axis.text(x, y, text, ha="center", va="bottom", fontsize=6, color="white", bbox=box)
    axis.plot([shots + 0.15] * 2, [0, ways], color=GREY, lw=0.8)
    axis.set_title(f"{correct.mean():.0%} of {correct.size} queries correct", fontsize=9)
    axis.set(xlim=(-0.5, shots + shown + 0.5), ylim=(ways, -0.1), aspect="equal")
    axis.set_axis_off()


def _picture(axis: Axes, picture: Float[np.ndarray, "height width *colours"], left: float, top: float) -> None:
    """Shows a mostly empty image, such as a glyph, as ink on paper, and any other image unchanged."""
    is_drawing = np.median(picture) < 0.1 * picture.max()
    # Pixels lie between 0 and 1; a row scaled to unit length has lost that range.
    has_unit_length = np.isclose(np.linalg.norm(picture), 1, rtol=1e-3)
    brightest = picture.max() if is_drawing or has_unit_length else 1.0
    shades, extent = "gray_r" if is_drawing else "gray", (left, left + 0.9, top + 0.9, top)
    axis.imshow(picture / max(brightest, 1e-9), shades, vmin=0, vmax=1, extent=extent, interpolation="nearest")
