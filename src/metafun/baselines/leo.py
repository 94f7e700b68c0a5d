"""LEO (Rusu et al., 2019): gradient descent in a small latent space from which a classifier's weights are decoded."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Categorical, CrossEntropy, Normal, masked_mean
from ..model.nn import MLP, Number, dropout
from ..model.regularisers import Regulariser
from ..model.task import Points, Task

# The least standard deviation, as its authors have it.
LEAST = 1e-10
# Where features are few, the steps on z can lead so far that exp(s) would overflow; a σ of 150 is as good.
LARGEST_S = 5.0


class Classifier(eqx.Module):
    """logitₖ = x·wᵏ, after both inner loops."""

    weights: Float[Array, "k dx"]
    classes: Bool[Array, " k"]


class LatentDecoder(eqx.Module):
    """wᵏ ∼ 𝒩(μ, σ²) with (μ, s) a linear map of zᵏ; the σ of `deviation` starts near Glorot's scale."""

    linear: MLP

    def __call__(self, z: Float[Array, "k dz"]) -> Normal:
        mean, s = jnp.split(self.linear(z), 2, axis=-1)
        return Normal(mean, deviation(s, math.sqrt(2 / (len(z) + mean.shape[-1]))))


class LEO(Learner):
    """z from the context, then gradient steps on z, then gradient steps on the weights decoded from it.

    The encoder compares all pairs of points (`relation`), which gives each class a distribution over z. In training z
    and the weights are drawn, otherwise they are the means. `weight_kl` and `weight_stay` are β and γ of the loss.
    """

    encoder: MLP
    relation: MLP
    decode: LatentDecoder
    latent_rate: Float[Array, " dz"]
    weight_rate: Float[Array, " dx"]
    likelihood: CrossEntropy
    latent_steps: int = eqx.field(static=True)
    weight_steps: int = eqx.field(static=True)
    dropout: Number
    weight_kl: Number
    weight_stay: Number
    regularisers: tuple[Regulariser, ...]

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Classifier:
        return self._adapt(context, key)[0]

    def predict(
        self, representation: Classifier, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Categorical:
        return self.likelihood(dropout(x, self.dropout, key) @ representation.weights.T, representation.classes)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """ℓ(target) + β KL(q(z) ‖ 𝒩(0, 1)) + γ ‖stop(z') − z‖² + penalties, z' being z after its steps."""
        key_encode, key_predict = (None, None) if key is None else jax.random.split(key)
        classifier, latent, first, last = self._adapt(task.context, key_encode)
        loss = self.target_loss(classifier, task.target, key_predict)
        prior = Normal(jnp.zeros_like(latent.mean), jnp.ones_like(latent.std))
        # Means over the classes of the task and over the entries of z.
        divergence = masked_mean(latent.divergence(prior), classifier.classes) / first.shape[-1]
        stay = masked_mean(jnp.square(jax.lax.stop_gradient(last) - first).mean(-1), classifier.classes)
        penalties = sum(regulariser(self) for regulariser in self.regularisers)
        return loss + self.weight_kl * divergence + self.weight_stay * stay + penalties

    def latents(self, context: Points, key: PRNGKeyArray | None = None) -> Normal:
        """q(zᵏ|context): what the pairs say, averaged over partners and then over the points of the class."""
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
            """The sum over the classes of the mean loss of a class, where all have equally many points."""
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
    """max(exp(s) − (1 − offset), 1e-10): at s = 0 it is the offset."""
    return jnp.maximum(jnp.exp(jnp.minimum(s, LARGEST_S)) - (1 - offset), LEAST)


def _draw(normal: Normal, points: Float[Array, " k"], key: PRNGKeyArray | None) -> Float[Array, "k d"]:
    """The mean of as many draws as a class has points, or the mean itself without a key."""
    if key is None:
        return normal.mean
    return Normal(normal.mean, normal.std / jnp.sqrt(jnp.maximum(points, 1))[:, None]).sample(key, 1)[0]
