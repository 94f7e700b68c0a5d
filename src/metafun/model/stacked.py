"""Two cross-fitted models as one: MetaFun with its population, and a mixed model on a forest."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .learner import Learner
from .likelihoods import Likelihood, Mixture, Normal
from .mixed_process import ForestProcess
from .population import CONTEXT_SIZES, CrossFitted, CrossFittedRepresentation, context_size, select
from .process import ConditionedProcess
from .task import Points, Task


class Stack(eqx.Module):
    """P ∝ (P₁ʷ P₂¹⁻ʷ)^τ of two normals, with w and τ by the number of context points.

    The mean lies nearer to the surer of the two: μ = g μ₁ + (1 − g) μ₂ with g = w σ₁⁻²/(w σ₁⁻² + (1 − w) σ₂⁻²). The
    deviation σ = (w σ₁⁻² + (1 − w) σ₂⁻²)^(−½) becomes eˢ σ¹⁺ᵖ.

    Args:
        weight: w; with 1, the mean is that of P₁.
        log_scale: s.
        power: p.
    """

    weight: Float[Array, " sizes"]
    log_scale: Float[Array, " sizes"]
    power: Float[Array, ""]

    def __call__(self, first: Normal, second: Normal, points: Int[Array, ""]) -> Normal:
        """The combined prediction.

        Args:
            first: P₁.
            second: P₂.
            points: number of context points.
        """
        size = context_size(points)
        w = self.weight[size]
        # Ratios: the precision of a deviation of 1e-4 and its square are too far apart for float32.
        ratio = jnp.square(first.std / second.std)
        total = w + (1 - w) * ratio
        mean = w / total * first.mean + (1 - w) * ratio / total * second.mean
        log_std = jnp.log(first.std) - jnp.log(total) / 2
        return Normal(mean, jnp.exp(self.log_scale[size] + (1 + self.power) * log_std))


def first_alone() -> Stack:
    """The stack that gives the first prediction as it is."""
    none = jnp.zeros(len(CONTEXT_SIZES))
    return Stack(none + 1, none, jnp.zeros(()))


class StackedRepresentation(eqx.Module):
    """What both models make of a context; the second one with axes for member and output."""

    first: CrossFittedRepresentation
    second: ConditionedProcess


class Stacked(Learner):
    """P(y|x) = 1/K Σₖ Pₖ(y|x), Pₖ a `Stack` of two models that were not trained on fold k.

    The second is fitted after the first has been trained; training changes the first alone.

    Args:
        likelihood: the loss.
        first: MetaFun and its population.
        second: K mixed models as one, with a leading axis.
        stack: how the predictions are combined.
    """

    likelihood: Likelihood
    first: CrossFitted
    second: ForestProcess
    stack: Stack

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> StackedRepresentation:
        second = eqx.filter_vmap(lambda member: member.condition(context))(self.second)
        return StackedRepresentation(self.first.encode(context, key), second)

    def predict(
        self, representation: StackedRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Mixture:
        first = self.first.predict_each(representation.first, x, key)
        second = eqx.filter_vmap(lambda member, process: member.predict(process, x))(self.second, representation.second)
        return self.likelihood.mixture(self.stack(first, second, representation.first.points))

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        return self.first.loss(task, key)

    def held_out(self, task: Task) -> "Stacked":
        """The members that were not trained on the task; all of them where tasks have no folds."""
        if task.fold is None:
            return self
        return Stacked(self.likelihood, self.first.held_out(task), select(self.second, task.fold), self.stack)
