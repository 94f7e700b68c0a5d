"""A model run along its targets: what is predicted joins the context (Bruinsma et al., 2023).

P(y₁, …, yₘ|context) = Π_b P(y_b|context, y_1, …, y_{b−1}) over blocks b of targets; those of a block are independent.
So any model with a likelihood predicts whole functions, without a latent.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from .chains import Chain, chain
from .learner import Learner
from .likelihoods import Prediction
from .orders import Order, Random
from .task import Points, Task, join


class Blocks(eqx.Module):
    """Targets in blocks; a block that is not full is filled with rows that do not exist.

    Args:
        targets: rows of the targets, or their number where there is none.
        exist: False where there is none.
    """

    targets: Int[Array, "blocks b"]
    exist: Bool[Array, "blocks b"]


class Plan(eqx.Module):
    """How a model is run along its targets.

    Args:
        order: which targets come first.
        block: number of targets that are predicted at once, as independent; the time is divided by it.
    """

    order: Order = Random()
    block: int = eqx.field(static=True, default=1)

    def blocks(self, x: Float[Array, "m dx"], mask: Bool[Array, " m"], key: PRNGKeyArray) -> Blocks:
        """The targets in blocks, in order.

        Args:
            x: inputs of the targets.
            mask: False where a row is padding.
            key: source of a random order.
        """
        rows = self.order(x, mask, key)
        extra = -len(rows) % self.block
        targets = jnp.pad(jnp.where(mask[rows], rows, len(rows)), (0, extra), constant_values=len(rows))
        targets = targets.reshape(-1, self.block)
        return Blocks(targets, targets < len(rows))


def follow(
    chain: Chain, rows: Int[Array, "blocks b"], inputs: Any, choose: Callable[[Prediction, Any], tuple[Array, Array]]
) -> Any:
    """Runs along the blocks: predicts each, chooses its y, and adds it to what is known.

    Args:
        chain: the model.
        rows: rows of the blocks.
        inputs: what `choose` gets for each block, along a leading axis.
        choose: from the prediction of a block, its y and what to return of it.

    Returns:
        What `choose` returned of each block, along a leading axis.
    """

    def step(known: Any, block: tuple[Array, Any]) -> tuple[Any, Array]:
        here, given = block
        y, kept = choose(chain.predict(known, here), given)
        return chain.add(known, here, y), kept

    return jax.lax.scan(step, chain.initial(), (rows, inputs))[1]


def sample_paths(
    model: Learner,
    context: Points,
    x: Float[Array, "m dx"],
    key: PRNGKeyArray,
    count: int,
    plan: Plan | None = None,
    mask: Bool[Array, " m"] | None = None,
    most: int | None = None,
) -> Float[Array, "count m dy"]:
    """Outputs at all x, drawn in turn; in classification one-hot labels, of the classes in the context.

    Args:
        model: any model with a likelihood.
        context: the labelled points.
        x: inputs.
        key: source of the order and of the draws; all paths have the same order.
        count: number of paths.
        plan: order and blocks; by default a random order, one by one.
        mask: False where a row of x is padding; its outputs are 0.
        most: as in `Learner.for_context`; what is drawn counts too.
    """
    plan, mask = plan or Plan(), jnp.ones(len(x), bool) if mask is None else mask
    key_order, key_draws = jax.random.split(key)
    blocks, links = plan.blocks(x, mask, key_order), chain(model, context, x, mask, most)

    def draw(prediction: Any, key: PRNGKeyArray) -> tuple[Array, Array]:
        y = prediction.sample(key, 1)[0]
        return y, y

    def path(key: PRNGKeyArray) -> Float[Array, "m dy"]:
        keys = jax.random.split(key, len(blocks.targets))
        drawn = follow(links, len(context.mask) + blocks.targets, keys, draw)
        y = jnp.zeros((len(x), drawn.shape[-1]), drawn.dtype)
        return y.at[blocks.targets.ravel()].set(drawn.reshape(-1, drawn.shape[-1]), mode="drop")

    return jax.vmap(path)(jax.random.split(key_draws, count))


def sample_functions(
    model: Learner,
    context: Points,
    inputs: Float[Array, "s dx"],
    x: Float[Array, "m dx"],
    key: PRNGKeyArray,
    count: int,
    plan: Plan | None = None,
) -> Float[Array, "count m dy"]:
    """Functions at x: the predictive mean given the context and outputs drawn in turn at some inputs.

    Args:
        model: a model for regression.
        context: the labelled points.
        inputs: where outputs are drawn; dense enough to determine a function.
        x: where the functions are wanted.
        key, count, plan: as in `sample_paths`.
    """

    def mean_given(y: Float[Array, "s dy"]) -> Float[Array, "m dy"]:
        known = join(context, Points(inputs, y, jnp.ones(len(inputs), bool)))
        prediction: Any = model.predict(model.encode(known), x)
        return prediction.mean

    return jax.vmap(mean_given)(sample_paths(model, context, inputs, key, count, plan))


def joint_log_prob(model: Learner, task: Task, key: PRNGKeyArray, plan: Plan | None = None) -> Float[Array, ""]:
    """log P(y₁, …, yₘ|context), by the chain rule along an order of the targets.

    Args:
        model: any model with a likelihood.
        task: context and labelled targets.
        key: source of the order.
        plan: order and blocks; by default a random order, one by one.
    """
    target, plan = task.target, plan or Plan()
    blocks = plan.blocks(target.x, target.mask, key)

    def score(prediction: Prediction, block: Blocks) -> tuple[Array, Array]:
        y = target.y[block.targets]
        return y, jnp.where(block.exist, prediction.log_prob(y), 0).sum()

    links = chain(model, task.context, target.x, target.mask)
    return follow(links, len(task.context.mask) + blocks.targets, blocks, score).sum()
