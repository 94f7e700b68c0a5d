"""The tasks a model learns from and is judged on: those that are made up as they are needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import InvalidConfig
from ..tasks import Curves, MeanStdScaling, Sinusoid
from ..tasks.prior import LabelTables, NumberTables, Tables
from ..tasks.rows import Rows
from ..tasks.scaling import TaskScaling, table_scaling
from .values import Count, NonNegative, Positive, Real, Seed, Size

# For outputs that a model takes as they are.
AS_THEY_ARE = MeanStdScaling((0.0,), (1.0,))


class AsTrained:
    """Tasks whose inputs and outputs are always given in the same way, and have as many columns as in training."""

    accepts_any_table = False
    image: tuple[int, int] | None = None

    def frame(self: Any, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        """What is done to the rows of a context and to all that is asked with it."""
        return TaskScaling(self.prepare, self.output_scaling)


@dataclass(frozen=True)
class EvaluationConfig:
    """The same test tasks for every model: `tasks` of each kind, drawn from `seed`.

    Where `shots`, `ways` (classification only) and `targets` (of each class there) are not given, the kind of
    tasks has its own.
    """

    tasks: Count = 10_000
    seed: Seed = 2020
    shots: tuple[Size, ...] | None = None
    ways: tuple[Count, ...] | None = None
    targets: Count | None = None


@dataclass(frozen=True)
class SinusoidConfig(AsTrained):
    """n context points, n uniform in `context`, and `targets` targets, at most `points` in all."""

    kind: Literal["sinusoid"] = "sinusoid"
    context: tuple[Size, Size] = (1, 10)
    targets: Count = 10
    points: Count | None = None

    problem = "regression"
    output_scaling = AS_THEY_ARE
    trained_on = tested_on = "new sinusoids"
    sizes = (1, 1)
    inputs = (Sinusoid.low, Sinusoid.high)
    output_bounds = (-5.0, 5.0)

    def resolved(self, validates: bool) -> "SinusoidConfig":
        return self

    def prepare(self, x: Rows) -> Rows:
        """Inputs as the model takes them."""
        return x

    def check(self) -> None:
        least, most = self.context
        if least > most:
            raise InvalidConfig(f"tasks.context = [{least}, {most}], but the least comes first.")
        if self.points is not None and self.points <= most:
            raise InvalidConfig(f"tasks.points = {self.points} leaves no target beside {most} context points.")

    def training(self) -> Sinusoid:
        points = self.points if self.points is not None else self.context[1] + self.targets
        return Sinusoid(self.context, self.targets, points)

    def validation(self) -> Sinusoid:
        return self.training()

    def test(self, evaluation: EvaluationConfig) -> Iterator[tuple[str, Sinusoid]]:
        if evaluation.ways is not None:
            raise InvalidConfig("evaluation.ways is for classification; sinusoids have no classes.")
        targets = evaluation.targets or 100
        for n in evaluation.shots or (5, 10):
            yield f"{n}shot", Sinusoid((n, n), targets, n + targets)


@dataclass(frozen=True)
class CurvesConfig(AsTrained):
    """Noisy curves from a Gaussian process; each task draws its hyperparameters uniformly from their ranges.

    n context points and m targets, uniform in `context` and `targets`, but with n + m ≤ `points`. The noise is the
    same in all tasks, or anything from `noise` to `most_noise`.
    """

    kind: Literal["curves"] = "curves"
    kernel: Literal["rbf", "matern52", "periodic"] = "rbf"
    lengthscale: tuple[Positive, Positive] = (0.6, 0.6)
    scale: tuple[Positive, Positive] = (1.0, 1.0)
    period: tuple[Positive, Positive] = (1.0, 1.0)
    noise: NonNegative = 0.1
    most_noise: NonNegative | None = None
    dimensions: Count = 1
    inputs: tuple[Real, Real] = (-2.0, 2.0)
    context: tuple[Size, Size] = (1, 20)
    targets: tuple[Count, Count] = (20, 20)
    points: Count = 40

    problem = "regression"
    output_scaling = AS_THEY_ARE

    @property
    def output_bounds(self) -> tuple[float, float]:
        """Four standard deviations of the highest curves."""
        return -4 * self.scale[1], 4 * self.scale[1]

    @property
    def trained_on(self) -> str:
        return f"new curves, {self.kernel} kernel"

    tested_on = trained_on

    @property
    def sizes(self) -> tuple[int, int]:
        return self.dimensions, 1

    def resolved(self, validates: bool) -> "CurvesConfig":
        return self

    def prepare(self, x: Rows) -> Rows:
        """Inputs as the model takes them."""
        return x

    def check(self) -> None:
        for name in ("lengthscale", "scale", "period", "inputs", "context", "targets"):
            low, high = getattr(self, name)
            if low > high:
                raise InvalidConfig(f"tasks.{name} = [{low}, {high}], but the least comes first.")
        if self.most_noise is not None and self.most_noise < self.noise:
            raise InvalidConfig(f"tasks.most_noise = {self.most_noise} is less than tasks.noise = {self.noise}.")
        if self.points < self.context[1] + self.targets[0]:
            raise InvalidConfig(
                f"tasks.points = {self.points} leaves fewer than {self.targets[0]} targets beside "
                f"{self.context[1]} context points."
            )

    def training(self) -> Curves:
        return self._curves(self.context, self.targets, self.points)

    def validation(self) -> Curves:
        return self.training()

    def test(self, evaluation: EvaluationConfig) -> Iterator[tuple[str, Curves]]:
        """With `shots` of the context, or with any number as in training."""
        if evaluation.ways is not None:
            raise InvalidConfig("evaluation.ways is for classification; curves have no classes.")
        if evaluation.shots is None:
            yield "anyshot", self.training()
        m = evaluation.targets or 50
        for n in evaluation.shots or ():
            yield f"{n}shot", self._curves((n, n), (m, m), n + m)

    def _curves(self, context: tuple[int, int], targets: tuple[int, int], points: int) -> Curves:
        return Curves(
            kernel=self.kernel,
            lengthscale=self.lengthscale,
            scale=self.scale,
            period=self.period,
            noise=(self.noise, self.noise if self.most_noise is None else self.most_noise),
            dx=self.dimensions,
            low=self.inputs[0],
            high=self.inputs[1],
            context=context,
            targets=targets,
            points=points,
        )


@dataclass(frozen=True)
class AnyTableConfig:
    """Small tables of every kind, with up to `columns` columns and, unless outputs are numbers, `classes` classes.

    The logarithm of the number of context rows is uniform over `context`; there are up to `targets` targets.
    """

    kind: Literal["any-table"] = "any-table"
    columns: Count = 16
    classes: Size = 0
    context: tuple[Count, Count] = (2, 256)
    targets: Count = 64

    trained_on = tested_on = "new tables"
    accepts_any_table = True
    image = inputs = output_bounds = None

    @property
    def problem(self) -> str:
        return "classification" if self.classes else "regression"

    @property
    def sizes(self) -> tuple[int, int]:
        return self.columns, 0 if self.classes else 1

    def resolved(self, validates: bool) -> "AnyTableConfig":
        return self

    def frame(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        return table_scaling(X, None if self.classes else Y, self.columns)

    def check(self) -> None:
        if self.context[0] > self.context[1]:
            raise InvalidConfig(f"tasks.context = {list(self.context)}, but the least comes first.")
        if self.classes == 1:
            raise InvalidConfig("tasks.classes = 1 leaves nothing to tell apart; give 2 or more, or 0 for regression.")

    def training(self) -> Tables:
        return self._tables(self.context, self.targets)

    def validation(self) -> Tables:
        return self.training()

    def test(self, evaluation: EvaluationConfig) -> Iterator[tuple[str, Tables]]:
        """With `shots` rows of context, or with any number as in training."""
        if evaluation.ways is not None:
            raise InvalidConfig("evaluation.ways is for episodes; these tables have any number of classes.")
        targets = evaluation.targets or self.targets
        if 0 in (evaluation.shots or ()):
            raise InvalidConfig("evaluation.shots = 0: a table without rows has nothing to be standardised by.")
        if evaluation.shots is None:
            yield "anyshot", self._tables(self.context, targets)
        for n in evaluation.shots or ():
            yield f"{n}shot", self._tables((n, n), targets)

    def _tables(self, context: tuple[int, int], targets: int) -> Tables:
        if self.classes:
            return LabelTables(self.columns, context, targets, self.classes)
        return NumberTables(self.columns, context, targets)
