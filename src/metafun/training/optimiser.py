"""The optimiser: clipping, Adam, and a moving average of the parameters."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from ..config import TrainingConfig
from ..model.nn import Hyperparameter


def build_optimiser(
    training: TrainingConfig, learning_rate: Hyperparameter, sizes: Sequence[int]
) -> optax.GradientTransformation:
    """The optimiser of one model, whose parameters are one vector.

    Args:
        training: schedule, clipping and averaging.
        learning_rate: replaces that of `training`; an array where it differs between models that train at once.
        sizes: sizes of the model's arrays, in their order in the vector.
    """
    rate: Hyperparameter | optax.Schedule = learning_rate
    if training.schedule == "cosine":
        warmup = min(training.warmup, training.steps // 2)
        shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, warmup, training.steps)
        rate = lambda step: learning_rate * shape(step)  # noqa: E731
    parts = []
    if training.clip_entries is not None:
        parts.append(optax.clip(training.clip_entries))
    if training.clip_arrays is not None:
        parts.append(clip_arrays(training.clip_arrays, sizes))
    if training.clip is not None:
        parts.append(optax.clip_by_global_norm(training.clip))
    parts.append(optax.adam(rate))
    if training.average:
        parts.append(moving_average(training.average))
    return optax.chain(*parts)


def clip_arrays(most: float, sizes: Sequence[int]) -> optax.GradientTransformation:
    """Clips the gradient of each array to the norm `most`; `sizes` as in `build_optimiser`."""

    def clip(gradient: Float[Array, " p"], parameters: Any = None) -> Float[Array, " p"]:
        parts = jnp.split(gradient, np.cumsum(sizes)[:-1])
        return jnp.concatenate([part * most / jnp.maximum(jnp.linalg.norm(part), most) for part in parts])

    return optax.stateless(clip)


class Average(NamedTuple):
    """The state of `moving_average`."""

    average: Float[Array, " p"]
    steps: Int[Array, ""]


def moving_average(decay: float) -> optax.GradientTransformation:
    """Averages the parameters, ā ← d ā + (1 − d) θ, with d growing from 0.1 to `decay`; steps are unchanged."""

    def start(parameters: Array) -> Average:
        return Average(parameters, jnp.zeros((), jnp.int32))

    def update(change: Array, state: Average, parameters: Any = None) -> tuple[Array, Average]:
        # A small d at first forgets the random initial parameters quickly.
        d = jnp.minimum(decay, (1 + state.steps) / (10 + state.steps))
        return change, Average(d * state.average + (1 - d) * (parameters + change), state.steps + 1)

    return optax.GradientTransformation(start, update)
