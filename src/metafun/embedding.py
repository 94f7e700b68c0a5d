"""Inputs that are embedded before anything else, jointly with what learns from them: images in, vectors out."""

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .learner import Learner
from .likelihoods import Likelihood, Prediction
from .task import Points, Task

_he = jax.nn.initializers.he_normal()


class Embedding(eqx.Module):
    """Rows of numbers to vectors, each row by itself: a prediction must not depend on what else is asked."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How long the vectors are."""

    def look(self, context: Points) -> Any:
        """What has to be known of a context before its rows can be embedded; nothing, unless it is said here."""
        return None

    @abstractmethod
    def __call__(self, x: Float[Array, "m dx"], seen: Any) -> Float[Array, "m e"]:
        """`seen` is what the `look` at the context gave."""

    def numbers_per_row(self) -> int:
        """How many numbers are there at a time for each row, where that is worth watching; else 0."""
        return 0


class ConvNet(Embedding):
    """Blocks of a 3 × 3 convolution, normalisation, ReLU and 2 × 2 max pooling, as few-shot learners usually have.

    Batches are not normalised: that would let images of a task see each other. Each image is, by itself, in groups
    of channels. What is kept between the layers has the given `precision`.
    """

    kernels: tuple[Float[Array, "i o"], ...]
    scales: tuple[Float[Array, " o"], ...]
    shifts: tuple[Float[Array, " o"], ...]
    image: tuple[int, int] = eqx.field(static=True)
    groups: int = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(
        self,
        image: tuple[int, int],
        channels: Sequence[int],
        groups: int,
        precision: str = "float32",
        *,
        key: PRNGKeyArray,
    ):
        """`channels` are those of the image, 1 or 3, and those that each block gives."""
        sizes = list(itertools.pairwise(channels))
        keys = jax.random.split(key, len(sizes))
        self.kernels = tuple(_he(k, (9 * i, o)) for k, (i, o) in zip(keys, sizes, strict=True))
        self.scales = tuple(jnp.ones(o) for _, o in sizes)
        self.shifts = tuple(jnp.zeros(o) for _, o in sizes)
        self.image, self.groups, self.precision = image, groups, precision

    @property
    def size(self) -> int:
        a, b = self.image
        for _ in self.kernels:
            a, b = (a // 2, b // 2) if min(a, b) > 1 else (a, b)
        return a * b * self.kernels[-1].shape[-1]

    def __call__(self, x: Float[Array, "m dx"], seen: None = None) -> Float[Array, "m e"]:
        h = x.reshape(x.shape[0], *self.image, self.kernels[0].shape[0] // 9).astype(self.precision)
        for kernel, scale, shift in zip(self.kernels, self.scales, self.shifts, strict=True):
            h = (_windows(h) @ kernel.astype(self.precision)).astype(x.dtype)
            h = _pool(jax.nn.relu(scale * self._normalised(h) + shift).astype(self.precision))
        return h.reshape(x.shape[0], -1).astype(x.dtype)

    def numbers_per_row(self) -> int:
        """Of the first block its output and, at a quarter of the places, all that the second sees from there."""
        models = math.prod(self.kernels[0].shape[:-2])
        return models * math.prod(self.image) * self.kernels[0].shape[-1] * (4 + 9) // 4

    def _normalised(self, h: Float[Array, "m a b c"]) -> Float[Array, "m a b c"]:
        grouped = h.reshape(*h.shape[:3], self.groups, -1)
        mean = grouped.mean((1, 2, 4), keepdims=True)
        variance = jnp.square(grouped - mean).mean((1, 2, 4), keepdims=True)
        return ((grouped - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(h.shape)


def _windows(h: Float[Array, "m a b c"]) -> Float[Array, "m a b 9c"]:
    """The 3 × 3 surroundings of each pixel: a convolution is their product with a matrix.

    So are several at once, one for each seed, where a convolution of several kernels would be slow.
    """
    a, b = h.shape[1:3]
    padded = jnp.pad(h, [(0, 0), (1, 1), (1, 1), (0, 0)])
    return jnp.concatenate([padded[:, i : i + a, j : j + b] for i in range(3) for j in range(3)], axis=-1)


def _pool(h: Float[Array, "m a b c"]) -> Float[Array, "m a2 b2 c"]:
    """The largest of 2 × 2; a row or column that is left over is left out. What is too small stays."""
    a, b = h.shape[1] // 2, h.shape[2] // 2
    if not (a and b):
        return h
    h = h[:, : 2 * a, : 2 * b]
    # By comparison: the derivative of jnp.max looks for the entry that equals the largest, which a compiler that
    # computes it anew may round differently, and divides by how many it finds.
    rows = jnp.where(h[:, ::2] > h[:, 1::2], h[:, ::2], h[:, 1::2])
    return jnp.where(rows[:, :, ::2] > rows[:, :, 1::2], rows[:, :, ::2], rows[:, :, 1::2])


class Known(eqx.Module):
    """A task whose context has been looked at and encoded."""

    seen: Any
    representation: Any


class Embedded(Learner):
    """A learner whose x are embedded: for all it knows, its inputs are vectors."""

    embedding: Embedding
    learner: Learner
    likelihood: Likelihood

    def __init__(self, embedding: Embedding, learner: Learner):
        self.embedding, self.learner, self.likelihood = embedding, learner, learner.likelihood

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Known:
        seen = self.embedding.look(context)
        return Known(seen, self.learner.encode(self._embedded(context, seen), key))

    def predict(self, representation: Known, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Prediction:
        return self.learner.predict(representation.representation, self.embedding(x, representation.seen), key)

    def predict_trajectory(self, representation: Known, x: Float[Array, "m dx"]) -> Prediction:
        return self.learner.predict_trajectory(representation.representation, self.embedding(x, representation.seen))

    def weights(self, representation: Known, x: Float[Array, "m dx"]) -> Float[Array, "m n"] | None:
        return self.learner.weights(representation.representation, self.embedding(x, representation.seen))

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return self.learner.loss(self._embedded_task(task), key)

    def numbers_per_task(self, points: int) -> int:
        return points * self.embedding.numbers_per_row() + self.learner.numbers_per_task(points)

    def joint_log_prob(self, task: Task) -> Float[Array, ""] | None:
        return self.learner.joint_log_prob(self._embedded_task(task))

    def _embedded_task(self, task: Task) -> Task:
        seen = self.embedding.look(task.context)
        return Task(self._embedded(task.context, seen), self._embedded(task.target, seen))

    def _embedded(self, points: Points, seen: Any) -> Points:
        return Points(self.embedding(points.x, seen), points.y, points.mask)
