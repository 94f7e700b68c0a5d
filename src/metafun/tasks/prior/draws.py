"""Random numbers of several kinds, so that they are soon compiled: XLA takes its time with every draw by itself."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray


def normals(key: PRNGKeyArray, *shapes: tuple[int, ...]) -> list[Array]:
    """Standard normal arrays of these shapes, from one draw."""
    ends = np.cumsum([math.prod(shape) for shape in shapes])
    # Few numbers take longer to compile than many: a short loop is unrolled.
    parts = jnp.split(jax.random.normal(key, (max(ends[-1], 1024),)), ends)
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=False)]


def integers(key: PRNGKeyArray, least: int, most: int, shape: tuple[int, ...] = ()) -> Int[Array, "*shape"]:
    """Any of `least`, …, `most`."""
    span = most - least + 1
    return least + jnp.minimum((jax.random.uniform(key, shape) * span).astype(int), span - 1)


def categories(key: PRNGKeyArray, shares: Float[Array, " k"], shape: tuple[int, ...]) -> Int[Array, "*shape"]:
    """Each category as often as its share says."""
    ends = jnp.cumsum(shares / shares.sum())
    return jnp.minimum((jax.random.uniform(key, shape)[..., None] >= ends).sum(-1), len(shares) - 1)


def log_uniform(key: PRNGKeyArray, least: float, most: float) -> Float[Array, ""]:
    return jnp.exp(jax.random.uniform(key, minval=jnp.log(least), maxval=jnp.log(most)))
