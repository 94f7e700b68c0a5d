"""Predictive distributions, and the losses ℓ(f(x), y) they are judged by."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .task import Points


class Normal(eqx.Module):
    """P(y|x) = 𝒩(mean, std²), independently for each output."""

    mean: Float[Array, "*m dy"]
    std: Float[Array, "*m dy"]

    def log_prob(self, y: Float[Array, "*m dy"]) -> Float[Array, "*m"]:
        z = (y - self.mean) / self.std
        return -(z**2 / 2 + jnp.log(self.std) + math.log(2 * math.pi) / 2).sum(-1)


class Categorical(eqx.Module):
    """P(y = k|x) = softmax(logits)ₖ over the classes of the task; any other class has probability 0."""

    logits: Float[Array, "*m k"]
    classes: Bool[Array, " k"]

    @property
    def log_probabilities(self) -> Float[Array, "*m k"]:
        return jax.nn.log_softmax(jnp.where(self.classes, self.logits, -jnp.inf), axis=-1)

    @property
    def probabilities(self) -> Float[Array, "*m k"]:
        return jnp.exp(self.log_probabilities)

    def log_prob(self, y: Float[Array, "*m k"]) -> Float[Array, "*m"]:
        """Of a one-hot label, or the mean under soft labels."""
        return jnp.where(y > 0, y * self.log_probabilities, 0).sum(-1)


Prediction = Normal | Categorical


class Likelihood(eqx.Module):
    """Turns the decoder's numbers into a predictive distribution, and says what a wrong one costs."""

    @abstractmethod
    def classes(self, context: Points) -> Bool[Array, " k"] | None:
        """The classes of a task, known from its context; None where outputs are numbers."""

    @abstractmethod
    def __call__(self, raw: Float[Array, "*m out"], classes: Any) -> Any:
        """The prediction, over the given classes if there are any."""

    @abstractmethod
    def loss(self, prediction: Any, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        """ℓ(f(xⱼ), yⱼ) for each point."""

    @abstractmethod
    def metrics(self, prediction: Any, y: Float[Array, "m dy"]) -> dict[str, Float[Array, " m"]]:
        """What an evaluation reports of each point."""


class NormalLikelihood(Likelihood):
    """The numbers are (μ, s), and σ = σ₀ + (1 − σ₀)·softplus(s) with σ₀ = `min_std`."""

    min_std: float = eqx.field(static=True)

    def classes(self, context: Points) -> None:
        return None

    def __call__(self, raw: Float[Array, "*m two_dy"], classes: None = None) -> Normal:
        mean, s = jnp.split(raw, 2, axis=-1)
        return Normal(mean, self.min_std + (1 - self.min_std) * jax.nn.softplus(s))


class SquaredError(NormalLikelihood):
    """ℓ = (μ − y)², averaged over the outputs; the std is left untrained."""

    def loss(self, prediction: Normal, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        return jnp.square(prediction.mean - y).mean(-1)

    def metrics(self, prediction: Normal, y: Float[Array, "m dy"]) -> dict[str, Float[Array, " m"]]:
        return {"mse": self.loss(prediction, y)}


class Gaussian(NormalLikelihood):
    """ℓ = −log 𝒩(y; μ, σ²)."""

    def loss(self, prediction: Normal, y: Float[Array, "m dy"]) -> Float[Array, " m"]:
        return -prediction.log_prob(y)

    def metrics(self, prediction: Normal, y: Float[Array, "m dy"]) -> dict[str, Float[Array, " m"]]:
        return {"mse": jnp.square(prediction.mean - y).mean(-1), "log_likelihood": prediction.log_prob(y)}


class CrossEntropy(Likelihood):
    """ℓ = −Σₖ ỹᵏ log P(y = k|x), the label ỹ smoothed by ε: (1 − ε)·one-hot + ε/N over the N classes of the task."""

    label_smoothing: float = eqx.field(static=True)

    def classes(self, context: Points) -> Bool[Array, " k"]:
        return context.classes

    def __call__(self, raw: Float[Array, "*m k"], classes: Bool[Array, " k"]) -> Categorical:
        return Categorical(raw, classes)

    def loss(self, prediction: Categorical, y: Float[Array, "m k"]) -> Float[Array, " m"]:
        even = prediction.classes / jnp.maximum(prediction.classes.sum(), 1)
        return -prediction.log_prob((1 - self.label_smoothing) * y + self.label_smoothing * even)

    def metrics(self, prediction: Categorical, y: Float[Array, "m k"]) -> dict[str, Float[Array, " m"]]:
        right = prediction.log_probabilities.argmax(-1) == y.argmax(-1)
        return {"accuracy": right.astype(y.dtype), "log_likelihood": prediction.log_prob(y)}


def masked_mean(values: Float[Array, " n"], mask: Bool[Array, " n"]) -> Float[Array, ""]:
    """The mean where the mask holds, 0 where it never does."""
    return jnp.where(mask, values, 0).sum() / jnp.maximum(mask.sum(), 1)
