"""Random draws that compile quickly: XLA compiles every single draw slowly, so several are made at once."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


def normals(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Array]:
    """Standard normal arrays of these shapes, from one draw."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    # XLA unrolls short draws, which then compile more slowly than long ones.
    parts = jnp.split(jax.random.normal(key, (max(ends[-1], 1024),)), ends)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]


def integers(key: PRNGKeyArray, least: int, most: int, shape: tuple[int, ...] = ()) -> Int[Array, "*shape"]:
    """Uniform in `least`, …, `most`."""
    span = most - least + 1
    return least + jnp.minimum((jax.random.uniform(key, shape) * span).astype(int), span - 1)


def categories(key: PRNGKeyArray, shares: Float[Array, " k"], shape: tuple[int, ...]) -> Int[Array, "*shape"]:
    """Category k with probability proportional to `shares[k]`."""
    ends = jnp.cumsum(shares / shares.sum())
    return jnp.minimum((jax.random.uniform(key, shape)[..., None] >= ends).sum(-1), len(shares) - 1)


def log_uniform(key: PRNGKeyArray, least: float, most: float) -> Float[Array, ""]:
    """exp(u) with u uniform in [log least, log most]."""
    return jnp.exp(jax.random.uniform(key, minval=jnp.log(least), maxval=jnp.log(most)))
