"""Rows of a table, and how some of them are drawn without repetition, on the device."""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

# Of the caller's kind: of NumPy, or of JAX where a program is compiled.
Rows = TypeVar("Rows", np.ndarray, Array)


def choose(key: PRNGKeyArray, allowed: Bool[Array, "*batch n"], k: int) -> Int[Array, "*batch k"]:
    """k different allowed indices in random order: those of the k largest of n random numbers.

    Where fewer are allowed, they come first.
    """
    numbers = (jax.random.bits(key, allowed.shape, jnp.uint32) >> 1).astype(jnp.int32)
    return jax.lax.top_k(jnp.where(allowed, numbers, -1), k)[1]
