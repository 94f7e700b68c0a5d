"""The training loop: chunks of steps compiled as one scan, all seeds at once."""

from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, PyTree

from .config import Config, TrainingConfig
from .devices import AXIS, my_share, replicate, spread, task_mesh
from .model import MetaFun

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
        self.config = config
        self.optimiser = build_optimiser(config.training)
        self.unravel = unraveller(config)
        self._chunk = eqx.filter_jit(self._steps)

    def start(self) -> State:
        """Fresh models: seed s begins with the same weights whichever seeds train beside it."""
        keys = jnp.stack([_keys(seed)[0] for seed in self.config.training.seeds])
        parameters = jax.vmap(lambda key: ravel(self.config.build_model(key)))(keys)
        return State(parameters, jax.vmap(self.optimiser.init)(parameters), 0)

    def run(self, state: State) -> Iterator[tuple[State, Float[np.ndarray, "steps s"]]]:
        """Yields the state and the losses after every chunk; the caller logs, validates, saves and stops."""
        training = self.config.training
        # Placed as the chunks return it; otherwise the second chunk would be compiled again.
        state = replicate(state, task_mesh(training.batch))
        while state.step < training.steps:
            length = min(training.chunk, training.steps - state.step)
            parameters, optimiser, losses = self._chunk(
                state.parameters, state.optimiser, jnp.arange(state.step, state.step + length)
            )
            state = State(parameters, optimiser, state.step + length)
            yield state, np.asarray(losses)

    def models(self, parameters: Float[Array, "s p"]) -> MetaFun:
        """The models as one, with a leading axis for the seed in every array."""
        return eqx.filter_vmap(self.unravel)(parameters)

    def _steps(self, parameters: Array, optimiser: PyTree, steps: Array) -> tuple[Array, PyTree, Array]:
        tasks, batch = self.config.tasks.build(), self.config.training.batch
        seeds = jnp.stack([_keys(seed)[1] for seed in self.config.training.seeds])
        mesh = task_mesh(batch)

        def loss(model: MetaFun, keys: Array) -> Array:
            return jax.vmap(lambda key: model.loss(tasks.sample(key), jax.random.fold_in(key, NOISE)))(keys).mean()

        def step(parameters: Array, optimiser: PyTree, key: Array) -> tuple[Array, PyTree, Array]:
            keys = my_share(jax.random.split(key, batch), mesh)
            value, gradient = eqx.filter_value_and_grad(loss)(self.unravel(parameters), keys)
            value, gradient = jax.lax.pmean((value, ravel(gradient)), AXIS)
            change, optimiser = self.optimiser.update(gradient, optimiser, parameters)
            return optax.apply_updates(parameters, change), optimiser, value

        def body(carry: tuple[Array, PyTree], i: Array) -> tuple[tuple[Array, PyTree], Array]:
            # The key is a function of seed and step alone, so that a run can be resumed at any chunk.
            keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(seeds, i)
            parameters, optimiser, values = _for_each_seed(step)(*carry, keys)
            return (parameters, optimiser), values

        def scan(parameters: Array, optimiser: PyTree, steps: Array) -> tuple[Array, PyTree, Array]:
            (parameters, optimiser), values = jax.lax.scan(body, (parameters, optimiser), steps)
            return parameters, optimiser, values

        return spread(scan, mesh, PartitionSpec())(parameters, optimiser, steps)


def _for_each_seed(function: Callable) -> Callable:
    """`jax.vmap`, but plain for a single seed: products with a batch axis of one take slower kernels."""

    def mapped(*arguments: PyTree) -> PyTree:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return jax.vmap(function)(*arguments)
        results = function(*jax.tree.map(lambda a: a[0], arguments))
        return jax.tree.map(lambda a: a[None], results)

    return mapped


def build_optimiser(training: TrainingConfig) -> optax.GradientTransformation:
    rate: float | optax.Schedule = training.learning_rate
    if training.schedule == "cosine":
        warmup = min(training.warmup, training.steps // 2)
        rate = optax.warmup_cosine_decay_schedule(0.0, training.learning_rate, warmup, training.steps)
    clip = optax.identity() if training.clip is None else optax.clip_by_global_norm(training.clip)
    return optax.chain(clip, optax.adam(rate))


def unraveller(config: Config) -> Callable[[Float[Array, " p"]], MetaFun]:
    """From a vector of parameters back to the model."""
    blank = config.build_model(jax.random.key(0))
    arrays, static = eqx.partition(blank, eqx.is_inexact_array)
    unravel = ravel_pytree(arrays)[1]
    return lambda parameters: eqx.combine(unravel(parameters), static)


def ravel(model: PyTree) -> Float[Array, " p"]:
    """All parameters of a model, or all entries of its gradient, as one vector."""
    return ravel_pytree(eqx.filter(model, eqx.is_inexact_array))[0]


def _keys(seed: int) -> tuple[Array, Array]:
    """The key of the initial weights and that of the training tasks."""
    init, tasks = jax.random.split(jax.random.key(seed))
    return init, tasks
