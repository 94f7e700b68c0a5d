"""What all task distributions have in common."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import PRNGKeyArray

from ..likelihoods import Prediction
from ..task import Task


class Tasks(eqx.Module):
    """A distribution over tasks. Its arrays, if it has any, are the data that tasks are drawn from."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Task:
        """One task, always of the same sizes; what is not there is masked."""

    @abstractmethod
    def oracle(self, key: PRNGKeyArray, task: Task) -> Prediction | None:
        """What one would predict who knew how `key` drew the task, where that can be computed."""
