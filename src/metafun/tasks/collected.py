"""Regression tasks that were collected: rows (x, y) of a table, grouped by task."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..data import Table
from ..errors import InvalidData
from ..model.task import Points, Task
from .base import Tasks
from .rows import Rows, choose, of_splits


class Collected(Tasks):
    """Some rows of one task: n context points, n uniform in `context` = (least, most), and up to `targets` others.

    A task with few rows has a smaller context, so that a target is left.
    """

    rows: Float[Array, "rows dxy"]
    starts: Int[Array, " tasks"]
    counts: Int[Array, " tasks"]
    largest: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    context: tuple[int, int] = eqx.field(static=True)
    targets: int = eqx.field(static=True)

    @classmethod
    def over(
        cls, table: Table, split: str, *, outputs: int, context: tuple[int, int], targets: int, scale: "MeanStdScaling"
    ) -> "Collected":
        """Tasks of a split, every column scaled."""
        check(table, split, outputs)
        rows, starts, counts = of_splits(table, split)
        return cls(
            rows=jax.device_put(np.asarray(scale(rows), np.float32)),
            starts=jnp.asarray(starts),
            counts=jnp.asarray(counts),
            largest=int(counts.max()),
            outputs=outputs,
            context=context,
            targets=targets,
        )

    def sample(self, key: PRNGKeyArray) -> Task:
        key_task, key_rows, key_n = jax.random.split(key, 3)
        least, most = self.context
        task = jax.random.randint(key_task, (), 0, len(self.counts))
        count, room = self.counts[task], min(most + self.targets, self.largest)
        drawn = self.rows[self.starts[task] + choose(key_rows, jnp.arange(self.largest) < count, room)]
        x, y = jnp.split(drawn, [drawn.shape[1] - self.outputs], axis=1)
        n = jax.random.randint(key_n, (), jnp.minimum(least, count - 1), jnp.minimum(most, count - 1) + 1)
        # The first n rows are the context and the next ones the target, as far as the task has rows.
        i = jnp.arange(room)
        context, target = Points(x, y, i < n), Points(x, y, (n <= i) & (i < jnp.minimum(n + self.targets, count)))
        return Task(jax.tree.map(lambda a: a[:most], context), target)

    def oracle(self, key: PRNGKeyArray, task: Task) -> None:
        return None


class MeanStdScaling(eqx.Module):
    """(columns − mean) / deviation: what a model is given has mean 0 and deviation 1 over all tasks."""

    mean: tuple[float, ...] = eqx.field(static=True)
    deviation: tuple[float, ...] = eqx.field(static=True)

    @classmethod
    def of(cls, rows: np.ndarray) -> "MeanStdScaling":
        rows = np.asarray(rows, np.float64)
        deviation = rows.std(0)
        # A column that never changes is left where it is.
        deviation[deviation <= 1e-12 * np.abs(rows).max(0)] = 1.0
        return cls(tuple(rows.mean(0).tolist()), tuple(deviation.tolist()))

    def __call__(self, rows: Rows) -> Rows:
        return (rows - np.array(self.mean)) / np.array(self.deviation)

    def __getitem__(self, columns: slice) -> "MeanStdScaling":
        return MeanStdScaling(self.mean[columns], self.deviation[columns])

    def back(self, rows: Rows) -> Rows:
        return rows * np.array(self.deviation) + np.array(self.mean)


def check(table: Table, split: str, outputs: int) -> None:
    """InvalidData if a task has no row to learn from and one to be judged on, or no inputs."""
    where = f"data '{table.name}', {split}"
    if table.features.shape[1] <= outputs:
        raise InvalidData(
            f"{where}: {table.features.shape[1]} columns, of which the last {outputs} are outputs, leave no inputs."
        )
    small = [f"'{rows.name}'" for rows in table.split(split) if rows.count < 2]
    if small:
        raise InvalidData(
            f"{where}: a task needs two rows, one to learn from and one to be judged on, and {_some(small)} has one."
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
