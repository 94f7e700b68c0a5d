"""Tables of any kind: a prior over small tables for training, and the scaling of a user's table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np

from ..errors import InvalidConfig
from ..schema import Between
from ..values import PointCount, Width, WidthOrZero
from .base import TaskDistribution, TaskSource, check_ranges
from .prior import LabelTables, MixedLabelTables, MixedNumberTables, NumberTables
from .scaling import TaskScaling, table_scaling


@dataclass(frozen=True)
class TableTasks(TaskSource):
    """Small synthetic tables, regression or classification.

    Args:
        columns: maximum number of columns.
        classes: maximum number of classes; 0 for regression.
        context: minimum and maximum number of context rows; the logarithm of their number is uniform.
        targets: maximum number of targets.
        prior: "narrow": wider tables are given by their principal components. "mixed": of more kinds, with all their
            columns; for models that take any number of columns.
        shapes: number of largest sizes that training takes turns in, each half of the one before in columns and in
            rows; the smaller a size, the more often.
    """

    kind: Literal["any-table"] = "any-table"
    columns: Width = 16
    classes: WidthOrZero = 0
    context: tuple[PointCount, PointCount] = (2, 256)
    targets: PointCount = 64
    prior: Literal["narrow", "mixed"] = "narrow"
    shapes: Annotated[int, Between(1, 10)] = 1

    added = {"prior": "narrow", "shapes": 1}  # noqa: RUF012
    trained_on = "new tables"
    test_settings = ("columns", "classes", "prior")
    anyshot_settings = ("context",)
    accepts_any_table = True
    least_rows = 2

    @property
    def takes_components(self) -> bool:
        return self.prior == "narrow"

    @property
    def problem(self) -> Literal["regression", "classification"]:
        return "classification" if self.classes else "regression"

    @property
    def sizes(self) -> tuple[int, int]:
        return self.columns, 0 if self.classes else 1

    @property
    def most_context(self) -> int:
        return self.context[1]

    def check(self, validates: bool) -> None:
        check_ranges(self, "context")
        if self.shapes > 1 and self.prior == "narrow":
            raise InvalidConfig("tasks.shapes > 1 is for models of any number of columns; set tasks.prior = 'mixed'.")
        if self.classes == 1:
            raise InvalidConfig("tasks.classes = 1; give 2 or more, or 0 for regression.")

    def training(self) -> TaskDistribution:
        return self._tables(self.columns, self.context, self.targets)

    def training_shapes(self) -> tuple[TaskDistribution, ...]:
        least, most = self.context
        sizes = [(max(self.columns >> shape, 1), max(most >> shape, least)) for shape in range(self.shapes)]
        return tuple(self._tables(columns, (least, rows), self.targets) for columns, rows in sizes)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, TaskDistribution]]:
        if 0 in (shots or ()):
            raise InvalidConfig("evaluation.shots = 0: a table without rows cannot be standardised; give 1 or more.")
        m = targets or self.targets
        return self._by_context_size(
            shots, ways, lambda context: self._tables(self.columns, context or self.context, m)
        )

    @property
    def test_sizes(self) -> Mapping[str, Any]:
        return {"targets": self.targets}

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        columns = self.columns
        if self.prior == "mixed":  # a model of any number of columns: a few sizes, since each compiles
            columns = min(columns, max(8, 1 << (X.shape[1] - 1).bit_length()))
        return table_scaling(X, None if self.classes else Y, columns)

    def _tables(self, columns: int, context: tuple[int, int], targets: int) -> TaskDistribution:
        if self.classes:
            labels = {"narrow": LabelTables, "mixed": MixedLabelTables}[self.prior]
            return labels(columns, context, targets, self.classes)
        return {"narrow": NumberTables, "mixed": MixedNumberTables}[self.prior](columns, context, targets)
