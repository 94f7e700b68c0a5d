"""N-way K-shot episodes over any table of features (Section 4.2)."""

import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ..data import Table
from ..errors import InvalidData
from ..task import Points, Task
from .rows import Rows, choose
from .tasks import Tasks


class Episodes(Tasks):
    """`ways` classes, `shots` context rows and `queries` target rows of each, none of them drawn twice.

    The table stays on the device as it was stored. A row becomes x when it is drawn: scaled to length one, with
    normal `noise` of that length (in the root mean square) added and scaled again.
    """

    features: Shaped[Array, "rows dx"]
    starts: Int[Array, " c"]
    counts: Int[Array, " c"]
    largest: int = eqx.field(static=True)
    ways: int = eqx.field(static=True)
    shots: int = eqx.field(static=True)
    queries: int = eqx.field(static=True)
    noise: float = eqx.field(static=True)

    @classmethod
    def over(
        cls, table: Table, splits: Sequence[str], *, ways: int, shots: int, queries: int, noise: float = 0.0
    ) -> "Episodes":
        """Tasks over the classes of the given splits; InvalidData if they are too few or too small."""
        check(table, splits, ways=ways, shots=shots, queries=queries)
        classes = table.split(*splits)
        counts = np.array([rows.count for rows in classes])
        features = [table.features[rows.start : rows.start + rows.count] for rows in classes]
        return cls(
            features=jax.device_put(np.concatenate(features)),
            starts=jnp.asarray(np.cumsum(counts) - counts),
            counts=jnp.asarray(counts),
            largest=int(counts.max()),
            ways=ways,
            shots=shots,
            queries=queries,
            noise=noise,
        )

    def sample(self, key: PRNGKeyArray) -> Task:
        key_rows, key_noise = jax.random.split(key)
        x = unit(self.features[self.rows(key_rows)].astype(float))
        if self.noise:
            x = unit(x + self.noise / math.sqrt(x.shape[-1]) * jax.random.normal(key_noise, x.shape, x.dtype))
        context, target = jnp.split(x, [self.shots], axis=1)
        return Task(_points(context), _points(target))

    def oracle(self, key: PRNGKeyArray, task: Task) -> None:
        return None

    def rows(self, key: PRNGKeyArray) -> Int[Array, "ways each"]:
        """Which rows make the task: of each class, `shots` for its context and then `queries`."""
        key_classes, key_rows = jax.random.split(key)
        classes = choose(key_classes, jnp.ones(self.counts.shape, bool), self.ways)
        own = jnp.arange(self.largest) < self.counts[classes, None]
        rows = choose(key_rows, own, self.shots + self.queries)
        return self.starts[classes, None] + rows


def unit(x: Rows) -> Rows:
    """Each row scaled to length one."""
    # The largest entry first: squares of numbers far from 1 would leave the range of float32.
    x = x / abs(x).max(-1, keepdims=True).clip(jnp.finfo(x.dtype).tiny)
    return x / ((x * x).sum(-1, keepdims=True) ** 0.5).clip(1e-12)


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
