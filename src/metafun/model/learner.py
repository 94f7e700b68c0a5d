"""The interface of a meta-learner, all that training, evaluation and figures rely on."""

from abc import abstractmethod
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .likelihoods import Likelihood, Prediction, masked_mean
from .task import Points, Task


class Learner(eqx.Module):
    """A learning model f = Φ(context), for one task without a batch axis.

    A `key` switches training-time noise on (dropout, sampled weights); without one every method is deterministic.
    """

    likelihood: eqx.AbstractVar[Likelihood]

    @property
    def is_for_any_classes(self) -> bool:
        """Whether classes that the context lacks change nothing; unless overridden, as in all but a few models."""
        return True

    @abstractmethod
    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Any:
        """The representation of a task, computed from its context alone."""

    def weighing(self, weight: Float[Array, ""]) -> Self:
        """The learner whose context points count as `weight` points each; unless overridden, itself.

        Only a sum over the points grows with their number; means and shares do not.
        """
        return self

    def at_temperature(self, temperature: float) -> Self:
        """The untrained learner with another temperature of its similarity term; unless overridden, itself."""
        return self

    def for_context(self, context: Points, most: int | None) -> Self:
        """The learner for a context that may have more points than in training: together they count as `most`.

        Args:
            context: the labelled points.
            most: the most points in training; None where their number is not limited.
        """
        if most is None:
            return self
        return self.weighing(jnp.asarray(most / jnp.maximum(context.mask.sum(), most), context.x.dtype))

    @abstractmethod
    def predict(self, representation: Any, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Prediction:
        """P(y|x) at each x, independently of the other x.

        Args:
            representation: what `encode` returned.
            x: inputs, of the context, the target or anywhere else.
            key: source of training-time noise.
        """

    def predict_trajectory(self, representation: Any, x: Float[Array, "m dx"]) -> Prediction:
        """The predictions after t = 0, …, T updates, along a leading axis; unless overridden, the last one alone."""
        return jax.tree.map(lambda a: a[None], self.predict(representation, x))

    def weights(self, representation: Any, x: Float[Array, "m dx"]) -> Float[Array, "m n"] | None:
        """The weight of each context point in the prediction at each x; None for learners without such weights."""
        return None

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The training loss of one task; unless overridden, the mean of ℓ over the target."""
        return self.target_loss(self.encode(task.context, key), task.target)

    def target_loss(self, representation: Any, target: Points, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The mean of ℓ over the target."""
        prediction = self.predict(representation, target.x, key)
        return masked_mean(self.likelihood.loss(prediction, target.y), target.mask)

    def held_out(self, task: Task) -> "Learner":
        """The learner that validation measures on a task: one that was not trained on it, where there are several."""
        return self

    def peak_floats_per_task(self, task: Task) -> int:
        """Peak memory of a task of these shapes, in floats, where it limits how many fit at once; otherwise 0."""
        return 0

    def joint_log_prob(self, task: Task) -> Float[Array, ""] | None:
        """log P(y₁, …, yₘ), the joint density of the targets; None where they are predicted independently."""
        return None
