"""N-way K-shot episodes over any table of features (Section 4.2)."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ..data import Table
from ..errors import InvalidData
from ..model.task import Points, Task
from .base import Tasks
from .row_transforms import RowTransform, UnitLength
from .rows import choose, of_splits


class Episodes(Tasks):
    """`ways` classes, `shots` context rows and `queries` target rows of each, none of them drawn twice.

    The table stays on the device as it was stored. A row becomes x when it is drawn.
    """

    features: Shaped[Array, "rows dx"]
    starts: Int[Array, " c"]
    counts: Int[Array, " c"]
    largest: int = eqx.field(static=True)
    ways: int = eqx.field(static=True)
    shots: int = eqx.field(static=True)
    queries: int = eqx.field(static=True)
    inputs: RowTransform

    @classmethod
    def over(
        cls,
        table: Table,
        splits: Sequence[str],
        *,
        ways: int,
        shots: int,
        queries: int,
        inputs: RowTransform | None = None,
    ) -> "Episodes":
        """Tasks over the classes of the given splits; InvalidData if they are too few or too small."""
        check(table, splits, ways=ways, shots=shots, queries=queries)
        features, starts, counts = of_splits(table, *splits)
        return cls(
            features=jax.device_put(features),
            starts=jnp.asarray(starts),
            counts=jnp.asarray(counts),
            largest=int(counts.max()),
            ways=ways,
            shots=shots,
            queries=queries,
            inputs=inputs or UnitLength(),
        )

    def sample(self, key: PRNGKeyArray) -> Task:
        key_rows, key_inputs = jax.random.split(key)
        rows, copy = self.draw(key_rows)
        x = self.inputs(self.features[rows].astype(float), copy, key_inputs)
        context, target = jnp.split(x, [self.shots], axis=1)
        return Task(_points(context), _points(target))

    def oracle(self, key: PRNGKeyArray, task: Task) -> None:
        return None

    def draw(self, key: PRNGKeyArray) -> tuple[Int[Array, "ways each"], Int[Array, " ways"]]:
        """Which rows make the task, of each class `shots` for its context and then `queries`; and which copy it is."""
        key_classes, key_rows = jax.random.split(key)
        chosen = choose(key_classes, jnp.ones(len(self.counts) * self.inputs.copies, bool), self.ways)
        classes, copy = jnp.divmod(chosen, self.inputs.copies)
        own = jnp.arange(self.largest) < self.counts[classes, None]
        rows = choose(key_rows, own, self.shots + self.queries)
        return self.starts[classes, None] + rows, copy


def _points(x: Float[Array, "ways each dx"]) -> Points:
    ways, each, dx = x.shape
    y = jnp.repeat(jnp.eye(ways, dtype=x.dtype), each, axis=0)
    return Points(x.reshape(-1, dx), y, jnp.ones(ways * each, bool))


def check(table: Table, splits: Sequence[str], *, ways: int, shots: int, queries: int) -> None:
    """InvalidData if the splits have too few classes for such tasks, or classes with too few rows."""
    classes, where = table.split(*splits), f"data '{table.name}', {'+'.join(splits)}"
    if len(classes) < ways:
        raise InvalidData(
            f"{where}: {ways} ways need as many classes, and there are {len(classes)}; use fewer (tasks.ways, --ways)."
        )
    if shots < 1:
        raise InvalidData(f"{where}: a class is known from its context alone, so that shots must be at least 1.")
    small = [f"'{rows.name}' ({rows.count})" for rows in classes if rows.count < shots + queries]
    if small:
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise InvalidData(
            f"{where}: shots and queries need {shots} + {queries} rows of a class, which these do not have: "
            f"{', '.join(small[:5])}{more}; use fewer (tasks.shots, tasks.queries), or leave the classes out."
        )
