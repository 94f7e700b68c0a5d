"""An embedding turns raw inputs into vectors for a learner, and is trained with it."""

from abc import abstractmethod
from typing import Any, Self

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Likelihood, Prediction
from ..model.task import Points, Task


class Embedding(eqx.Module):
    """Rows to vectors, each independently of the others: a prediction must not depend on its batch-mates."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The length of a vector."""

    def along(self, directions: Float[Array | np.ndarray, "dx dx"]) -> Self:
        """The embedding, untrained, in the directions of some data; unless overridden, as it is.

        Args:
            directions: one in each column, the most telling first.
        """
        return self

    def summarise_context(self, context: Points) -> Any:
        """What embedding a row needs to know of the context; unless overridden, nothing."""
        return None

    @abstractmethod
    def __call__(self, x: Float[Array, "m dx"], summary: Any) -> Float[Array, "m e"]:
        """The vector of each row.

        Args:
            x: rows of the context or the target.
            summary: what `summarise_context` returned for the context.
        """

    def peak_floats_per_row(self) -> int:
        """Peak memory of a row, in floats, where it limits how many tasks fit at once; otherwise 0."""
        return 0


class EncodedTask(eqx.Module):
    """The context of a task, summarised by the embedding and encoded by the learner."""

    summary: Any
    representation: Any


class Embedded(Learner):
    """A `learner` whose inputs an `embedding` turns into vectors."""

    embedding: Embedding
    learner: Learner
    likelihood: Likelihood

    def __init__(self, embedding: Embedding, learner: Learner):
        self.embedding, self.learner, self.likelihood = embedding, learner, learner.likelihood

    @property
    def is_for_any_classes(self) -> bool:
        return self.learner.is_for_any_classes

    def weighing(self, weight: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda model: model.learner, self, self.learner.weighing(weight))

    def at_temperature(self, temperature: float) -> Self:
        return eqx.tree_at(lambda model: model.learner, self, self.learner.at_temperature(temperature))

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> EncodedTask:
        summary = self.embedding.summarise_context(context)
        return EncodedTask(summary, self.learner.encode(self._embedded(context, summary), key))

    def predict(
        self, representation: EncodedTask, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Prediction:
        return self.learner.predict(representation.representation, self.embedding(x, representation.summary), key)

    def predict_trajectory(self, representation: EncodedTask, x: Float[Array, "m dx"]) -> Prediction:
        return self.learner.predict_trajectory(representation.representation, self.embedding(x, representation.summary))

    def weights(self, representation: EncodedTask, x: Float[Array, "m dx"]) -> Float[Array, "m n"] | None:
        return self.learner.weights(representation.representation, self.embedding(x, representation.summary))

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return self.learner.loss(self._embedded_task(task), key)

    def peak_floats_per_task(self, task: Task) -> int:
        points = task.context.mask.size + task.target.mask.size
        embedded = jax.ShapeDtypeStruct((len(task.context.mask), self.embedding.size), task.context.x.dtype)
        inner = eqx.tree_at(lambda task: task.context.x, task, embedded)
        return points * self.embedding.peak_floats_per_row() + self.learner.peak_floats_per_task(inner)

    def joint_log_prob(self, task: Task) -> Float[Array, ""] | None:
        return self.learner.joint_log_prob(self._embedded_task(task))

    def _embedded_task(self, task: Task) -> Task:
        summary = self.embedding.summarise_context(task.context)
        return Task(self._embedded(task.context, summary), self._embedded(task.target, summary))

    def _embedded(self, points: Points, summary: Any) -> Points:
        return Points(self.embedding(points.x, summary), points.y, points.mask)
