"""What all kinds of tasks have in common: a source describes them, a distribution draws them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..errors import InvalidConfig
from ..model.likelihoods import Normal
from ..model.task import Task
from .scaling import UNSCALED, TaskScaling


class Oracle(eqx.Module):
    """The best possible prediction for a task: that of the process that generated it.

    Args:
        prediction: the marginal prediction of each target.
        joint_log_prob: log P(y₁, …, yₘ) of all targets together.
    """

    prediction: Normal
    joint_log_prob: Float[Array, ""]


class TaskDistribution(eqx.Module):
    """A distribution over tasks. Its arrays, if any, are the data from which tasks are drawn."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray) -> Task:
        """One task. All tasks have the same padded sizes."""

    def oracle(self, key: PRNGKeyArray, task: Task) -> Oracle | None:
        """The oracle of the task drawn with `key`; None where it cannot be computed."""
        return None


class TaskSource(ABC):
    """Where tasks come from: it draws tasks, scales a user's arrays into them and back, and describes itself.

    Every source is a frozen dataclass. Its fields are the settings below `[tasks]` in a TOML file.
    """

    kind: Any
    # The settings that determine the test tasks beside those of `evaluation`: always, and without `evaluation.shots`.
    test_settings: ClassVar[Sequence[str]] = ()
    anyshot_settings: ClassVar[Sequence[str]] = ()
    # Rows that a context needs: where it is standardised by its spread, one row is not enough.
    least_rows: ClassVar[int] = 1
    # The most rows; None where only memory limits them.
    most_rows: ClassVar[int | None] = None

    @property
    @abstractmethod
    def problem(self) -> Literal["regression", "classification"]:
        """Whether outputs are numbers or classes."""

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """(dx, dy): columns of x and of y; dy is 0 in classification."""

    @property
    def classes(self) -> int:
        """Columns of y in classification, each for one class; 0 in regression."""
        return 0

    @property
    @abstractmethod
    def trained_on(self) -> str:
        """The training tasks, in words."""

    @property
    def tested_on(self) -> str:
        """The test tasks, in words."""
        return self.trained_on

    @property
    def data(self) -> str:
        """Name or path of the data set; empty where tasks are generated."""
        return ""

    @property
    def fingerprint(self) -> str | None:
        """SHA-256 of the data set; None where tasks are generated."""
        return None

    @property
    def image(self) -> tuple[int, int] | None:
        """Height and width where rows are pixels; None elsewhere."""
        return None

    @property
    def temperature(self) -> float | None:
        """With which a model's similarity term starts; None for the model's own."""
        return None

    @property
    def splits_classes(self) -> bool:
        """Whether classes are divided into train, val and test, as the paper's protocol needs."""
        return False

    @property
    def accepts_any_table(self) -> bool:
        """Whether a model takes tables of any width, with missing entries."""
        return False

    @property
    def takes_components(self) -> bool:
        """Whether a model takes wide tables as principal components."""
        return False

    @property
    def predicts_without_context(self) -> bool:
        """Whether a model is trained to predict a task of which it has seen no point."""
        return False

    @property
    def most_context(self) -> int | None:
        """The most context points in training; None where the number is not limited by itself."""
        return None

    @property
    def input_bounds(self) -> tuple[float, float] | None:
        """The range of x in training; None where a model takes any."""
        return None

    @property
    def output_bounds(self) -> tuple[float, float] | None:
        """The range of y in training; None where a model takes any."""
        return None

    @property
    def least_padded_context(self) -> int | None:
        """The size that smaller contexts are padded to, where time grows fast with it; None where it hardly does."""
        return None

    @abstractmethod
    def check(self, validates: bool) -> None:
        """Raises InvalidConfig where settings contradict each other; `validates`: a validation set is needed."""

    def resolve(self, validates: bool) -> Self:
        """The source completed by facts only the data know, after a check that such tasks can be drawn."""
        return self

    def with_assumed_inputs(self, columns: int) -> Self:
        """The source with `columns` inputs if the data have not been read yet: enough to check a model's shapes."""
        return self

    def with_data(self, data: str) -> Self:
        """The source with another data set of the same columns."""
        raise InvalidConfig(f"--data needs tasks.kind = 'episodes', not '{self.kind}'.")

    def including_validation(self) -> Self:
        """The source with the validation classes among those trained on."""
        raise InvalidConfig(f"the protocol needs tasks.kind = 'episodes', not '{self.kind}'.")

    def tuning_sources(self, folds: int) -> list[Self]:
        """The sources that the protocol chooses the number of steps on: this one, or one for each fold of val.

        Args:
            folds: number of folds, where there are any.
        """
        return [self]

    @abstractmethod
    def training(self) -> TaskDistribution:
        """The training tasks."""

    def training_shapes(self) -> tuple[TaskDistribution, ...]:
        """The training tasks in the shapes that training takes turns in, the largest first; unless overridden, one."""
        return (self.training(),)

    def validation(self) -> TaskDistribution:
        """The validation tasks."""
        return self.training()

    @abstractmethod
    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, TaskDistribution]]:
        """Yields each kind of test tasks by name. A generator, so that data are on the device once.

        Args:
            shots: context sizes (rows of each class in classification).
            ways: numbers of classes; for episodes only.
            targets: targets of a task (of each class in classification).
        """

    @property
    def test_sizes(self) -> Mapping[str, Any]:
        """What the settings of `evaluation` amount to where they are not given."""
        return {}

    def directions(self) -> Float[np.ndarray, "dx dx"] | None:
        """Directions of the inputs, one in each column, the most telling first; None where there are none."""
        return None

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        """How the rows of a task are scaled for the model, and its predictions back.

        Args:
            X: inputs of the context, [rows, columns].
            Y: outputs of the context, [rows, outputs]; None in classification.
        """
        return UNSCALED

    def _by_context_size(
        self, shots: Sequence[int] | None, ways: Sequence[int] | None, draw: Callable[[Any], TaskDistribution]
    ) -> Iterator[tuple[str, TaskDistribution]]:
        """Test tasks with each number of context points, or without `shots` with any number as in training."""
        if ways is not None:
            raise InvalidConfig(f"evaluation.ways is for episodes; tasks.kind = '{self.kind}' has no ways.")
        if shots is None:
            yield "anyshot", draw(None)
        for n in shots or ():
            yield f"{n}shot", draw((n, n))


def check_ranges(source: TaskSource, *names: str) -> None:
    """InvalidConfig unless each named setting is a range [least, most]."""
    for name in names:
        low, high = getattr(source, name)
        if low > high:
            raise InvalidConfig(f"tasks.{name} = [{low}, {high}]: the lower bound comes first.")
