"""The exact prediction for curves from a Gaussian process whose hyperparameters are not known."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.likelihoods import Normal
from ..model.task import Points
from ..tasks.curves import CurveTasks
from ..tasks.gp import GaussianProcess

# Draws of the hyperparameters. Those with the most evidence are kept; the others hardly change the picture.
DRAWS, KEPT = 256, 48


def processes(tasks: CurveTasks) -> GaussianProcess:
    """Processes whose hyperparameters are drawn as for training, along a leading axis; the same in every call."""
    return jax.vmap(tasks.training().process)(jax.random.split(jax.random.key(0), DRAWS))


def exact_prediction(tasks: CurveTasks) -> Callable[[Points, Float[Array, "m 1"]], Normal]:
    """Σₕ P(h|context) P(y|x, context, h), with hyperparameters h drawn from the distribution that the tasks have.

    The result is a function of context and x, which gives the mean and standard deviation of that mixture.

    Args:
        tasks: the source of the curves.
    """
    drawn = processes(tasks)

    def predict(context: Points, x: Float[Array, "m 1"]) -> Normal:
        evidence, kept = jax.lax.top_k(jax.vmap(lambda process: process.log_prob(context))(drawn), KEPT)
        each = jax.vmap(lambda process: process.predict(context, x))(jax.tree.map(lambda a: a[kept], drawn))
        weight = jax.nn.softmax(evidence)[:, None, None]
        mean = (weight * each.mean).sum(0)
        return Normal(mean, jnp.sqrt((weight * (each.std**2 + (each.mean - mean) ** 2)).sum(0)))

    return predict
