"""Collected regression tasks: the rows (x, y) of a table, grouped by task."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..data import Table, absolute
from ..errors import InvalidConfig, InvalidData
from ..model.task import Points, Task
from ..values import PointCount, PointCountOrZero, Positive, Real, Size, Width
from .base import TaskDistribution, TaskSource, check_ranges
from .rows import choose, open_unchanged, rows_of
from .scaling import MeanStdScaling, TaskScaling


class Collected(TaskDistribution):
    """Some rows of one task as context and target. A small task has a smaller context, so that a target remains.

    Args:
        rows: scaled rows (x, y), grouped by task.
        starts: index of the first row of each task.
        counts: rows of each task.
        largest: rows of the largest task.
        outputs: number of trailing columns that hold y.
        context: (minimum, maximum) of the number of context points n, uniform.
        targets: maximum number of targets.
        folds: number of folds that the tasks are dealt into, one after another; 0 for none.
    """

    rows: Float[Array, "rows dxy"]
    starts: Int[Array, " tasks"]
    counts: Int[Array, " tasks"]
    largest: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    context: tuple[int, int] = eqx.field(static=True)
    targets: int = eqx.field(static=True)
    folds: int = eqx.field(static=True, default=0)

    @classmethod
    def over(cls, table: Table, split: str, outputs: int, scaling: MeanStdScaling, **options: Any) -> "Collected":
        """The tasks of a split, with all columns scaled; InvalidData if a task is too small."""
        check(table, split, outputs)
        rows, starts, counts = rows_of(table, split)
        scaled = jax.device_put(np.asarray(scaling(rows), np.float32))
        places = (jnp.asarray(starts), jnp.asarray(counts))
        return cls(scaled, *places, int(counts.max()), outputs=outputs, **options)

    def sample(self, key: PRNGKeyArray) -> Task:
        key_task, key_rows, key_n = jax.random.split(key, 3)
        least, most = self.context
        task = jax.random.randint(key_task, (), 0, len(self.counts))
        count, size = self.counts[task], min(most + self.targets, self.largest)
        drawn = self.rows[self.starts[task] + choose(key_rows, jnp.arange(self.largest) < count, size)]
        x, y = jnp.split(drawn, [drawn.shape[1] - self.outputs], axis=1)
        n = jax.random.randint(key_n, (), jnp.minimum(least, count - 1), jnp.minimum(most, count - 1) + 1)
        # The first n rows are the context and the next ones the target, as far as the task has rows.
        i = jnp.arange(size)
        context, target = Points(x, y, i < n), Points(x, y, (n <= i) & (i < jnp.minimum(n + self.targets, count)))
        fold = task % self.folds if self.folds else None
        return Task(jax.tree.map(lambda a: a[:most], context), target, fold)


def check(table: Table, split: str, outputs: int) -> None:
    """InvalidData if the table has no inputs, or a task has fewer than two rows."""
    where = f"data '{table.name}', {split}"
    columns = table.features.shape[1]
    if columns <= outputs:
        raise InvalidData(f"{where}: {columns} columns, of which the last {outputs} are outputs, leave no inputs.")
    small = [f"'{rows.name}'" for rows in table.split(split) if rows.count < 2]
    if small:
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise InvalidData(
            f"{where}: a task needs at least two rows, one for the context and one for the target; "
            f"{', '.join(small[:5])}{more} has one."
        )


@dataclass(frozen=True)
class CollectedTasks(TaskSource):
    """Regression tasks from a table of rows (x, y), grouped by task. All columns are standardised.

    Args:
        data: name or path of the table.
        outputs: number of trailing columns that hold y.
        context: minimum and maximum number of context points.
        targets: maximum number of targets.
        mean: mean of each column over all training tasks; filled in when a run begins.
        deviation: standard deviation of each column; filled in when a run begins.
        fingerprint: SHA-256 of the table; filled in when a run begins.
        folds: number of folds of the training tasks for a cross-fitted model, which is validated on the tasks that its
            members leave out; 0 to validate on the split val.
    """

    kind: Literal["collected"] = "collected"
    data: str = ""
    outputs: Width = 1
    context: tuple[PointCountOrZero, PointCountOrZero] = (1, 32)
    targets: PointCount = 32
    mean: tuple[Real, ...] | None = None
    deviation: tuple[Positive, ...] | None = None
    fingerprint: str | None = None
    folds: Size = 0

    added = {"folds": 0}  # noqa: RUF012
    problem = "regression"
    test_settings = ("fingerprint", "outputs")
    anyshot_settings = ("context",)

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self._columns.mean) - self.outputs, self.outputs

    @property
    def trained_on(self) -> str:
        return f"{self.data}, train"

    @property
    def tested_on(self) -> str:
        return f"{self.data}, test"

    @property
    def predicts_without_context(self) -> bool:
        return self.context[0] == 0

    def check(self, validates: bool) -> None:
        check_ranges(self, "context")
        if self.mean is not None and not self.outputs < len(self.mean) == len(self.deviation or ()):
            raise InvalidConfig("tasks.mean and tasks.deviation must have one number for each input and output.")

    def resolve(self, validates: bool) -> Self:
        if self.mean is not None and self.deviation is not None and self.fingerprint is not None:
            return self
        if not self.data:
            raise InvalidConfig("tasks.data is empty; name the table of tasks: --set tasks.data=NAME.")
        table = open_unchanged(self.data, self.fingerprint)
        for split in ("train", "val")[: 1 + (validates and not self.folds)]:
            check(table, split, self.outputs)
        columns = MeanStdScaling.of(rows_of(table, "train")[0])
        return dataclasses.replace(
            self,
            data=absolute(self.data),
            mean=columns.mean,
            deviation=columns.deviation,
            fingerprint=table.fingerprint,
        )

    def with_assumed_inputs(self, columns: int) -> Self:
        if self.mean is not None:
            return self
        count = columns + self.outputs
        return dataclasses.replace(self, mean=(0.0,) * count, deviation=(1.0,) * count)

    def training(self) -> Collected:
        return self._tasks("train", self.context, self.targets, self.folds)

    def validation(self) -> Collected:
        return self.training() if self.folds else self._tasks("val", self.context, self.targets)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, TaskDistribution]]:
        """Errors are in standard deviations of the outputs."""
        m = targets or self.targets
        return self._by_context_size(shots, ways, lambda context: self._tasks("test", context or self.context, m))

    @property
    def test_sizes(self) -> Mapping[str, Any]:
        return {"targets": self.targets}

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        dx = self.sizes[0]
        return TaskScaling(self._columns[:dx], self._columns[dx:])

    def _tasks(self, split: str, context: tuple[int, int], targets: int, folds: int = 0) -> Collected:
        table = open_unchanged(self.data, self.fingerprint)
        options = {"context": context, "targets": targets, "folds": folds}
        return Collected.over(table, split, self.outputs, self._columns, **options)

    @property
    def _columns(self) -> MeanStdScaling:
        if self.mean is None or self.deviation is None:
            raise InvalidConfig("tasks.mean is not known before the data are read; resolve the configuration.")
        return MeanStdScaling(self.mean, self.deviation)
