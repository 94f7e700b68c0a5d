"""Tables of any kind: a prior over small tables for training, and the scaling of a user's table."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..errors import InvalidConfig
from ..values import PointCount, Width, WidthOrZero
from .base import TaskDistribution, TaskSource, check_ranges
from .prior import LabelTables, NumberTables, Tables
from .scaling import TaskScaling, table_scaling


@dataclass(frozen=True)
class TableTasks(TaskSource):
    """Small synthetic tables, regression or classification.

    Args:
        columns: maximum number of columns.
        classes: maximum number of classes; 0 for regression.
        context: minimum and maximum number of context rows; the logarithm of their number is uniform.
        targets: maximum number of targets.
    """

    kind: Literal["any-table"] = "any-table"
    columns: Width = 16
    classes: WidthOrZero = 0
    context: tuple[PointCount, PointCount] = (2, 256)
    targets: PointCount = 64

    trained_on = "new tables"
    test_settings = ("columns", "classes")
    anyshot_settings = ("context",)
    accepts_any_table = True
    least_rows = 2

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
        if self.classes == 1:
            raise InvalidConfig("tasks.classes = 1; give 2 or more, or 0 for regression.")

    def training(self) -> Tables:
        return self._tables(self.context, self.targets)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, TaskDistribution]]:
        if 0 in (shots or ()):
            raise InvalidConfig("evaluation.shots = 0: a table without rows cannot be standardised; give 1 or more.")
        m = targets or self.targets
        return self._by_context_size(shots, ways, lambda context: self._tables(context or self.context, m))

    @property
    def test_sizes(self) -> Mapping[str, Any]:
        return {"targets": self.targets}

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        return table_scaling(X, None if self.classes else Y, self.columns)

    def _tables(self, context: tuple[int, int], targets: int) -> Tables:
        if self.classes:
            return LabelTables(self.columns, context, targets, self.classes)
        return NumberTables(self.columns, context, targets)
