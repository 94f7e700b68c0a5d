"""Rows of a table, and random draws of them without repetition, on the device."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from ..data import Table, open_table
from ..errors import InvalidData


def open_unchanged(data: str, fingerprint: str | None) -> Table:
    """The data set `data`; InvalidData if its fingerprint is another one."""
    table = open_table(data)
    if fingerprint not in (None, table.fingerprint):
        raise InvalidData(
            f"data '{data}' have changed since this run began; restore them, or train again with --overwrite."
        )
    return table


def rows_of(table: Table, *splits: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of all classes (or tasks) of some splits; the index of the first row of each class; its row count."""
    classes = table.split(*splits)
    counts = np.array([rows.count for rows in classes])
    rows = np.concatenate([table.features[rows.start : rows.start + rows.count] for rows in classes])
    return rows, np.cumsum(counts) - counts, counts


def choose(key: PRNGKeyArray, allowed: Bool[Array, "*batch n"], k: int) -> Int[Array, "*batch k"]:
    """k different allowed indices in random order: those of the k largest of n random numbers.

    Where fewer than k are allowed, they come first.
    """
    numbers = (jax.random.bits(key, allowed.shape, jnp.uint32) >> 1).astype(jnp.int32)
    return jax.lax.top_k(jnp.where(allowed, numbers, -1), k)[1]
