"""Predictive distributions and the losses ℓ(f(x), y) on them."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .nn import Hyperparameter
from .task import Points

# The central intervals whose coverage is reported, in per cent.
INTERVALS = (50, 80, 95)
# Bins of equal probability under the prediction: if it is calibrated, outcomes are spread evenly over them.
QUANTILES = 40
# Bins of equal width, as in most published calibration errors of classifiers.
BINS = 15


class Normal(eqx.Module):
    """P(y|x) = 𝒩(mean, std²), independently for each output."""

    mean: Float[Array, "*m dy"]
    std: Float[Array, "*m dy"]

    def log_prob(self, y: Float[Array, "*n dy"]) -> Float[Array, "*s"]:
        """log P(y|x); y and the prediction broadcast."""
        z = (y - self.mean) / self.std
        return -(z**2 / 2 + jnp.log(self.std) + math.log(2 * math.pi) / 2).sum(-1)

    def cdf(self, y: Float[Array, "*n dy"]) -> Float[Array, "*s dy"]:
        """P(Y ≤ y|x) for each output; y and the prediction broadcast."""
        return jax.scipy.stats.norm.cdf(y, self.mean, self.std)

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count *m dy"]:
        return self.mean + self.std * jax.random.normal(key, (count, *self.mean.shape), self.mean.dtype)

    def divergence(self, other: "Normal") -> Float[Array, "*m"]:
        """KL(self ‖ other)."""
        ratio, z = self.std / other.std, (self.mean - other.mean) / other.std
        return ((ratio**2 + z**2 - 1) / 2 - jnp.log(ratio)).sum(-1)


class Mixture(eqx.Module):
    """P(y|x) = 1/S Σₛ 𝒩(y; meanₛ, stdₛ²), the S components along the axis before the points and the outputs."""

    components: Normal

    @property
    def mean(self) -> Float[Array, "*m dy"]:
        return self.components.mean.mean(-3)

    @property
    def std(self) -> Float[Array, "*m dy"]:
        return jnp.sqrt(jnp.square(self.components.std).mean(-3) + self.components.mean.var(-3))

    def log_prob(self, y: Float[Array, "m dy"]) -> Float[Array, "*m"]:
        each = self.components.log_prob(y)
        return jax.nn.logsumexp(each, axis=-2) - math.log(each.shape[-2])

    def cdf(self, y: Float[Array, "m dy"]) -> Float[Array, "*m dy"]:
        return self.components.cdf(y).mean(-3)

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count m dy"]:
        """Each sample is drawn from one component at all points."""
        key_component, key_noise = jax.random.split(key)
        chosen = jax.random.randint(key_component, (count,), 0, len(self.components.mean))
        mean, std = self.components.mean[chosen], self.components.std[chosen]
        return mean + std * jax.random.normal(key_noise, mean.shape, mean.dtype)


class Categorical(eqx.Module):
    """P(y = k|x) = softmax(logits)ₖ over the classes of the task.

    Args:
        logits: one for each class, padding included.
        classes: which of them the task has; the others have probability 0.
    """

    logits: Float[Array, "*m k"]
    classes: Bool[Array, " k"]

    @property
    def log_probabilities(self) -> Float[Array, "*m k"]:
        return jax.nn.log_softmax(jnp.where(self.classes, self.logits, -jnp.inf), axis=-1)

    @property
    def probabilities(self) -> Float[Array, "*m k"]:
        return jnp.exp(self.log_probabilities)

    def log_prob(self, y: Float[Array, "*n k"]) -> Float[Array, "*s"]:
        """log P of a one-hot label; the mean log P under a soft label. y and the prediction broadcast."""
        return jnp.where(y > 0, y * self.log_probabilities, 0).sum(-1)

    def sample(self, key: PRNGKeyArray, count: int) -> Float[Array, "count *m k"]:
        """One-hot labels."""
        drawn = jax.random.categorical(key, self.log_probabilities, shape=(count, *self.logits.shape[:-1]))
        return jax.nn.one_hot(drawn, self.logits.shape[-1], dtype=self.logits.dtype)


Prediction = Normal | Mixture | Categorical


class Likelihood(eqx.Module):
    """Turns the decoder's raw outputs into a predictive distribution, and defines the loss on it."""

    @abstractmethod
    def classes(self, context: Points) -> Bool[Array, " k"] | None:
        """The classes of a task, read from its context; None in regression."""

    @abstractmethod
    def __call__(self, raw: Float[Array, "*m out"], classes: Any) -> Any:
        """The predictive distribution.

        Args:
            raw: outputs of the decoder.
            classes: what `classes` returned for the context.
        """

    @abstractmethod
    def mixture(self, components: Any) -> Any:
        """P(y|x) = 1/S Σₛ Pₛ(y|x).

        Args:
            components: the Pₛ as one prediction, along a leading axis.
        """

    @abstractmethod
    def loss(self, prediction: Any, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        """ℓ(f(xⱼ), yⱼ) for each point."""

    @abstractmethod
    def error(self, prediction: Any, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        """The error of each point that validation compares models by; lower is better."""

    @abstractmethod
    def metrics(self, prediction: Any, y: Float[Array, "m dy"]) -> dict[str, Float[Array, "m ..."]]:
        """The metrics that an evaluation reports, for each point."""


class NormalLikelihood(Likelihood):
    """A normal from raw outputs (μ, s): σ = σ₀ + (1 − σ₀)·softplus(s) with σ₀ = `min_std`."""

    min_std: float = eqx.field(static=True)

    def classes(self, context: Points) -> None:
        return None

    def __call__(self, raw: Float[Array, "*m two_dy"], classes: None = None) -> Normal:
        mean, s = jnp.split(raw, 2, axis=-1)
        return Normal(mean, self.min_std + (1 - self.min_std) * jax.nn.softplus(s))

    def mixture(self, components: Normal) -> Mixture:
        return Mixture(components)

    def error(self, prediction: Normal | Mixture, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        return self.loss(prediction, y)


class SquaredError(NormalLikelihood):
    """ℓ = (μ − y)², averaged over the outputs; the standard deviation is not trained."""

    def loss(self, prediction: Normal | Mixture, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        return jnp.square(prediction.mean - y).mean(-1)

    def metrics(self, prediction: Normal | Mixture, y: Float[Array, "m dy"]) -> dict[str, Float[Array, "m ..."]]:
        return {"mse": self.loss(prediction, y)}


class Gaussian(NormalLikelihood):
    """ℓ = −log 𝒩(y; μ, σ²)."""

    def loss(self, prediction: Normal | Mixture, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        return -prediction.log_prob(y)

    def metrics(self, prediction: Normal | Mixture, y: Float[Array, "m dy"]) -> dict[str, Float[Array, "m ..."]]:
        quantiles = prediction.cdf(y)
        return {
            "mse": jnp.square(prediction.mean - y).mean(-1),
            "log_likelihood": prediction.log_prob(y),
            **{f"coverage{level}": _covered(quantiles, level / 100) for level in INTERVALS},
            "quantiles": _histogram(quantiles),
        }


class CrossEntropy(Likelihood):
    """ℓ = −Σₖ ỹᵏ log P(y = k|x), ỹ = (1 − ε)·one-hot + ε/N over the N classes of the task, ε = `label_smoothing`."""

    label_smoothing: Hyperparameter

    def classes(self, context: Points) -> Bool[Array, " k"]:
        return context.classes

    def __call__(self, raw: Float[Array, "*m k"], classes: Bool[Array, " k"]) -> Categorical:
        return Categorical(raw, classes)

    def mixture(self, components: Categorical) -> Categorical:
        """Itself categorical: its probabilities are the means of theirs."""
        # log 0 of an absent class would have no gradient.
        each = jnp.where(components.classes, components.log_probabilities, 0)
        return Categorical(jax.nn.logsumexp(each, axis=0) - math.log(len(each)), components.classes)

    def loss(self, prediction: Categorical, y: Float[Array, "m k"]) -> Float[Array, " m"]:
        even = prediction.classes / jnp.maximum(prediction.classes.sum(), 1)
        return -prediction.log_prob((1 - self.label_smoothing) * y + self.label_smoothing * even)

    def error(self, prediction: Categorical, y: Float[Array, "m k"]) -> Float[Array, " m"]:
        """1 where the most probable class is not the label, otherwise 0."""
        return (prediction.log_probabilities.argmax(-1) != y.argmax(-1)).astype(y.dtype)

    def metrics(self, prediction: Categorical, y: Float[Array, "m k"]) -> dict[str, Float[Array, "m ..."]]:
        accuracy = 1 - self.error(prediction, y)
        return {
            "accuracy": accuracy,
            "log_likelihood": prediction.log_prob(y),
            "reliability": reliability(prediction.probabilities.max(-1), accuracy),
        }


def _covered(quantiles: Float[Array, "m dy"], share: float) -> Float[Array, " m"]:
    """The share of y's entries inside the central interval of probability `share`."""
    return (abs(quantiles - 0.5) <= share / 2).mean(-1, dtype=quantiles.dtype)


def _histogram(quantiles: Float[Array, "m dy"]) -> Float[Array, "m bins"]:
    """One-hot bins of the quantiles that y falls on, averaged over y's entries."""
    bins = jnp.minimum((quantiles * QUANTILES).astype(int), QUANTILES - 1)
    return jax.nn.one_hot(bins, QUANTILES, dtype=quantiles.dtype).mean(1)


def coverage(histogram: Float[Any, "*s bins"]) -> Float[Any, "*s levels"]:
    """Shares of outcomes in the central intervals of 1/20, …, 19/20, from `quantiles` averaged over points."""
    half = QUANTILES // 2
    pairs = histogram[..., :half][..., ::-1] + histogram[..., half:]
    return pairs.cumsum(-1)[..., :-1]


def reliability(confidence: Float[Array, " m"], accuracy: Float[Array, " m"]) -> Float[Array, "m bins 3"]:
    """(1, confidence, accuracy) in the bin of each point's confidence, 0 in the others: terms of a reliability plot.

    Args:
        confidence: probability of the predicted class.
        accuracy: 1 where the predicted class is the label, otherwise 0.
    """
    bins = jnp.minimum((confidence * BINS).astype(int), BINS - 1)
    entries = jnp.stack([jnp.ones_like(confidence), confidence, accuracy], axis=-1)
    return jax.nn.one_hot(bins, BINS)[..., None] * entries[:, None]


def calibration_error(reliability: Float[Any, "*s bins 3"]) -> Float[Any, "*s"]:
    """ECE = Σ_b share_b · |confidence_b − accuracy_b|, from the metric `reliability` averaged over points."""
    return abs(reliability[..., 1] - reliability[..., 2]).sum(-1)


def masked_mean(values: Float[Array, "n ..."], mask: Bool[Array, " n"]) -> Float[Array, "..."]:
    """The mean over the entries of the first axis that the mask keeps; 0 if it keeps none."""
    mask = mask.reshape(-1, *[1] * (values.ndim - 1))
    return jnp.where(mask, values, 0).sum(0) / jnp.maximum(mask.sum(), 1)
