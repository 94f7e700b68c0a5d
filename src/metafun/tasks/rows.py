"""Rows of a table, and how some of them are drawn without repetition, on the device."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from ..data import Table
from .scaling import Rows

__all__ = ["Rows", "choose", "of_splits"]


def of_splits(table: Table, *splits: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of the classes (or tasks) of some splits, one after the other; where each begins, how many it has."""
    classes = table.split(*splits)
    counts = np.array([rows.count for rows in classes])
    rows = np.concatenate([table.features[rows.start : rows.start + rows.count] for rows in classes])
    return rows, np.cumsum(counts) - counts, counts


def choose(key: PRNGKeyArray, allowed: Bool[Array, "*batch n"], k: int) -> Int[Array, "*batch k"]:
    """k different allowed indices in random order: those of the k largest of n random numbers.

    Where fewer are allowed, they come first.
    """
    numbers = (jax.random.bits(key, allowed.shape, jnp.uint32) >> 1).astype(jnp.int32)
    return jax.lax.top_k(jnp.where(allowed, numbers, -1), k)[1]
