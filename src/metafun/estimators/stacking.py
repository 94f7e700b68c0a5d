"""What is fitted beside a trained model of tasks: forests, mixed processes, and the share of each model."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestRegressor

from ..config import Experiment, with_changes
from ..model.forest import Forest, as_forest
from ..model.likelihoods import Normal, masked_mean
from ..model.mixed_process import ForestProcess, MixedProcess, with_intercept
from ..model.population import CONTEXT_SIZES, CrossFitted, select
from ..model.stacked import Stack, Stacked
from ..model.task import Points, Task
from ..model.whitening import whiten
from ..schema import flatten, to_table
from ..tasks.collected import Collected
from ..training.programs import keep_programs
from .trained import Trained

Result = TypeVar("Result")

# Rows that a forest is fitted to, and leaves of a tree: so that it is small and takes seconds.
MAX_ROWS, MAX_LEAVES = 8000, 256
# Tasks and points of a task that the mixed processes are fitted to: they have few parameters.
MAX_TASKS, MAX_POINTS = 100, 20
# Predictions of held-out tasks that decide how much each model counts.
DRAWS = 600
# Bounds on the logarithms of all parameters of a process.
LEAST_LOG, MOST_LOG = -6.0, 3.0


class FoldedTasks(eqx.Module):
    """Tasks with what the forests say of their rows.

    Args:
        tasks: the tasks; their inputs are (x, F(x)), F the forest that has not seen the task, for each output.
        dx: dim(x).
    """

    tasks: Collected
    dx: int = eqx.field(static=True)

    @property
    def left_out(self) -> NDArray:
        """The fold of each task."""
        return np.arange(len(self.tasks.counts)) % self.tasks.folds

    def columns(self, x: Float[Any, "*n columns"], output: int) -> Float[Any, "*n dx_and_one"]:
        """(x, F(x)) for one output."""
        return x[..., [*range(self.dx), self.dx + output]]


def trees_of(experiment: Experiment) -> int:
    """Trees of each forest that the settings ask for beside the members of a cross-fitted model; 0 for none."""
    settings = flatten(to_table(experiment.config))
    return settings.get("model.population.trees", 0) if settings.get("tasks.folds") else 0


def stack(trained: Trained, seed: int) -> tuple[Trained, float]:
    """The trained model beside a mixed model on a forest, and the mean squared error on held-out tasks.

    Args:
        trained: a cross-fitted model whose settings ask for trees.
        seed: seed of the forests and of the draws.
    """
    keep_programs()
    experiment, network = trained.experiment, cast(CrossFitted, trained.model)
    tasks = cast(Collected, experiment.tasks.training())
    forests, folded = fit_forests(tasks, trees_of(experiment), seed)
    processes = fit_processes(folded, seed)
    draws = held_out_predictions(network, processes, folded, seed)
    found = fit_stack(*draws, len(tasks.counts))
    model = Stacked(network.likelihood, network, ForestProcess(forests, processes), found)
    config = with_changes(experiment.config, {"model.population.nodes": int(forests.value.shape[-2])})
    first, second, task = draws
    mean = jax.vmap(found)(first, second, task.context.mask.sum(1)).mean
    error = jax.vmap(masked_mean)(jnp.square(mean - task.target.y).mean(-1), task.target.mask).mean()
    return replace(trained, experiment=Experiment(config), model=model), float(error)


def fit_forests(tasks: Collected, trees: int, seed: int) -> tuple[Forest, FoldedTasks]:
    """A forest for each fold of the tasks, fitted to the rows of the others, with a leading axis.

    Args:
        tasks: the tasks, with folds.
        trees: number of trees of each forest.
        seed: seed of the forests.
    """
    rows, counts, folds = np.asarray(tasks.rows), np.asarray(tasks.counts), tasks.folds
    x, y = np.split(rows, [rows.shape[1] - tasks.outputs], axis=1)
    fold = np.repeat(np.arange(len(counts)) % folds, counts)
    predicted, fitted = np.empty_like(y), []
    for k in range(folds):
        rng = np.random.default_rng((seed, k))
        chosen = rng.permutation(np.flatnonzero(fold != k))[:MAX_ROWS]
        forest = RandomForestRegressor(
            trees,
            min_samples_leaf=3,
            max_features=0.7,
            max_leaf_nodes=MAX_LEAVES,
            random_state=int(rng.integers(2**31)),
        ).fit(x[chosen], y[chosen] if tasks.outputs > 1 else y[chosen, 0])
        predicted[fold == k] = forest.predict(x[fold == k]).reshape(-1, tasks.outputs)
        fitted.extend(forest.estimators_)
    forests = as_forest(SimpleNamespace(estimators_=fitted)).grouped(folds)
    widened = jnp.asarray(np.concatenate([x, predicted, y], axis=1))
    return forests, FoldedTasks(eqx.tree_at(lambda t: t.rows, tasks, widened), x.shape[1])


def fit_processes(folded: FoldedTasks, seed: int) -> MixedProcess:
    """The most probable mixed process for each fold and output, given the tasks of the other folds.

    Args:
        folded: tasks, and what the forests say of them.
        seed: seed of the choice of tasks and points, where there are many.
    """
    chosen, x, y, mask = _some_points(folded.tasks, seed)
    learned = folded.left_out[chosen] != np.arange(folded.tasks.folds)[:, None]
    # The covariance of points that lie close together needs the precision.
    with jax.enable_x64(True):
        each = [
            _fit_process(folded.columns(x, output), y[..., output], mask, learned)
            for output in range(folded.tasks.outputs)
        ]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves, 1), jnp.float32), *each)


def _some_points(tasks: Collected, seed: int) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Indices of tasks [t]; inputs [t, n, dx], outputs [t, n, dy] and mask [t, n] of some points of each."""
    rng, rows = np.random.default_rng(seed), np.asarray(tasks.rows, float)
    starts, counts = np.asarray(tasks.starts), np.asarray(tasks.counts)
    chosen = rng.permutation(len(counts))[:MAX_TASKS]
    size = min(MAX_POINTS, int(counts.max()))
    found, mask = np.zeros((len(chosen), size, rows.shape[1])), np.zeros((len(chosen), size), bool)
    for i, task in enumerate(chosen):
        some = starts[task] + rng.permutation(counts[task])[:size]
        found[i, : len(some)], mask[i, : len(some)] = rows[some], True
    columns = rows.shape[1] - tasks.outputs
    return chosen, found[..., :columns], found[..., columns:], mask


def _fit_process(x: NDArray, y: NDArray, mask: NDArray, learned: NDArray) -> MixedProcess:
    """Processes with a leading axis for the fold; `learned` [folds, t] says which tasks each is fitted to.

    Args:
        x: inputs [t, n, dx + 1].
        y: outputs [t, n].
        mask: False where a row is padding, [t, n].
        learned: which tasks are learned from, [folds, t].
    """
    centre, _ = _prior(x.shape[2])
    weights = jnp.asarray(learned, float)
    start = jax.tree.map(lambda a: jnp.broadcast_to(a, (len(weights), *a.shape)), centre)
    data = weights, *map(jnp.asarray, (x, y, mask))
    return jax.tree.map(np.asarray, _minimised(_process_loss, start, *data))


def _process_loss(processes: MixedProcess, *data: Array) -> tuple[Float[Array, ""], MixedProcess]:
    losses, with_trends = _with_trends(processes, *data)
    return losses.sum(), with_trends


@eqx.filter_jit
def _with_trends(
    processes: MixedProcess,
    weights: Float[Array, "folds t"],
    x: Float[Array, "t n dx"],
    y: Float[Array, "t n"],
    mask: Bool[Array, "t n"],
) -> tuple[Float[Array, " folds"], MixedProcess]:
    """−log P a row of y and of the parameters for each fold; and the processes with the β that is most probable."""
    centre, width = _prior(x.shape[2])

    def fold(process: MixedProcess, weight: Float[Array, " t"]) -> tuple[Float[Array, ""], MixedProcess]:
        distance = jax.tree.map(lambda a, b, c: jnp.square((a - b) / c).sum(), process, centre, width)
        process = eqx.tree_at(lambda p: p.fixed, process, jnp.zeros_like(process.fixed))
        A, b, rest = jax.vmap(_evidence, in_axes=(None, 0, 0, 0))(process, x, y, mask)
        # With the prior 𝒩(0, I) of β.
        W = whiten(jnp.tensordot(weight, A, 1) + jnp.eye(A.shape[1]))
        c = W @ (weight @ b)
        loss = weight @ rest - c @ c / 2 + jax.tree.reduce(jnp.add, distance) / 2
        return loss / mask.sum(), eqx.tree_at(lambda p: p.fixed, process, W.T @ c)

    return jax.vmap(fold)(processes, weights)


def _prior(columns: int) -> tuple[MixedProcess, MixedProcess]:
    """Centre and width of the normal prior of each parameter, for standardised inputs and outputs."""
    slopes = jnp.full(columns + 1, -1.5).at[0].set(-0.5)
    centre = MixedProcess(jnp.zeros(columns + 1), slopes, jnp.asarray(-1.0), jnp.zeros(columns - 1), jnp.asarray(-1.5))
    widths = zip(jax.tree.leaves(centre), (1.0, 1.5, 1.5, 1.0, 1.5), strict=True)
    return centre, jax.tree.unflatten(jax.tree.structure(centre), [jnp.full_like(a, width) for a, width in widths])


def _evidence(
    process: MixedProcess, x: Float[Array, "n dx"], y: Float[Array, " n"], mask: Array
) -> tuple[Array, Array, Array]:
    """Zᵀ K⁻¹ Z, Zᵀ K⁻¹ y and (yᵀ K⁻¹ y + log |K|)/2 of a task."""
    given = process.condition(x, y, mask)
    W = given.whitening
    a, b = W @ jnp.where(mask[:, None], with_intercept(x), 0.0), W @ given.residual
    return a.T @ a, a.T @ b, b @ b / 2 - jnp.log(jnp.diag(W)).sum()


def held_out_predictions(
    network: CrossFitted, processes: MixedProcess, folded: FoldedTasks, seed: int
) -> tuple[Normal, Normal, Task]:
    """What both models predict of tasks that they have not seen, and the tasks, with a leading axis.

    Args:
        network: the first model.
        processes: those of the second.
        folded: the tasks to draw from.
        seed: seed of the draws.
    """
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0), DRAWS)
    return _held_out(network, processes, folded, keys)


@eqx.filter_jit
def _held_out(
    network: CrossFitted, processes: MixedProcess, folded: FoldedTasks, keys: Array
) -> tuple[Normal, Normal, Task]:
    """What `held_out_predictions` returns, one entry for each key."""
    dx = folded.dx

    def simple(process: MixedProcess, x: Array, y: Array, mask: Array, at: Array) -> tuple[Array, Array]:
        return process.condition(x, y, mask)(at)[:2]

    def columns(x: Float[Array, "n columns"]) -> Float[Array, "dy n dx_and_one"]:
        return jnp.stack([folded.columns(x, output) for output in range(folded.tasks.outputs)])

    def both(key: PRNGKeyArray) -> tuple[Normal, Normal, Task]:
        task = folded.tasks.sample(key)
        c, t = task.context, task.target
        bare = Task(Points(c.x[:, :dx], c.y, c.mask), Points(t.x[:, :dx], t.y, t.mask), task.fold)
        member = network.held_out(bare)
        first = jax.tree.map(lambda a: a[0], member.predict_each(member.encode(bare.context), bare.target.x))
        alone = jax.tree.map(lambda a: a[0], select(processes, cast(Array, task.fold)))
        mean, std = jax.vmap(simple, in_axes=(0, 0, 1, None, 0))(alone, columns(c.x), c.y, c.mask, columns(t.x))
        return first, Normal(mean.T, std.T), bare

    # One after another: they take less time than compiling them for many at once.
    return jax.lax.map(both, keys)


def fit_stack(first: Normal, second: Normal, task: Task, count: int) -> Stack:
    """The most probable stack of held-out predictions; few tasks leave the weights near a half.

    Args:
        first: predictions of the first model, with a leading axis for the task.
        second: those of the second.
        task: the tasks.
        count: number of different tasks: draws of one task say little more than one of them.
    """
    none = jnp.zeros(len(CONTEXT_SIZES))
    start = {"logit": none, "scale": none, "power": jnp.zeros(())}
    return _minimised(_stack_loss, start, first, second, task, jnp.asarray(count))


def _stack_loss(
    p: dict[str, Array], first: Normal, second: Normal, task: Task, count: Int[Array, ""]
) -> tuple[Float[Array, ""], Stack]:
    """−log P a draw of the held-out targets and of the parameters, and the stack; arguments as in `fit_stack`."""
    stack = Stack(jax.nn.sigmoid(p["logit"]), p["scale"], p["power"])
    found = jax.vmap(stack)(first, second, task.context.mask.sum(1))
    each = jax.vmap(lambda normal, target: masked_mean(-normal.log_prob(target.y), target.mask))
    step = {name: jnp.square(jnp.diff(p[name])).sum() for name in ("logit", "scale")}
    prior = 0.3 * jnp.square(p["logit"].mean()) + step["logit"]
    prior += 2 * jnp.square(p["scale"]).sum() + 4 * step["scale"] + 4 * jnp.square(p["power"])
    return each(found, task.target).mean() + prior / count, stack


def _minimised(loss: Callable[..., tuple[Float[Array, ""], Result]], start: Any, *data: Any) -> Result:
    """The second result of `loss(parameters, *data)` where the first is least, by L-BFGS from `start`."""
    flat, unravel = ravel_pytree(start)

    def objective(p: NDArray) -> tuple[float, NDArray]:
        (value, _), gradient = _value_and_gradient(loss, unravel(jnp.asarray(p, flat.dtype)), *data)
        return float(value), np.asarray(ravel_pytree(gradient)[0], float)

    bounds, options = [(LEAST_LOG, MOST_LOG)] * flat.size, {"maxiter": 60}
    found = minimize(objective, np.asarray(flat, float), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return _value_and_gradient(loss, unravel(jnp.asarray(found.x, flat.dtype)), *data)[0][1]


@eqx.filter_jit
def _value_and_gradient(loss: Callable[..., Any], start: Any, *data: Any) -> tuple[tuple[Array, Any], Any]:
    return jax.value_and_grad(loss, has_aux=True)(start, *data)
