"""The training loop: chunks of steps compiled as one scan, all seeds at once."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, PyTree

from ..config import Config, Experiment, resolve
from ..model import Learner
from ..model.nn import Hyperparameter, is_array
from ..tasks import TaskDistribution
from .devices import AXIS, jit, local_keys, replicate, run_on_mesh, task_mesh
from .optimiser import build_optimiser

# Folded into a task's key for the noise of training (dropout, sampled weights), so that it differs from every key
# used to draw the task.
NOISE = 2**31


class State(eqx.Module):
    """All that training continues from.

    The parameters of a model are one vector: one message between devices and one kernel for Adam.

    Args:
        parameters: one row for each model: for each variant, all seeds.
        optimiser: the optimiser's state, with the same leading axis.
        step: steps done.
    """

    parameters: Float[Array, "s p"]
    optimiser: PyTree
    step: int = eqx.field(static=True)


class Variation(eqx.Module):
    """Settings that may differ between models that train at once; those that do have one entry for each model.

    Args:
        hyperparameters: the model without its parameters.
        learning_rate: the highest learning rate.
    """

    hyperparameters: PyTree
    learning_rate: Hyperparameter


class Trainer:
    """Trains one experiment, with all its variants and seeds, as one compiled program.

    Args:
        config: what to train; `start` gives the first state, `run` continues from any.
    """

    def __init__(self, config: Config | Experiment):
        self.experiment = resolve(config)
        self._variation = variation(self.experiment)
        blank = eqx.filter(self.experiment.variants[0].blank_model(), is_array)
        self._sizes = [leaf.size for leaf in jax.tree.leaves(blank)]
        self._unravel = ravel_pytree(jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), blank))[1]
        self._compiled = jit(self.scan_steps)

    def start(self, model: Learner | None = None, is_new: bool = True) -> State:
        """Fresh models, or copies of one. The weights of a seed do not depend on the seeds and variants beside it.

        Args:
            model: a trained model with parameters of the same shapes.
            is_new: whether training starts with them; if only their shapes matter, no data are read.
        """
        directions = self.experiment.directions() if is_new and model is None else None
        keys = jnp.stack([_keys(seed)[0] for seed in self.experiment.training.seeds])
        build = [jax.vmap(lambda key, v=v: ravel(v.build_model(key, directions))) for v in self.experiment.variants]
        parameters = jnp.concatenate([fresh(keys) for fresh in build])
        if model is not None:
            parameters = jnp.tile(ravel(model), (len(parameters), 1)).astype(parameters.dtype)
        optimiser = build_optimiser(self.experiment.training, 0.0, self._sizes)
        return State(parameters, jax.vmap(optimiser.init)(parameters), 0)

    def run(self, state: State) -> Iterator[tuple[State, Float[np.ndarray, "steps s"]]]:
        """Yields the state and the losses after every chunk; the caller logs, validates, saves and stops."""
        training = self.experiment.training
        # Placed on the devices as chunks return it: otherwise the second chunk would be compiled again.
        state, shapes = self.place((state, self.experiment.tasks.training_shapes()))
        while state.step < training.end:
            # A run that was extended may continue in the middle of a chunk.
            length = min(training.chunk - state.step % training.chunk, training.end - state.step)
            tasks = shapes[shape_of_chunk(state.step // training.chunk, len(shapes))]
            parameters, optimiser, losses = self._compiled(
                state.parameters, state.optimiser, tasks, jnp.arange(state.step, state.step + length)
            )
            state = State(parameters, optimiser, state.step + length)
            yield state, np.asarray(losses)

    def place(self, tree: PyTree) -> PyTree:
        """The same arrays on all devices that train."""
        return replicate(tree, task_mesh(self.experiment.training.batch))

    def trained(self, state: State) -> Float[Array, "s p"]:
        """The parameters to evaluate: the moving average, if there is one."""
        return optax.tree_utils.tree_get(state.optimiser, "average", state.parameters)

    def arrays(self, parameters: Float[Array, "s p"]) -> PyTree:
        """The parameters in the structure of a model, as a checkpoint holds them."""
        return jax.vmap(self._unravel)(parameters)

    def models(self, parameters: Float[Array, "s p"]) -> Learner:
        """All models as one, with a leading axis in every array: for each variant, all seeds."""
        return eqx.combine(self.arrays(parameters), self._variation.hyperparameters)

    def scan_steps(
        self, parameters: Array, optimiser: PyTree, tasks: TaskDistribution, steps: Array
    ) -> tuple[Array, PyTree, Array]:
        """The new parameters and optimiser state, and the losses, after the given `steps`: what a chunk compiles."""
        training, mesh = self.experiment.training, task_mesh(self.experiment.training.batch)
        seeds = jnp.stack([_keys(seed)[1] for seed in training.seeds])
        seeds = jnp.tile(seeds, len(parameters) // len(seeds))

        def step(
            tasks: TaskDistribution, parameters: Array, optimiser: PyTree, key: Array, variation: Variation
        ) -> tuple[Array, PyTree, Array]:
            keys = local_keys(jax.random.split(key, training.batch), mesh)

            def loss(arrays: PyTree) -> Array:
                model = eqx.combine(arrays, variation.hyperparameters)
                return jax.vmap(lambda key: model.loss(tasks.sample(key), jax.random.fold_in(key, NOISE)))(keys).mean()

            value, gradient = jax.value_and_grad(loss)(self._unravel(parameters))
            value, gradient = jax.lax.pmean((value, ravel(gradient)), AXIS)
            rule = build_optimiser(training, variation.learning_rate, self._sizes)
            change, optimiser = rule.update(gradient, optimiser, parameters)
            return optax.apply_updates(parameters, change), optimiser, value

        def scan(
            parameters: Array, optimiser: PyTree, tasks: TaskDistribution, steps: Array
        ) -> tuple[Array, PyTree, Array]:
            def body(carry: tuple[Array, PyTree], i: Array) -> tuple[tuple[Array, PyTree], Array]:
                # The key depends on seed and step alone, so that a run can be resumed at any chunk.
                keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(seeds, i)
                parameters, optimiser, values = _for_each_model(partial(step, tasks))(*carry, keys, self._variation)
                return (parameters, optimiser), values

            (parameters, optimiser), values = jax.lax.scan(body, (parameters, optimiser), steps)
            return parameters, optimiser, values

        return run_on_mesh(scan, mesh, PartitionSpec())(parameters, optimiser, tasks, steps)


def shape_of_chunk(chunk: int, shapes: int) -> int:
    """Which shape of tasks a chunk of steps has: the last in every second, the one before in half of the others, ….

    Args:
        chunk: number of the chunk.
        shapes: number of shapes, the largest first.
    """
    halvings = ((chunk + 1) & -(chunk + 1)).bit_length() - 1
    return max(shapes - 1 - halvings, 0)


def variation(experiment: Experiment) -> Variation:
    """The hyperparameters of all variants. Those that agree stay plain numbers, compiled into the program."""
    variants = [
        Variation(eqx.filter(v.blank_model(), is_array, inverse=True), v.training.learning_rate)
        for v in experiment.variants
    ]
    seeds = len(experiment.training.seeds)

    def joined(*leaves: Any) -> Any:
        return leaves[0] if len(set(leaves)) == 1 else jnp.repeat(jnp.asarray(leaves, float), seeds)

    return jax.tree.map(joined, *variants)


def _for_each_model(function: Callable) -> Callable:
    """`eqx.filter_vmap`, except for a single model: matrix products with a batch axis of 1 use slower kernels."""

    def mapped(*arguments: PyTree) -> PyTree:
        if len(jax.tree.leaves(arguments)[0]) > 1:
            return eqx.filter_vmap(function)(*arguments)
        results = function(*jax.tree.map(lambda a: a[0] if is_array(a) else a, arguments))
        return jax.tree.map(lambda a: a[None], results)

    return mapped


def ravel(model: PyTree) -> Float[Array, " p"]:
    """All parameters of a model, or its gradient, as one vector."""
    return ravel_pytree(eqx.filter(model, is_array))[0]


def _keys(seed: int) -> tuple[Array, Array]:
    """The key of the initial weights and that of the training tasks."""
    weights, tasks = jax.random.split(jax.random.key(seed))
    return weights, tasks
