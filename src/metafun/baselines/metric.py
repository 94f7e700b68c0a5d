"""Classification by nearness: prototypical (Snell et al., 2017) and matching networks (Vinyals et al., 2016)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Categorical, CrossEntropy
from ..model.nn import MLP
from ..model.task import Points


class Metric(Learner):
    """Points are compared by an embedding e(x), x itself where there is none, and a trained temperature."""

    embedding: MLP | None
    log_temperature: Float[Array, ""]
    likelihood: CrossEntropy
    cosine: bool = eqx.field(static=True)

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n d"]:
        return x if self.embedding is None else self.embedding(x)

    def nearness(self, x: Float[Array, "m d"], y: Float[Array, "n d"]) -> Float[Array, "m n"]:
        """cos(x, y)/τ or −‖x − y‖²/τ, of embedded points."""
        if self.cosine:
            found = _unit(x) @ _unit(y).T
        else:
            found = 2 * x @ y.T - jnp.square(x).sum(-1)[:, None] - jnp.square(y).sum(-1)
        return found * jnp.exp(-self.log_temperature)


class Centres(eqx.Module):
    """The mean embedding of each class."""

    means: Float[Array, "k d"]
    classes: Bool[Array, " k"]


class Prototypes(Metric):
    """The class of the nearest mean embedding. Without an embedding: nearest class mean."""

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Centres:
        labels = jnp.where(context.mask[:, None], context.y, 0)
        counts = jnp.maximum(labels.sum(0), 1)
        return Centres(labels.T @ self.embed(context.x) / counts[:, None], context.classes)

    def predict(self, representation: Centres, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Categorical:
        return self.likelihood(self.nearness(self.embed(x), representation.means), representation.classes)


class Examples(eqx.Module):
    """Every embedded point of the context, with its label."""

    keys: Float[Array, "n d"]
    context: Points


class Matching(Metric):
    """P(y = k|x) = Σᵢ softmaxᵢ(nearness of x and xᵢ) yᵢᵏ."""

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Examples:
        return Examples(self.embed(context.x), context)

    def predict(
        self, representation: Examples, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Categorical:
        context = representation.context
        near = self.nearness(self.embed(x), representation.keys)
        # log Σᵢ over the points of each class: the logits. A class without points is none of the task's.
        own = (context.y > 0).T & context.mask
        near = jnp.where(own, near[:, None], LEAST)
        # One more, so that there is something to sum where there is no context.
        logits = jax.nn.logsumexp(jnp.pad(near, ((0, 0), (0, 0), (0, 1)), constant_values=LEAST), axis=-1)
        return self.likelihood(logits, context.classes)

    def weights(self, representation: Examples, x: Float[Array, "m dx"]) -> Float[Array, "m n"]:
        near = self.nearness(self.embed(x), representation.keys)
        return jax.nn.softmax(jnp.where(representation.context.mask, near, LEAST), axis=-1)


# In place of −∞, whose derivative would be NaN.
LEAST = -1e30


def _unit(x: Float[Array, "n d"]) -> Float[Array, "n d"]:
    return x / jnp.sqrt(jnp.maximum(jnp.square(x).sum(-1, keepdims=True), 1e-12))
