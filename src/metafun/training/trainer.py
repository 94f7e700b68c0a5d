"""The training loop: chunks of steps compiled as one scan, all seeds at once."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from ..config import Config, TrainingConfig
from ..model.learner import Learner
from ..model.nn import Hyperparameter, is_array
from ..tasks import Tasks
from .devices import AXIS, jit, local_keys, replicate, run_on_mesh, task_mesh

# Sets the key of a task's noise (dropout, sampled weights) apart from all keys that drawing the task splits off.
NOISE = 2**31


class State(eqx.Module):
    """All that training continues from; the leading axis is the seed.

    The parameters of a model are one vector: one message between devices and one kernel for Adam.
    """

    parameters: Float[Array, "s p"]
    optimiser: PyTree
    step: int = eqx.field(static=True)


class Variation(eqx.Module):
    """In what the models that train at once may differ besides their seeds, where they do along a leading axis."""

    numbers: PyTree  # the model without its parameters
    learning_rate: Hyperparameter


class Trainer:
    """One configuration, with all its variants and seeds, compiled once: `start`, then `run` to the end."""

    def __init__(self, config: Config):
        self.config = config = config.resolved()
        self._variation = variation(config)
        blank = eqx.filter(config.variants()[0].blank_model(), is_array)
        self._sizes = [leaf.size for leaf in jax.tree.leaves(blank)]
        self._unravel = unraveller(blank)
        self._chunk = jit(self._steps)

    def start(self) -> State:
        """Fresh models: seed s begins with the same weights whichever seeds and variants train beside it."""
        keys = jnp.stack([_keys(seed)[0] for seed in self.config.training.seeds])
        each = [jax.vmap(lambda key, v=v: ravel(v.build_model(key)))(keys) for v in self.config.variants()]
        parameters = jnp.concatenate(each)
        optimiser = build_optimiser(self.config.training, 0.0, self._sizes)
        return State(parameters, jax.vmap(optimiser.init)(parameters), 0)

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

    def arrays(self, parameters: Float[Array, "s p"]) -> PyTree:
        """The parameters in the structure of a model, which is what a checkpoint holds."""
        return jax.vmap(self._unravel)(parameters)

    def models(self, parameters: Float[Array, "s p"]) -> Learner:
        """The models as one, with a leading axis in every array: for each variant, all seeds."""
        return eqx.combine(self.arrays(parameters), self._variation.numbers)

    def _steps(self, parameters: Array, optimiser: PyTree, tasks: Tasks, steps: Array) -> tuple[Array, PyTree, Array]:
        training, batch = self.config.training, self.config.training.batch
        seeds = jnp.stack([_keys(seed)[1] for seed in training.seeds])
        seeds = jnp.tile(seeds, len(parameters) // len(seeds))
        mesh = task_mesh(batch)

        def step(
            tasks: Tasks, parameters: Array, optimiser: PyTree, key: Array, variation: Variation
        ) -> tuple[Array, PyTree, Array]:
            keys = local_keys(jax.random.split(key, batch), mesh)

            def loss(arrays: PyTree) -> Array:
                model = eqx.combine(arrays, variation.numbers)
                return jax.vmap(lambda key: model.loss(tasks.sample(key), jax.random.fold_in(key, NOISE)))(keys).mean()

            value, gradient = jax.value_and_grad(loss)(self._unravel(parameters))
            value, gradient = jax.lax.pmean((value, ravel(gradient)), AXIS)
            rule = build_optimiser(training, variation.learning_rate, self._sizes)
            change, optimiser = rule.update(gradient, optimiser, parameters)
            return optax.apply_updates(parameters, change), optimiser, value

        def scan(parameters: Array, optimiser: PyTree, tasks: Tasks, steps: Array) -> tuple[Array, PyTree, Array]:
            def body(carry: tuple[Array, PyTree], i: Array) -> tuple[tuple[Array, PyTree], Array]:
                # The key is a function of seed and step alone, so that a run can be resumed at any chunk.
                keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(seeds, i)
                parameters, optimiser, values = _for_each(partial(step, tasks))(*carry, keys, self._variation)
                return (parameters, optimiser), values

            (parameters, optimiser), values = jax.lax.scan(body, (parameters, optimiser), steps)
            return parameters, optimiser, values

        return run_on_mesh(scan, mesh, PartitionSpec())(parameters, optimiser, tasks, steps)


def variation(config: Config) -> Variation:
    """Numbers that are the same in all variants stay plain: the program is compiled for them."""
    each = [
        Variation(eqx.filter(v.blank_model(), is_array, inverse=True), v.training.learning_rate)
        for v in config.variants()
    ]
    seeds = len(config.training.seeds)

    def joined(*leaves: Any) -> Any:
        return leaves[0] if len(set(leaves)) == 1 else jnp.repeat(jnp.asarray(leaves, float), seeds)

    return jax.tree.map(joined, *each)


def _for_each(function: Callable) -> Callable:
    """`eqx.filter_vmap`, but plain for a single model: products with a batch axis of one take slower kernels."""

    def mapped(*arguments: PyTree) -> PyTree:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return eqx.filter_vmap(function)(*arguments)
        results = function(*jax.tree.map(lambda a: a[0] if is_array(a) else a, arguments))
        return jax.tree.map(lambda a: a[None], results)

    return mapped


def build_optimiser(
    training: TrainingConfig, learning_rate: Hyperparameter, sizes: Sequence[int]
) -> optax.GradientTransformation:
    """`sizes` are those of the model's arrays, one after another in the vector of its parameters."""
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


def unraveller(blank: PyTree) -> Callable[[Float[Array, " p"]], PyTree]:
    """From a vector of parameters back to arrays with the structure and the shapes of `blank`."""
    shapes, structure = jax.tree.flatten(blank)
    ends = np.cumsum([shape.size for shape in shapes])

    def unravel(parameters: Float[Array, " p"]) -> PyTree:
        parts = jnp.split(parameters, ends[:-1])
        return jax.tree.unflatten(structure, [part.reshape(s.shape) for part, s in zip(parts, shapes, strict=True)])

    return unravel


def ravel(model: PyTree) -> Float[Array, " p"]:
    """All parameters of a model, or all entries of its gradient, as one vector."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(eqx.filter(model, is_array))])


def _keys(seed: int) -> tuple[Array, Array]:
    """The key of the initial weights and that of the training tasks."""
    init, tasks = jax.random.split(jax.random.key(seed))
    return init, tasks
