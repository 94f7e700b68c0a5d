"""Stochastic functional representations: a latent z beside r(·), to draw whole functions (Section 5 a).

Neural processes are special cases. With one update, pooled by attention: attentive neural processes (Kim et al., 2019).
Pooled by the mean: neural processes with a deterministic path. Without updates: those of Garnelo et al. (2018).
In classification each class has its own z, as it has its own r.
"""

import math
from abc import abstractmethod
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .learner import Learner
from .likelihoods import Categorical, Likelihood, Normal, Prediction, masked_mean
from .metafun import FunctionalRepresentation, MetaFun
from .nn import MLP
from .task import Points, Task, join


class ClasswiseNormal(eqx.Module):
    """q(z¹, …, zᴷ) = Πₖ 𝒩(zᵏ; μᵏ, σᵏ²) over the classes of a task.

    Args:
        normal: μᵏ and σᵏ of each class, padding included.
        classes: which of them the task has; the others do not count.
    """

    normal: Normal
    classes: Bool[Array, " k"]

    @property
    def mean(self) -> Float[Array, "k dz"]:
        return self.normal.mean

    def log_prob(self, z: Float[Array, "k dz"]) -> Float[Array, ""]:
        return jnp.where(self.classes, self.normal.log_prob(z), 0).sum()

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count k dz"]:
        # A key for each class: padded classes must not change the draws of the others.
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(len(self.classes)))
        return jax.vmap(lambda normal, key: normal.sample(key, count), out_axes=1)(self.normal, keys)

    def divergence(self, other: "ClasswiseNormal") -> Float[Array, ""]:
        """KL(self ‖ other)."""
        return jnp.where(self.classes, self.normal.divergence(other.normal), 0).sum()


class Latent(eqx.Module):
    """q(z|points), the distribution of the latent given labelled points and r at them."""

    @abstractmethod
    def __call__(self, points: Points, r: Float[Array, "n *k dr"], classes: Any) -> Any:
        """q(z|points).

        Args:
            points: the context, or context and target.
            r: r(xᵢ), in classification a part for each of the k classes.
            classes: the classes of the task; None in regression.
        """


class GlobalLatent(Latent):
    """q(z|points) = 𝒩(μ, σ²) with (μ, s) an MLP of the mean of MLP([xᵢ, yᵢ, r(xᵢ)]) over the points.

    Args:
        each: network on a point, from dim(x) + dim(y) + dim(r).
        pooled: network on the mean over points, to 2·dim(z).
    """

    each: MLP
    pooled: MLP

    def __call__(self, points: Points, r: Float[Array, "n dr"], classes: None) -> Normal:
        mean = masked_mean(self.each(jnp.concatenate([points.x, points.y, r], axis=-1)), points.mask)
        return _normal(self.pooled(mean))


class ClasswiseLatent(Latent):
    """q(zᵏ|points) = 𝒩(μᵏ, σᵏ²) for each class, with (μᵏ, sᵏ) an MLP of [eᵏ, ē].

    eᵏ is the mean of MLP([xᵢ, rᵏ(xᵢ)]) over the points of class k, and ē the mean of eᵏ over the classes of the task.
    No parameter belongs to a class, so classes may be of any number and in any order.

    Args:
        each: network on a point, from dim(x) + dim(r).
        pooled: network on [eᵏ, ē], to 2·dim(z).
    """

    each: MLP
    pooled: MLP

    def __call__(self, points: Points, r: Float[Array, "n k dr"], classes: Bool[Array, " k"]) -> ClasswiseNormal:
        y = jnp.where(points.mask[:, None], points.y, 0)
        r_of_label = jnp.einsum("nk,nkd->nd", y, r)
        each = self.each(jnp.concatenate([points.x, r_of_label], axis=-1))
        e = y.T @ each / jnp.maximum(y.sum(0), 1)[:, None]
        mean = jnp.broadcast_to(masked_mean(e, classes), e.shape)
        return ClasswiseNormal(_normal(self.pooled(jnp.concatenate([e, mean], axis=-1))), classes)


def _normal(raw: Float[Array, "*k two_dz"]) -> Normal:
    """𝒩(μ, σ²) from (μ, s) with σ = 0.1 + 0.9 sigmoid(s − 3).

    The shift by −3 keeps σ small at first: a decoder learns to ignore a z that is mostly noise.
    """
    mu, s = jnp.split(raw, 2, axis=-1)
    return Normal(mu, 0.1 + 0.9 * jax.nn.sigmoid(s - 3))


class StochasticRepresentation(eqx.Module):
    """A distribution over functions [z, r(·)]: `function` is r, `latent` is q(z|context)."""

    function: FunctionalRepresentation
    latent: Normal | ClasswiseNormal


class StochasticMetaFun(Learner):
    """MetaFun whose decoder sees [z, r(x)] with z ∼ q(z|context): each z is a function.

    Trained by the evidence lower bound with q(z|context, target) as the posterior and q(z|context) as the prior.

    Args:
        metafun: the deterministic path, with a decoder for [z, r(x)].
        latent: q.
        likelihood: the predictive distribution given z.
        samples: number of draws of z that a prediction mixes.
    """

    metafun: MetaFun
    latent: Latent
    likelihood: Likelihood
    samples: int = eqx.field(static=True)

    @property
    def is_for_any_classes(self) -> bool:
        return self.metafun.is_for_any_classes

    def weighing(self, weight: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda model: model.metafun, self, self.metafun.weighing(weight))

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> StochasticRepresentation:
        function = self.metafun.encode(context, key)
        return StochasticRepresentation(function, self._latent_given(context, function))

    def predict(
        self, representation: StochasticRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Prediction:
        """P(y|x) = 𝔼_z P(y|x, z); without a key, over the same draws of z at every call."""
        functions = self.functions(representation, x, jax.random.key(0) if key is None else key, self.samples)
        return self.likelihood.mixture(functions)

    def weights(self, representation: StochasticRepresentation, x: Float[Array, "m dx"]) -> Float[Array, "m n"] | None:
        return self.metafun.weights(representation.function, x)

    def functions(
        self, representation: StochasticRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray, count: int
    ) -> Normal | Categorical:
        """P(y|x, z) for several draws of z, along a leading axis; each is one function at all x.

        Args:
            representation: what `encode` returned.
            x: inputs.
            key: source of the draws.
            count: number of draws.
        """
        draws, r = representation.latent.sample(key, count), representation.function(x)
        raw = jax.vmap(lambda z: self.metafun.outputs(_beside(z, r), x, representation.function.means))(draws)
        return self.likelihood(raw, representation.function.classes)

    def peak_floats_per_task(self, task: Task) -> int:
        """[z, r(x)] for all draws of z at all targets, in addition to the peak of the updates."""

        def decoded(model: StochasticMetaFun, task: Task) -> Float[Array, "s m *k dzr"]:
            representation = model.encode(task.context)
            draws = representation.latent.sample(jax.random.key(0), model.samples)
            return jax.vmap(lambda z: _beside(z, representation.function(task.target.x)))(draws)

        return self.metafun.peak_floats_per_task(task) + self.metafun.size_for_all(decoded, self, task)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The negative evidence lower bound of the targets, divided by their number."""
        key_encode, key_predict = (None, None) if key is None else jax.random.split(jax.random.fold_in(key, 1))
        representation, posterior = self._infer(task, key_encode)
        z = posterior.mean if key is None else posterior.sample(key, 1)[0]
        loss = self.metafun.weighted_loss(task, lambda x: self._given(z, representation.function, x, key_predict))
        return loss + posterior.divergence(representation.latent) / jnp.maximum(task.target.mask.sum(), 1)

    def joint_log_prob(self, task: Task) -> Float[Array, ""]:
        """log 1/K Σₖ P(y|zₖ) q(zₖ|context)/q(zₖ|context, target), importance sampling with zₖ ∼ q(z|context, target).

        On average a lower bound, which tightens with K = `samples`.
        """
        representation, posterior = self._infer(task)

        def log_weight(z: Float[Array, "*k dz"]) -> Float[Array, ""]:
            points = self._given(z, representation.function, task.target.x).log_prob(task.target.y)
            given_z = jnp.where(task.target.mask, points, 0).sum()
            return given_z + representation.latent.log_prob(z) - posterior.log_prob(z)

        draws = posterior.sample(jax.random.key(0), self.samples)
        return jax.nn.logsumexp(jax.vmap(log_weight)(draws)) - math.log(self.samples)

    def _infer(self, task: Task, key: PRNGKeyArray | None = None) -> tuple[StochasticRepresentation, Any]:
        """The representation of the context, and q(z|context, target)."""
        representation, points = self.encode(task.context, key), join(task.context, task.target)
        return representation, self._latent_given(points, representation.function)

    def _latent_given(self, points: Points, function: FunctionalRepresentation) -> Any:
        """q(z|points)."""
        return self.latent(points, function(points.x), function.classes)

    def _given(
        self,
        z: Float[Array, "*k dz"],
        function: FunctionalRepresentation,
        x: Float[Array, "m dx"],
        key: PRNGKeyArray | None = None,
    ) -> Normal | Categorical:
        """P(y|x, z)."""
        return self.likelihood(
            self.metafun.outputs(_beside(z, function(x, key)), x, function.means, key), function.classes
        )


def _beside(z: Float[Array, "*k dz"], r: Float[Array, "m *k dr"]) -> Float[Array, "m *k dzr"]:
    """[z, r(x)] at each x."""
    return jnp.concatenate([jnp.broadcast_to(z, (*r.shape[:-1], z.shape[-1])), r], axis=-1)
