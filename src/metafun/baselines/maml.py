"""MAML (Finn et al., 2017) and Meta-SGD (Li et al., 2017): learn where gradient descent on the context begins."""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..learner import Learner
from ..likelihoods import Likelihood, Prediction, SquaredError, masked_mean
from ..nn import MLP
from ..task import Points, Task


class Adapted(eqx.Module):
    """θ, where gradient descent on the context came to: all that is known of a task."""

    network: MLP
    context: Points
    classes: Bool[Array, " k"] | None


class MAML(Learner):
    """θₜ₊₁ = θₜ − η ∇L(θₜ) on the context, from a θ₀ and, in Meta-SGD, with rates η that are learned.

    `steps` updates in training and `test_steps` otherwise. In classification the last layer has one column, from
    which every class starts: no parameter depends on the number of classes, and their order does not matter. The
    derivative of θ_T goes through the updates, unless it is `first_order`, which takes ∇L for a constant.
    """

    network: MLP
    rates: MLP | None
    likelihood: Likelihood
    rate: float = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    test_steps: int = eqx.field(static=True)
    first_order: bool = eqx.field(static=True)
    adapts_parameters: ClassVar[bool] = True

    def __init__(
        self,
        network: MLP,
        likelihood: Likelihood,
        *,
        rate: float,
        learn_rates: bool,
        steps: int,
        test_steps: int,
        first_order: bool,
    ):
        self.network, self.likelihood, self.rate = network, likelihood, rate
        self.rates = jax.tree.map(lambda p: jnp.full_like(p, rate), network) if learn_rates else None
        self.steps, self.test_steps, self.first_order = steps, test_steps, first_order

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Adapted:
        """The θₜ that does best on the context: in one task of some thousands, descent overshoots and never returns."""
        first, step, loss = self._descent(context)

        def keep_best(carry: tuple[MLP, MLP, Array], _: None) -> tuple[tuple[MLP, MLP, Array], None]:
            network, best, least = carry
            network = step(network)
            value = loss(network)
            best = jax.tree.map(lambda new, old: jnp.where(value < least, new, old), network, best)
            return (network, best, jnp.fmin(value, least)), None

        (_, best, _), _ = jax.lax.scan(keep_best, (first, first, loss(first)), length=self.test_steps)
        return Adapted(best, context, self.likelihood.classes(context))

    def predict(self, representation: Adapted, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Prediction:
        return self._predict(representation.network, x, representation.classes)

    def predict_trajectory(self, representation: Adapted, x: Float[Array, "m dx"]) -> Prediction:
        """What would be predicted after t = 0, …, T updates, along a leading axis."""
        first, step, _ = self._descent(representation.context)
        last, before = jax.lax.scan(
            lambda network, _: (step(network), self._raw(network, x)), first, length=self.test_steps
        )
        raw = jnp.concatenate([before, self._raw(last, x)[None]])
        return self.likelihood(raw, representation.classes)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The mean loss of the targets after `steps` updates."""
        first, step, _ = self._descent(task.context)
        last, _ = jax.lax.scan(lambda network, _: (step(network), None), first, length=self.steps)
        return self.target_loss(Adapted(last, task.context, self.likelihood.classes(task.context)), task.target)

    def _descent(self, context: Points) -> tuple[MLP, Callable[[MLP], MLP], Callable[[MLP], Float[Array, ""]]]:
        """θ₀, the step θₜ ↦ θₜ₊₁, and L."""
        classes = self.likelihood.classes(context)

        def loss(network: MLP) -> Float[Array, ""]:
            losses = self.likelihood.loss(self._predict(network, context.x, classes), context.y)
            return masked_mean(losses, context.mask)

        def step(network: MLP) -> MLP:
            gradient = jax.grad(loss)(network)
            if self.first_order:
                gradient = jax.lax.stop_gradient(gradient)
            if self.rates is None:
                return jax.tree.map(lambda p, g: p - self.rate * g, network, gradient)
            return jax.tree.map(lambda p, g, r: p - r * g, network, gradient, self.rates)

        return self._begin(classes), step, loss

    def _begin(self, classes: Bool[Array, " k"] | None) -> MLP:
        """θ₀, with as many columns in the last layer as the task has classes."""
        if classes is None:
            return self.network
        columns = [jnp.repeat(p, len(classes), -1) for p in _last_layer(self.network)]
        return eqx.tree_at(_last_layer, self.network, columns)

    def _predict(self, network: MLP, x: Float[Array, "m dx"], classes: Bool[Array, " k"] | None) -> Prediction:
        return self.likelihood(self._raw(network, x), classes)

    def _raw(self, network: MLP, x: Float[Array, "m dx"]) -> Float[Array, "m out"]:
        y = network(x)
        # A network that is judged by the squared error says nothing of a deviation.
        return jnp.concatenate([y, jnp.zeros_like(y)], -1) if isinstance(self.likelihood, SquaredError) else y


def _last_layer(network: MLP) -> tuple[Array, Array]:
    return network.weights[-1], network.biases[-1]
