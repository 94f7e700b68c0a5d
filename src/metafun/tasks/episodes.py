"""N-way K-shot episodes over any table of features (Section 4.2)."""

from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from ..data import Table
from ..errors import InvalidData
from ..model.task import Points, Task
from .base import TaskDistribution
from .row_transforms import RowTransform, UnitLength
from .rows import choose, rows_of


class Groups(eqx.Module):
    """Groups of classes. The classes of a task are of one group, which is drawn first.

    Args:
        members: which classes belong to each group.
        shares: probability of each group.
    """

    members: Bool[Array, "g c"]
    shares: Float[Array, " g"]

    def draw(self, key: PRNGKeyArray) -> Bool[Array, " c"]:
        """The members of a random group."""
        return self.members[jax.random.choice(key, len(self.shares), p=self.shares)]


class Episodes(TaskDistribution):
    """N classes with K context rows and some target rows each; no row is drawn twice.

    The table stays on the device in its stored precision. A row is transformed when it is drawn.

    Args:
        features: all rows, grouped by class.
        starts: index of the first row of each class.
        counts: rows of each class.
        largest: rows of the largest class.
        ways: classes of a task, N.
        shots: context rows of each class, K.
        queries: target rows of each class.
        transform: from stored rows to inputs.
        groups: if given, a task has classes of one group.
    """

    features: Shaped[Array, "rows dx"]
    starts: Int[Array, " c"]
    counts: Int[Array, " c"]
    largest: int = eqx.field(static=True)
    ways: int = eqx.field(static=True)
    shots: int = eqx.field(static=True)
    queries: int = eqx.field(static=True)
    transform: RowTransform
    groups: Groups | None = None

    @classmethod
    def over(
        cls,
        table: Table,
        splits: Sequence[str],
        *,
        ways: int,
        shots: int,
        queries: int,
        transform: RowTransform | None = None,
        shares: Mapping[str, float] | None = None,
    ) -> "Episodes":
        """Episodes over the classes of some splits; InvalidData if these are too few or too small.

        Args:
            table: rows grouped by class.
            splits: names of the splits.
            ways, shots, queries, transform: as in `Episodes`.
            shares: probability of each split, if the classes of a task are to be of one split.
        """
        for group in [[split] for split in splits] if shares else [splits]:
            check(table, group, ways=ways, shots=shots, queries=queries)
        features, starts, counts = rows_of(table, *splits)
        return cls(
            features=jax.device_put(features),
            starts=jnp.asarray(starts),
            counts=jnp.asarray(counts),
            largest=int(counts.max()),
            ways=ways,
            shots=shots,
            queries=queries,
            transform=transform or UnitLength(),
            groups=None if shares is None else _groups(table, splits, shares),
        )

    def sample(self, key: PRNGKeyArray) -> Task:
        key_rows, key_transform = jax.random.split(key)
        rows, copy = self.draw(key_rows)
        x = self.transform(self.features[rows].astype(float), copy, key_transform)
        context, target = jnp.split(x, [self.shots], axis=1)
        return Task(_points(context), _points(target))

    def draw(self, key: PRNGKeyArray) -> tuple[Int[Array, "ways each"], Int[Array, " ways"]]:
        """Row indices of a task, context rows first, and the index of each class's copy (e.g. its rotation)."""
        key_classes, key_rows = jax.random.split(key)
        allowed = jnp.ones(len(self.counts), bool)
        if self.groups is not None:
            key_group, key_classes = jax.random.split(key_classes)
            allowed = self.groups.draw(key_group)
        chosen = choose(key_classes, jnp.repeat(allowed, self.transform.copies), self.ways)
        classes, copy = jnp.divmod(chosen, self.transform.copies)
        exists = jnp.arange(self.largest) < self.counts[classes, None]
        rows = choose(key_rows, exists, self.shots + self.queries)
        return self.starts[classes, None] + rows, copy


def _groups(table: Table, splits: Sequence[str], shares: Mapping[str, float]) -> Groups:
    of = np.array([rows.split for rows in table.split(*splits)])
    members = [of == split for split in splits]
    return Groups(jnp.asarray(np.stack(members)), jnp.asarray([shares[split] for split in splits]))


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
        raise InvalidData(f"{where}: shots = {shots}, but every class needs at least one context row.")
    small = [f"'{rows.name}' ({rows.count})" for rows in classes if rows.count < shots + queries]
    if small:
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise InvalidData(
            f"{where}: shots and queries need {shots} + {queries} rows of each class; these have fewer: "
            f"{', '.join(small[:5])}{more}; use fewer (tasks.shots, tasks.queries), or remove these classes."
        )
