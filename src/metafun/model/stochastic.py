"""Stochastic functional representations: a latent z beside r(·), to draw whole functions (Section 5 a).

Neural processes are special cases. With one update, pooled by attention: attentive neural processes (Kim et al., 2019).
Pooled by the mean: neural processes with a deterministic path. Without updates: those of Garnelo et al. (2018).
"""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .learner import Learner
from .likelihoods import Likelihood, Mixture, Normal, masked_mean
from .metafun import FunctionalRepresentation, MetaFun
from .nn import MLP
from .task import Points, Task, join


class Latent(eqx.Module):
    """q(z|points) = 𝒩(μ, σ²) with (μ, s) an MLP of the mean of MLP([xᵢ, yᵢ, r(xᵢ)]), and σ = 0.1 + 0.9 sigmoid(s − 3).

    The shift by −3 keeps σ small at first: a decoder learns to ignore a z that is mostly noise.

    Args:
        each: network on a point, from dim(x) + dim(y) + dim(r).
        pooled: network on the mean over points, to 2·dim(z).
    """

    each: MLP
    pooled: MLP

    def __call__(self, points: Points, r: Float[Array, "n dr"]) -> Normal:
        mean = masked_mean(self.each(jnp.concatenate([points.x, points.y, r], axis=-1)), points.mask)
        mu, s = jnp.split(self.pooled(mean), 2)
        return Normal(mu, 0.1 + 0.9 * jax.nn.sigmoid(s - 3))


class StochasticRepresentation(eqx.Module):
    """A distribution over functions [z, r(·)]: `function` is r, `latent` is q(z|context)."""

    function: FunctionalRepresentation
    latent: Normal


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

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> StochasticRepresentation:
        function = self.metafun.encode(context, key)
        return StochasticRepresentation(function, self.latent(context, function(context.x)))

    def predict(
        self, representation: StochasticRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Mixture:
        """P(y|x) = 𝔼_z P(y|x, z); without a key, over the same draws of z at every call."""
        return Mixture(self.functions(representation, x, jax.random.key(0) if key is None else key, self.samples))

    def predict_trajectory(self, representation: StochasticRepresentation, x: Float[Array, "m dx"]) -> Normal:
        """The final prediction alone, as a normal with the moments of the mixture."""
        prediction = self.predict(representation, x)
        return Normal(prediction.mean[None], prediction.std[None])

    def weights(self, representation: StochasticRepresentation, x: Float[Array, "m dx"]) -> Float[Array, "m n"] | None:
        return self.metafun.weights(representation.function, x)

    def functions(
        self, representation: StochasticRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray, count: int
    ) -> Normal:
        """P(y|x, z) for several draws of z, along a leading axis; each is one function at all x.

        Args:
            representation: what `encode` returned.
            x: inputs.
            key: source of the draws.
            count: number of draws.
        """
        draws = representation.latent.sample(key, count)
        return jax.vmap(lambda z: self._given(z, representation.function, x))(draws)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The negative evidence lower bound of the targets, divided by their number."""
        representation, posterior = self._infer(task)
        z = posterior.mean if key is None else posterior.sample(key, 1)[0]
        loss = self.metafun.weighted_loss(task, lambda x: self._given(z, representation.function, x))
        return loss + posterior.divergence(representation.latent) / jnp.maximum(task.target.mask.sum(), 1)

    def joint_log_prob(self, task: Task) -> Float[Array, ""]:
        """log 1/K Σₖ P(y|zₖ) q(zₖ|context)/q(zₖ|context, target), importance sampling with zₖ ∼ q(z|context, target).

        On average a lower bound, which tightens with K = `samples`.
        """
        representation, posterior = self._infer(task)

        def log_weight(z: Float[Array, " dz"]) -> Float[Array, ""]:
            points = self._given(z, representation.function, task.target.x).log_prob(task.target.y)
            given_z = jnp.where(task.target.mask, points, 0).sum()
            return given_z + representation.latent.log_prob(z) - posterior.log_prob(z)

        draws = posterior.sample(jax.random.key(0), self.samples)
        return jax.nn.logsumexp(jax.vmap(log_weight)(draws)) - math.log(self.samples)

    def _infer(self, task: Task) -> tuple[StochasticRepresentation, Normal]:
        """The representation of the context, and q(z|context, target)."""
        representation, points = self.encode(task.context), join(task.context, task.target)
        return representation, self.latent(points, representation.function(points.x))

    def _given(self, z: Float[Array, " dz"], function: FunctionalRepresentation, x: Float[Array, "m dx"]) -> Normal:
        """P(y|x, z)."""
        z_and_r = jnp.concatenate([jnp.tile(z, (x.shape[0], 1)), function(x)], axis=-1)
        return self.likelihood(self.metafun.decode(z_and_r, x), None)
