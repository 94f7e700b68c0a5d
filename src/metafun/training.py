"""The training loop: chunks of steps compiled as one scan, all seeds at once."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from .config import Config, TrainingConfig
from .devices import AXIS, jit, my_share, replicate, spread, task_mesh
from .learner import Learner
from .tasks import Tasks

# Sets the key of a task's noise (dropout, sampled weights) apart from all keys that drawing the task splits off.
NOISE = 2**31


class State(eqx.Module):
    """All that training continues from; the leading axis is the seed.

    The parameters of a model are one vector: one message between devices and one kernel for Adam.
    """

    parameters: Float[Array, "s p"]
    optimiser: PyTree
    step: int = eqx.field(static=True)


class Trainer:
    """One configuration, compiled once: `start`, then `run` to the end."""

    def __init__(self, config: Config):
        self.config = config = config.resolved()
        blank = config.build_model(jax.random.key(0))
        self.unravel = unraveller(blank)
        self.optimiser = build_optimiser(config.training, [leaf.size for leaf in parameter_arrays(blank)])
        self._chunk = jit(self._steps)

    def start(self) -> State:
        """Fresh models: seed s begins with the same weights whichever seeds train beside it."""
        keys = jnp.stack([_keys(seed)[0] for seed in self.config.training.seeds])
        parameters = jax.vmap(lambda key: ravel(self.config.build_model(key)))(keys)
        return State(parameters, jax.vmap(self.optimiser.init)(parameters), 0)

    def run(self, state: State) -> Iterator[tuple[State, Float[np.ndarray, "steps s"]]]:
        """Yields the state and the losses after every chunk; the caller logs, validates, saves and stops."""
        training = self.config.training
        # Placed as the chunks return it; otherwise the second chunk would be compiled again. The tasks' data go
        # with it: once to each device, for all steps.
        state, tasks = self.place((state, self.config.tasks.training()))
        while state.step < training.end:
            length = min(training.chunk, training.end - state.step)
            parameters, optimiser, losses = self._chunk(
                state.parameters, state.optimiser, tasks, jnp.arange(state.step, state.step + length)
            )
            state = State(parameters, optimiser, state.step + length)
            yield state, np.asarray(losses)

    def place(self, tree: PyTree) -> PyTree:
        """The same arrays on all devices that train."""
        return replicate(tree, task_mesh(self.config.training.batch))

    def trained(self, state: State) -> Float[Array, "s p"]:
        """The parameters to use: the moving average, where there is one."""
        return optax.tree_utils.tree_get(state.optimiser, "average", state.parameters)

    def models(self, parameters: Float[Array, "s p"]) -> Learner:
        """The models as one, with a leading axis for the seed in every array."""
        return eqx.filter_vmap(self.unravel)(parameters)

    def _steps(self, parameters: Array, optimiser: PyTree, tasks: Tasks, steps: Array) -> tuple[Array, PyTree, Array]:
        batch = self.config.training.batch
        seeds = jnp.stack([_keys(seed)[1] for seed in self.config.training.seeds])
        mesh = task_mesh(batch)

        def loss(model: Learner, tasks: Tasks, keys: Array) -> Array:
            return jax.vmap(lambda key: model.loss(tasks.sample(key), jax.random.fold_in(key, NOISE)))(keys).mean()

        def step(tasks: Tasks, parameters: Array, optimiser: PyTree, key: Array) -> tuple[Array, PyTree, Array]:
            keys = my_share(jax.random.split(key, batch), mesh)
            value, gradient = eqx.filter_value_and_grad(loss)(self.unravel(parameters), tasks, keys)
            value, gradient = jax.lax.pmean((value, ravel(gradient)), AXIS)
            change, optimiser = self.optimiser.update(gradient, optimiser, parameters)
            return optax.apply_updates(parameters, change), optimiser, value

        def scan(parameters: Array, optimiser: PyTree, tasks: Tasks, steps: Array) -> tuple[Array, PyTree, Array]:
            def body(carry: tuple[Array, PyTree], i: Array) -> tuple[tuple[Array, PyTree], Array]:
                # The key is a function of seed and step alone, so that a run can be resumed at any chunk.
                keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(seeds, i)
                parameters, optimiser, values = _for_each_seed(partial(step, tasks))(*carry, keys)
                return (parameters, optimiser), values

            (parameters, optimiser), values = jax.lax.scan(body, (parameters, optimiser), steps)
            return parameters, optimiser, values

        return spread(scan, mesh, PartitionSpec())(parameters, optimiser, tasks, steps)


def _for_each_seed(function: Callable) -> Callable:
    """`jax.vmap`, but plain for a single seed: products with a batch axis of one take slower kernels."""

    def mapped(*arguments: PyTree) -> PyTree:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.vmap(function)(*arguments)
        results = function(*jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: a[None], results)

    return mapped


def build_optimiser(training: TrainingConfig, sizes: Sequence[int]) -> optax.GradientTransformation:
    """`sizes` are those of the model's arrays, one after another in the vector of its parameters."""
    rate: float | optax.Schedule = training.learning_rate
    if training.schedule == "cosine":
        warmup = min(training.warmup, training.steps // 2)
        rate = optax.warmup_cosine_decay_schedule(0.0, training.learning_rate, warmup, training.steps)
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
    """Clips the part of each array of the model to the length `most`."""

    def clip(gradient: Float[Array, " p"], parameters: Any = None) -> Float[Array, " p"]:
        parts = jnp.split(gradient, np.cumsum(sizes)[:-1])
        return jnp.concatenate([part * most / jnp.maximum(jnp.linalg.norm(part), most) for part in parts])

    return optax.stateless(clip)


class Average(NamedTuple):
    """What `moving_average` remembers."""

    average: Float[Array, " p"]
    steps: Int[Array, ""]


def moving_average(decay: float) -> optax.GradientTransformation:
    """Leaves the steps as they are and averages the parameters: ā ← d ā + (1 − d) θ, d growing from 0.1 to `decay`."""

    def start(parameters: Array) -> Average:
        return Average(parameters, jnp.zeros((), jnp.int32))

    def update(change: Array, state: Average, parameters: Any = None) -> tuple[Array, Average]:
        # A short memory at first: the parameters that training began with are not worth remembering.
        d = jnp.minimum(decay, (1 + state.steps) / (10 + state.steps))
        return change, Average(d * state.average + (1 - d) * (parameters + change), state.steps + 1)

    return optax.GradientTransformation(start, update)


def unraveller(blank: Learner) -> Callable[[Float[Array, " p"]], Learner]:
    """From a vector of parameters back to a model like `blank`."""
    arrays, static = eqx.partition(blank, eqx.is_inexact_array)
    unravel = ravel_pytree(arrays)[1]
    return lambda parameters: eqx.combine(unravel(parameters), static)


def ravel(model: PyTree) -> Float[Array, " p"]:
    """All parameters of a model, or all entries of its gradient, as one vector."""
    return ravel_pytree(eqx.filter(model, eqx.is_inexact_array))[0]


def parameter_arrays(model: PyTree) -> list[Array]:
    """What training may change, array by array."""
    return jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))


def _keys(seed: int) -> tuple[Array, Array]:
    """The key of the initial weights and that of the training tasks."""
    init, tasks = jax.random.split(jax.random.key(seed))
    return init, tasks
