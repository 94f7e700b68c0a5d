"""Drawn characters, classified from a few drawings of each."""

import base64
import binascii
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, UInt8
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

from ..data import glyphs
from ..errors import InvalidCheckpoint, InvalidTask
from ..estimators.padding import pad_rows, to_float32
from ..estimators.trained import Trained
from ..model.learner import Learner
from ..model.task import Points

# Sizes that the program is compiled for.
MAX_EXAMPLES, MAX_CLASSES = 48, 10
MAX_STROKES, MAX_MARKS = 200, 20_000
PIXELS = glyphs.SIDE**2
# Of a pen on the canvas that characters are scaled to: between the stems of regular and bold faces.
PEN = 5.5
# Lines are drawn this much larger and then averaged.
FINE = 4
# The middle of the range of stroke weights τ in training.
TAU = 0.375
# Letters to begin with, whose script no model has seen in training.
LETTERS = "ΔΣΦΩΨ"

Strokes = Sequence[Sequence[Sequence[float]]]


class GlyphModel:
    """A model that classifies pictures of characters, compiled for the page.

    Args:
        name: what the page calls it.
        trained: the model; InvalidCheckpoint unless it classifies pictures of the size of glyphs.
    """

    def __init__(self, name: str, trained: Trained):
        tasks = trained.tasks
        if tasks.problem != "classification" or tasks.accepts_any_table or tasks.sizes[0] != PIXELS:
            raise InvalidCheckpoint(f"{name} does not classify pictures of {glyphs.SIDE} × {glyphs.SIDE} pixels.")
        self.name, self.trained = name, trained

    def classify(self, examples: Sequence[tuple[str, NDArray]], drawing: NDArray) -> tuple[dict[str, float], NDArray]:
        """The probability of each class, and the weight of each example in the prediction.

        Args:
            examples: a label and a picture [784] for each; two classes or more.
            drawing: the picture to classify, [784].
        """
        labels = list(dict.fromkeys(label for label, _ in examples))
        if not 2 <= len(labels) <= MAX_CLASSES or len(examples) > MAX_EXAMPLES:
            raise InvalidTask(
                f"{len(examples)} examples of {len(labels)} classes; expected at most {MAX_EXAMPLES} examples of "
                f"2 to {MAX_CLASSES} classes."
            )
        scale = self.trained.tasks.scaling(np.zeros((1, PIXELS)), None).scale_inputs
        rows = np.stack([*(picture for _, picture in examples), drawing]).astype(float)
        scaled = to_float32(scale(rows), "X")
        codes = [labels.index(label) for label, _ in examples]
        y = pad_rows(np.eye(MAX_CLASSES, dtype=np.float32)[codes], MAX_EXAMPLES)
        mask = np.arange(MAX_EXAMPLES) < len(examples)
        shares, weights = self._classify(pad_rows(scaled[:-1], MAX_EXAMPLES), y, mask, scaled[-1:])
        return dict(zip(labels, np.asarray(shares)[0].tolist(), strict=False)), np.asarray(weights)[0, : len(examples)]

    def warm_up(self) -> None:
        """Compiles everything a classification needs."""
        blank = np.ones(PIXELS)
        self.classify([("a", blank), ("b", blank)], blank)

    @cached_property
    def _classify(self) -> Any:
        """Compiled: context, x [1, 784] -> probabilities [1, MAX_CLASSES], weights [1, MAX_EXAMPLES]."""
        arrays, rest = eqx.partition(self.trained.model, eqx.is_array)

        @jax.jit
        def classify(x: Array, y: Array, mask: Array, drawing: Array) -> tuple[Array, Array]:
            model: Learner = eqx.combine(arrays, rest)
            representation = model.encode(Points(x, y, mask))
            prediction: Any = model.predict(representation, drawing)
            weights = model.weights(representation, drawing)
            return prediction.probabilities, jnp.zeros((1, len(mask))) if weights is None else weights

        return classify


def picture(strokes: Strokes) -> UInt8[np.ndarray, "784"]:
    """Strokes as a picture like those of `data.glyphs`: centred, of one size, with stems of one weight.

    Args:
        strokes: each a list of places (x, y), y from top to bottom, in any unit.
    """
    if len(strokes) > MAX_STROKES or sum(map(len, strokes)) > MAX_MARKS:
        raise InvalidTask(f"a drawing of more than {MAX_STROKES} strokes or {MAX_MARKS:,} places; clear it.")
    lines = [np.asarray(stroke, float).reshape(-1, 2) for stroke in strokes if len(stroke)]
    if not lines or not all(np.isfinite(line).all() for line in lines):
        raise InvalidTask("the drawing has no strokes of finite numbers; draw something.")
    marks = np.concatenate(lines)
    low, high = marks.min(0), marks.max(0)
    longest = max((high - low).max(), 1e-6)
    # A dot stays a dot.
    scale = (glyphs.BOX - PEN) / longest if longest > 1e-3 else 0.0
    size = glyphs.CANVAS * FINE
    canvas = Image.new("L", (size, size))
    pen = ImageDraw.Draw(canvas)
    radius = PEN * FINE / 2
    for line in lines:
        at = [(float(x), float(y)) for x, y in ((line - (low + high) / 2) * scale + glyphs.CANVAS / 2) * FINE]
        pen.line(at, fill=255, width=round(2 * radius), joint="curve")
        for x, y in (at[0], at[-1]):
            pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=255)
    ink = canvas.resize((glyphs.CANVAS, glyphs.CANVAS), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(1.0))
    return _as_in_training(np.asarray(ink, np.int64))


def _as_in_training(ink: NDArray) -> UInt8[np.ndarray, "784"]:
    """The steps of `data.glyphs.originals` and `distort`, with the middle of each random range."""
    brightness = (ink**2).sum() / max(ink.sum(), 1)
    even = np.minimum(220 / max(brightness, 1) * ink, 255).astype(np.uint8)
    places = (np.arange(glyphs.SIDE) - (glyphs.SIDE - 1) / 2) * (glyphs.CANVAS / glyphs.SIDE) + (glyphs.CANVAS - 1) / 2
    at = np.stack(np.meshgrid(places, places, indexing="ij"))[:, None].astype(np.float32)
    x = glyphs.bilinear(even[None], at)[0] / 255
    return np.rint(255 * np.clip(0.5 + 3 * (x - TAU), 0, 1)).astype(np.uint8).ravel()


@lru_cache
def letters() -> list[tuple[str, NDArray]]:
    """A printed picture of each of a few letters, to begin with."""
    table = glyphs.make(set(LETTERS))
    # Classes are called "U+03A9 GREEK CAPITAL LETTER OMEGA".
    return [(chr(int(rows.name[2:].split()[0], 16)), table.features[rows.start]) for rows in table.classes]


def encode_picture(pixels: NDArray) -> str:
    """A picture as text."""
    return base64.b64encode(np.asarray(pixels, np.uint8).tobytes()).decode()


def decode_picture(text: Any) -> NDArray:
    """The picture in a text; InvalidTask if there is none."""
    try:
        content = base64.b64decode(str(text), validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if len(content) != PIXELS:
        raise InvalidTask(f"an example is not a picture of {PIXELS} pixels; draw it again.")
    return np.frombuffer(content, np.uint8)
