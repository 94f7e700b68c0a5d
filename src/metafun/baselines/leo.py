"""LEO (Rusu et al., 2019): gradient descent in a small latent space from which a classifier's weights are decoded."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Categorical, CrossEntropy, Normal, masked_mean
from ..model.nn import MLP, Hyperparameter, dropout
from ..model.regularisers import Regulariser
from ..model.task import Points, Task

# The least standard deviation, as in its authors' program.
MIN_STD = 1e-10
# With few features, the steps on z can be so large that exp(s) overflows. Here σ is about 150.
MAX_S = 5.0


class Classifier(eqx.Module):
    """logitₖ = x·wᵏ, after both inner loops."""

    weights: Float[Array, "k dx"]
    classes: Bool[Array, " k"]


class LatentDecoder(eqx.Module):
    """wᵏ ∼ 𝒩(μ, σ²) with (μ, s) a linear map of zᵏ; σ starts near Glorot's scale."""

    linear: MLP

    def __call__(self, z: Float[Array, "k dz"]) -> Normal:
        mean, s = jnp.split(self.linear(z), 2, axis=-1)
        return Normal(mean, deviation(s, math.sqrt(2 / (len(z) + mean.shape[-1]))))


class LEO(Learner):
    """Encodes z from the context, takes gradient steps on z, then gradient steps on the weights decoded from z.

    In training z and the weights are drawn; otherwise they are the means.

    Args:
        encoder: linear map of x, before pairs of points are compared.
        relation: network on a pair of points; its mean over pairs gives each class a distribution over z.
        decode: from z to the weights of a class.
        latent_rate: step size on each entry of z, trainable.
        weight_rate: step size on each entry of the weights, trainable.
        likelihood: the cross-entropy.
        latent_steps: number of steps on z.
        weight_steps: number of steps on the weights.
        dropout: rate of the dropout on x in training.
        weight_kl: β, weight of the divergence of q(z) from 𝒩(0, 1).
        weight_encoder: γ, weight of the distance from the encoded z to the adapted one.
        regularisers: penalties on the weights.
    """

    encoder: MLP
    relation: MLP
    decode: LatentDecoder
    latent_rate: Float[Array, " dz"]
    weight_rate: Float[Array, " dx"]
    likelihood: CrossEntropy
    latent_steps: int = eqx.field(static=True)
    weight_steps: int = eqx.field(static=True)
    dropout: Hyperparameter
    weight_kl: Hyperparameter
    weight_encoder: Hyperparameter
    regularisers: tuple[Regulariser, ...]

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Classifier:
        return self._adapt(context, key)[0]

    def predict(
        self, representation: Classifier, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Categorical:
        return self.likelihood(dropout(x, self.dropout, key) @ representation.weights.T, representation.classes)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """ℓ(target) + β KL(q(z) ‖ 𝒩(0, 1)) + γ ‖stop(z') − z‖² + penalties, with z' the z after its steps."""
        key_encode, key_predict = (None, None) if key is None else jax.random.split(key)
        classifier, latent, first, last = self._adapt(task.context, key_encode)
        loss = self.target_loss(classifier, task.target, key_predict)
        prior = Normal(jnp.zeros_like(latent.mean), jnp.ones_like(latent.std))
        # Means over the classes of the task and over the entries of z.
        divergence = masked_mean(latent.divergence(prior), classifier.classes) / first.shape[-1]
        distance = masked_mean(jnp.square(jax.lax.stop_gradient(last) - first).mean(-1), classifier.classes)
        penalties = sum(regulariser(self) for regulariser in self.regularisers)
        return loss + self.weight_kl * divergence + self.weight_encoder * distance + penalties

    def latents(self, context: Points, key: PRNGKeyArray | None = None) -> Normal:
        """q(zᵏ|context): the relation of each pair, averaged over partners and then over the points of the class."""
        h = self.encoder(dropout(context.x, self.dropout, key))
        square = (len(h), *h.shape)
        pairs = jnp.concatenate([jnp.broadcast_to(h[:, None], square), jnp.broadcast_to(h, square)], axis=-1)
        points = jax.vmap(lambda related: masked_mean(related, context.mask))(self.relation(pairs))
        labels = jnp.where(context.mask[:, None], context.y, 0)
        mean, s = jnp.split(labels.T @ points / jnp.maximum(labels.sum(0), 1)[:, None], 2, axis=-1)
        return Normal(mean, deviation(s, 0.0))

    def _adapt(
        self, context: Points, key: PRNGKeyArray | None
    ) -> tuple[Classifier, Normal, Float[Array, "k dz"], Float[Array, "k dz"]]:
        """The classifier, q(z), and z before and after its steps."""
        keys = [None] * 4 if key is None else jax.random.split(key, 4)
        latent = self.latents(context, keys[0])
        points = jnp.where(context.mask[:, None], context.y, 0).sum(0)
        first = z = _draw(latent, points, keys[1])

        def loss(w: Float[Array, "k dx"], t: int) -> Float[Array, ""]:
            """The mean loss times the number of classes: with balanced classes, the sum of their mean losses."""
            noise = None if keys[2] is None else jax.random.fold_in(keys[2], t)
            prediction = self.predict(Classifier(w, context.classes), context.x, noise)
            return context.classes.sum() * masked_mean(self.likelihood.loss(prediction, context.y), context.mask)

        def weights(z: Float[Array, "k dz"], t: int) -> Float[Array, "k dx"]:
            return _draw(self.decode(z), points, None if keys[3] is None else jax.random.fold_in(keys[3], t))

        for t in range(self.latent_steps):
            z = z - self.latent_rate * jax.grad(lambda z, t=t: loss(weights(z, t), t))(z)
        w = weights(z, self.latent_steps)
        for t in range(self.latent_steps, self.latent_steps + self.weight_steps):
            w = w - self.weight_rate * jax.grad(loss)(w, t)
        return Classifier(w, context.classes), latent, first, z


def deviation(s: Float[Array, "k d"], offset: float) -> Float[Array, "k d"]:
    """σ = max(exp(s) − (1 − offset), 1e-10), which is `offset` at s = 0."""
    return jnp.maximum(jnp.exp(jnp.minimum(s, MAX_S)) - (1 - offset), MIN_STD)


def _draw(normal: Normal, points: Float[Array, " k"], key: PRNGKeyArray | None) -> Float[Array, "k d"]:
    """For each class, the mean of as many draws as it has points; without a key, the mean of the distribution."""
    if key is None:
        return normal.mean
    return Normal(normal.mean, normal.std / jnp.sqrt(jnp.maximum(points, 1))[:, None]).sample(key, 1)[0]
