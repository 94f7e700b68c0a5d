"""Logistic regression on the context: the baseline that needs no other tasks."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Categorical, CrossEntropy
from ..model.task import Points


class LinearClassifier(eqx.Module):
    """logits = x W + b."""

    weights: Float[Array, "dx k"]
    bias: Float[Array, " k"]
    classes: Bool[Array, " k"]


class LogisticRegression(Learner):
    """The W and b that minimise C Σᵢ ℓ(xᵢ W + b, yᵢ) + ‖W‖²/2; only C is learned from other tasks.

    Args:
        likelihood: the cross-entropy ℓ.
        c: initial C.
        steps: steps of accelerated gradient descent (Nesterov, 1983).
    """

    log_c: Float[Array, ""]
    likelihood: CrossEntropy
    steps: int = eqx.field(static=True)

    def __init__(self, likelihood: CrossEntropy, *, c: float, steps: int):
        self.likelihood, self.steps = likelihood, steps
        self.log_c = jnp.log(c)

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> LinearClassifier:
        x, classes, c = jnp.where(context.mask[:, None], context.x, 0), context.classes, jnp.exp(self.log_c)

        def objective(weights: Array, bias: Array) -> Array:
            losses = self.likelihood.loss(self.likelihood(x @ weights + bias, classes), context.y)
            return c * jnp.where(context.mask, losses, 0).sum() + jnp.square(weights).sum() / 2

        # 1/rate bounds the curvature: ½ for the softmax, over x and the bias, and 1 for the penalty.
        rate = 1 / (c * (jnp.square(x).sum() + context.mask.sum()) / 2 + 1)

        def step(state: tuple, t: Array) -> tuple[tuple, None]:
            here, ahead = state
            gradient = jax.grad(objective, argnums=(0, 1))(*ahead)
            there = jax.tree.map(lambda p, g: p - rate * g, ahead, gradient)
            ahead = jax.tree.map(lambda new, old: new + t / (t + 3) * (new - old), there, here)
            return (there, ahead), None

        start = (jnp.zeros((x.shape[1], len(classes))), jnp.zeros(len(classes)))
        ((weights, bias), _), _ = jax.lax.scan(step, (start, start), jnp.arange(self.steps))
        return LinearClassifier(weights, bias, classes)

    def predict(
        self, representation: LinearClassifier, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Categorical:
        return self.likelihood(x @ representation.weights + representation.bias, representation.classes)
