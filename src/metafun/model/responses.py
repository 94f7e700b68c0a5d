"""How a Gaussian process over rows explains y: numbers in closed form, classes by iterated least squares."""

import math
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .likelihoods import Categorical, Mixture, Normal, masked_mean
from .task import Points
from .warping import Warp
from .whitening import MIN_VARIANCE, whiten

# Iterations of `Softmax`; its variance of the working response, by the bound ½ on the curvature of log softmax.
ITERATIONS, WORKING_VARIANCE = 15, 2.0
# A correction changes the logarithm of a deviation by at most this much.
MAX_LOG_RATIO = 1.0
# Entries of `signals`, for each output.
SIGNALS_OF_NUMBER, SIGNALS_OF_CLASS = 2, 3
# Measures of how well the rows of the context are predicted from each other.
MEASURES = 4


class Settings(eqx.Module):
    """What a network chooses for a task beside the covariance.

    Args:
        noise: log variance of the noise; the share of the classes' frequencies in their offsets, before the sigmoid.
        scale: logarithm of a factor of deviations; of logits.
        prior_rows: logarithm of the number of rows that the expected scale of y counts as.
    """

    noise: Float[Array, ""]
    scale: Float[Array, ""]
    prior_rows: Float[Array, ""]


class Fit(eqx.Module):
    """f(x) = b + k(x, X) α for each output, given a context.

    Args:
        coefficients: α, 0 where a row is padding.
        whitening: W with Wᵀ W = (K + noise)⁻¹.
        response: z with α = Wᵀ W z.
        offset: b.
        noise: variance of the noise.
        factor: of the variance, for each output.
    """

    coefficients: Float[Array, "n k"]
    whitening: Float[Array, "n n"]
    response: Float[Array, "n k"]
    offset: Float[Array, " k"]
    noise: Float[Array, ""]
    factor: Float[Array, " k"]

    @property
    def precision(self) -> Float[Array, "n n"]:
        return self.whitening.T @ self.whitening

    def __call__(
        self, across: Float[Array, "m n"], variance: Float[Array, " m"]
    ) -> tuple[Float[Array, "m k"], Float[Array, " m"]]:
        """f(x) and its variance at rows outside the context.

        Args:
            across: k(x, xᵢ), 0 where a row is padding.
            variance: k(x, x).
        """
        explained = jnp.square(across @ self.whitening.T).sum(-1)
        return self.offset + across @ self.coefficients, jnp.maximum(variance - explained, MIN_VARIANCE)

    def leave_one_out(self) -> tuple[Float[Array, "n k"], Float[Array, " n"]]:
        """f(xᵢ) and its variance, from the other rows of the context."""
        precision = jnp.square(self.whitening).sum(0)
        mean = self.offset + self.response - self.coefficients / precision[:, None]
        return mean, jnp.maximum(1 / precision - self.noise, MIN_VARIANCE)


class Response(eqx.Module):
    """The distribution of y given f(x)."""

    @abstractmethod
    def warp(self, context: Points) -> Any:
        """The map of y to the scale of f, fitted on a context."""

    @abstractmethod
    def latent(self, points: Points, warp: Any) -> Points:
        """The points with y on the scale of f."""

    @abstractmethod
    def observed(self, prediction: Any, warp: Any) -> Any:
        """The prediction on the scale of y."""

    @abstractmethod
    def fit(self, covariance: Float[Array, "n n"], context: Points, settings: Settings) -> Fit:
        """The most probable f.

        Args:
            covariance: K of the context, 0 where a row is padding.
            context: the labels.
            settings: of the task.
        """

    @abstractmethod
    def predict(
        self, fit: Fit, f: Float[Array, "m k"], variance: Float[Array, " m"], context: Points, settings: Settings
    ) -> Any:
        """P(y|x) of f with its variance."""

    @abstractmethod
    def signals(self, prediction: Any) -> Float[Array, "m *k s"]:
        """A prediction as inputs of MetaFun; in classification those of each class."""

    @abstractmethod
    def corrected(self, prediction: Any, raw: Float[Array, "m out"]) -> Any:
        """The prediction with MetaFun's outputs, unchanged where they are 0."""

    @abstractmethod
    def measures(self, prediction: Any, context: Points) -> Float[Array, " measures"]:
        """How well the context is predicted when each row is left out."""


def _inverse_covariance(covariance: Float[Array, "n n"], noise: Float[Array, ""], mask: Bool[Array, " n"]) -> Array:
    return whiten(covariance + jnp.diag(jnp.where(mask, noise, 1.0)))


class Numbers(Response):
    """y = f(x) + ε.

    The deviation of y is that of the process times √((ν + yᵀα)/(ν + n)): the process is fitted whatever the scale of y.

    Args:
        min_std: least deviation of ε.
    """

    min_std: float = eqx.field(static=True)

    def warp(self, context: Points) -> Warp:
        return Warp.of(context.y, context.mask)

    def latent(self, points: Points, warp: Warp) -> Points:
        return Points(points.x, warp(points.y), points.mask)

    def observed(self, prediction: Normal, warp: Warp) -> Mixture:
        return warp.unwarped(prediction)

    def fit(self, covariance: Float[Array, "n n"], context: Points, settings: Settings) -> Fit:
        noise = jnp.exp(settings.noise) + self.min_std**2
        W = _inverse_covariance(covariance, noise, context.mask)
        y = jnp.where(context.mask[:, None], context.y, 0)
        coefficients = W.T @ (W @ y)
        rows, prior = context.mask.sum(), jnp.exp(settings.prior_rows)
        factor = (prior + (y * coefficients).sum(0)) / (prior + rows)
        return Fit(coefficients, W, y, jnp.zeros_like(factor), noise, factor)

    def predict(
        self, fit: Fit, f: Float[Array, "m k"], variance: Float[Array, " m"], context: Points, settings: Settings
    ) -> Normal:
        total = (variance + fit.noise)[:, None] * fit.factor * jnp.exp(2 * settings.scale)
        return Normal(f, jnp.sqrt(total + self.min_std**2))

    def signals(self, prediction: Normal) -> Float[Array, "m s"]:
        return jnp.concatenate([prediction.mean, jnp.log(prediction.std)], -1)

    def corrected(self, prediction: Normal, raw: Float[Array, "m out"]) -> Normal:
        shift, log_ratio = jnp.split(raw, 2, axis=-1)
        ratio = jnp.exp(MAX_LOG_RATIO * jnp.tanh(log_ratio / MAX_LOG_RATIO))
        return Normal(prediction.mean + prediction.std * shift, prediction.std * ratio)

    def measures(self, prediction: Normal, context: Points) -> Float[Array, " measures"]:
        scores = ((context.y - prediction.mean) / prediction.std).clip(-10, 10)
        left = masked_mean(jnp.square(context.y - prediction.mean).clip(0, 100).mean(-1), context.mask)
        mean = masked_mean(jnp.square(scores).mean(-1), context.mask)
        tails = masked_mean(abs(scores).mean(-1), context.mask)
        spread = masked_mean(jnp.log(prediction.std).mean(-1), context.mask)
        return jnp.stack([jnp.log(left + 1e-3), jnp.log(mean + 1e-3), tails, spread])


class Softmax(Response):
    """P(y = k|x) = softmax(τ f(x))ₖ, the logarithm of each class's frequency an offset of f.

    Each iteration is a least-squares fit of the working response z = f − b + 2 (y − softmax(f)), which never lowers
    the posterior since the curvature of log softmax is at most ½ (Böhning, 1992): a step of functional gradient
    descent, r ← r − k(·, X)(K + 2)⁻¹(…), with one factorisation for all of them. Momentum speeds them up.
    """

    def warp(self, context: Points) -> None:
        return None

    def latent(self, points: Points, warp: None) -> Points:
        return points

    def observed(self, prediction: Categorical, warp: None) -> Categorical:
        return prediction

    def fit(self, covariance: Float[Array, "n n"], context: Points, settings: Settings) -> Fit:
        noise = jnp.asarray(WORKING_VARIANCE, covariance.dtype)
        W = _inverse_covariance(covariance, noise, context.mask)
        y = jnp.where(context.mask[:, None], context.y, 0)
        counts = y.sum(0)
        frequencies = (counts + 0.5) / (counts + 0.5).sum()
        offset = jax.nn.sigmoid(settings.noise) * jnp.log(frequencies)
        mean = jnp.where(context.classes, offset, 0).sum() / context.classes.sum()
        offset = jnp.where(context.classes, offset - mean, 0)

        def response(f: Float[Array, "n k"]) -> Float[Array, "n k"]:
            error = y - jnp.exp(Categorical(f, context.classes).log_probabilities)
            return f - offset + noise * jnp.where(context.mask[:, None], error, 0)

        def iterate(state: tuple[Array, Array], momentum: Array) -> tuple[tuple[Array, Array], None]:
            f, before = state
            z = response(f + momentum * (f - before))
            return (offset + covariance @ (W.T @ (W @ z)), f), None

        start = jnp.broadcast_to(offset, y.shape)
        steps = jnp.arange(ITERATIONS, dtype=covariance.dtype)
        (f, _), _ = jax.lax.scan(iterate, (start, start), steps / (steps + 3))
        z = jnp.where(context.mask[:, None], response(f), 0)
        return Fit(W.T @ (W @ z), W, z, offset, noise, jnp.ones_like(offset))

    def predict(
        self, fit: Fit, f: Float[Array, "m k"], variance: Float[Array, " m"], context: Points, settings: Settings
    ) -> Categorical:
        # Probabilities averaged over f, by MacKay's approximation.
        moderated = f / jnp.sqrt(1 + math.pi / 8 * variance)[:, None]
        return Categorical(jnp.exp(settings.scale) * moderated, context.classes)

    def signals(self, prediction: Categorical) -> Float[Array, "m k s"]:
        logs = jnp.where(prediction.classes, prediction.log_probabilities, 0)
        centred = logs - (logs.sum(-1) / prediction.classes.sum())[:, None]
        signals = jnp.stack([logs.clip(-8), centred.clip(-8, 8), jnp.exp(logs)], -1)
        return jnp.where(prediction.classes[:, None], signals, 0)

    def corrected(self, prediction: Categorical, raw: Float[Array, "m out"]) -> Categorical:
        return Categorical(prediction.logits + raw, prediction.classes)

    def measures(self, prediction: Categorical, context: Points) -> Float[Array, " measures"]:
        def log_prob(temperature: float) -> Float[Array, ""]:
            tempered = Categorical(prediction.logits * temperature, prediction.classes)
            return masked_mean(tempered.log_prob(context.y).clip(-8), context.mask)

        right = prediction.log_probabilities.argmax(-1) == context.y.argmax(-1)
        accuracy = masked_mean(right.astype(context.y.dtype), context.mask)
        return jnp.stack([log_prob(1.0), log_prob(0.5), log_prob(2.0), accuracy])
