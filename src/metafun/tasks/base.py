"""What all task distributions have in common."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray

from ..model.likelihoods import Normal
from ..model.task import Task


class Oracle(eqx.Module):
    """What one would predict who knew how a task was drawn, and log P(y₁, …, yₘ) of its targets together."""

    prediction: Normal
    joint_log_prob: Float[Array, ""]


class Tasks(eqx.Module):
    """A distribution over tasks. Its arrays, if it has any, are the data that tasks are drawn from."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Task:
        """One task, always of the same sizes; what is not there is masked."""

    @abstractmethod
    def oracle(self, key: PRNGKeyArray, task: Task) -> Oracle | None:
        """Of the task that `key` drew, where it can be computed."""
