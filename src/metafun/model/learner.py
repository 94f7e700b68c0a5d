"""What every meta-learner here can do; the loop, the evaluation and the figures ask for nothing else."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from .likelihoods import Likelihood, Prediction, masked_mean
from .task import Points, Task


class Learner(eqx.Module):
    """A learning model f = Φ(context).

    With a key, the random numbers of training are drawn; without one nothing is random.
    """

    likelihood: eqx.AbstractVar[Likelihood]

    @abstractmethod
    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Any:
        """All that is known of a task once its context has been seen."""

    @abstractmethod
    def predict(self, representation: Any, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Prediction:
        """P(y|x) wherever it is asked, each x by itself."""

    def predict_trajectory(self, representation: Any, x: Float[Array, "m dx"]) -> Prediction:
        """What would be predicted after t = 0, …, T updates, along a leading axis; only the last where it has none."""
        return jax.tree.map(lambda a: a[None], self.predict(representation, x))

    def weights(self, representation: Any, x: Float[Array, "m dx"]) -> Float[Array, "m n"] | None:
        """How much each point of the context has to say at each x; None where that cannot be told apart."""
        return None

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """What training makes small, of one task: the mean of ℓ over the target, where nothing more is said."""
        return self.target_loss(self.encode(task.context, key), task.target)

    def target_loss(self, representation: Any, target: Points, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The mean of ℓ over the target."""
        prediction = self.predict(representation, target.x, key)
        return masked_mean(self.likelihood.loss(prediction, target.y), target.mask)

    def peak_floats_per_task(self, task: Task) -> int:
        """How many numbers a task of such shapes needs by itself, where that is worth watching; else 0."""
        return 0

    def joint_log_prob(self, task: Task) -> Float[Array, ""] | None:
        """log P(y₁, …, yₘ) of the targets together; None where it is the sum of each by itself."""
        return None
