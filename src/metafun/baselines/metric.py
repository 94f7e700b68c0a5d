"""Classification by similarity: prototypical (Snell et al., 2017) and matching networks (Vinyals et al., 2016)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Categorical, CrossEntropy
from ..model.nn import MLP
from ..model.similarity import class_means, cosines, negative_distances
from ..model.task import Points


class Metric(Learner):
    """Compares points by the similarity of their embeddings.

    Args:
        embedding: e; None to compare x itself.
        log_temperature: log τ, trainable.
        likelihood: the cross-entropy.
        cosine: whether similarity is the cosine instead of the negative squared distance.
    """

    embedding: MLP | None
    log_temperature: Float[Array, ""]
    likelihood: CrossEntropy
    cosine: bool = eqx.field(static=True)

    def embed(self, x: Float[Array, "n dx"]) -> Float[Array, "n d"]:
        return x if self.embedding is None else self.embedding(x)

    def similarity(self, x: Float[Array, "m d"], y: Float[Array, "n d"]) -> Float[Array, "m n"]:
        """cos(x, y)/τ or −‖x − y‖²/τ of embedded points."""
        found = cosines(x, y) if self.cosine else negative_distances(x, y)
        return found * jnp.exp(-self.log_temperature)


class Centres(eqx.Module):
    """The mean embedding of each class."""

    means: Float[Array, "k d"]
    classes: Bool[Array, " k"]


class Prototypes(Metric):
    """logitₖ = similarity of e(x) to the mean embedding of class k. Without an embedding: nearest class mean."""

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Centres:
        embedded = Points(self.embed(context.x), context.y, context.mask)
        return Centres(class_means(embedded), context.classes)

    def predict(self, representation: Centres, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Categorical:
        return self.likelihood(self.similarity(self.embed(x), representation.means), representation.classes)


class Examples(eqx.Module):
    """The embedded points of the context with their labels."""

    keys: Float[Array, "n d"]
    context: Points


class Matching(Metric):
    """P(y = k|x) = Σᵢ softmaxᵢ(similarity of x and xᵢ) yᵢᵏ."""

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Examples:
        return Examples(self.embed(context.x), context)

    def predict(
        self, representation: Examples, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Categorical:
        context = representation.context
        similarity = self.similarity(self.embed(x), representation.keys)
        labelled = (context.y > 0).T & context.mask
        terms = jnp.where(labelled, similarity[:, None], MINUS_INFINITY)
        # Padded by one: an empty context would leave nothing to sum.
        terms = jnp.pad(terms, ((0, 0), (0, 0), (0, 1)), constant_values=MINUS_INFINITY)
        logits = jax.nn.logsumexp(terms, axis=-1)
        return self.likelihood(logits, context.classes)

    def weights(self, representation: Examples, x: Float[Array, "m dx"]) -> Float[Array, "m n"]:
        similarity = self.similarity(self.embed(x), representation.keys)
        return jax.nn.softmax(jnp.where(representation.context.mask, similarity, MINUS_INFINITY), axis=-1)


# Finite: the derivative at −∞ would be NaN.
MINUS_INFINITY = -1e30
