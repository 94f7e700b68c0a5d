"""A population of functions: every task has its own function, drawn from one Gaussian process that is learned."""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .nn import MLP
from .whitening import MIN_VARIANCE, whiten

# The deviation of the noise differs from its typical value by at most this much, in logarithms.
MAX_LOG_NOISE_RATIO = 0.7


class ProcessPrior(eqx.Module):
    """What the process says of some inputs before any context.

    Args:
        x: the inputs.
        mean: m(x).
        features: φ(x).
        variance: k(x, x).
        noise: variance of ε at x.
    """

    x: Float[Array, "n dx"]
    mean: Float[Array, " n"]
    features: Float[Array, "n p"]
    variance: Float[Array, " n"]
    noise: Float[Array, " n"]

    @property
    def std(self) -> Float[Array, "*dy n"]:
        """The deviation of y; also of the processes of several outputs."""
        return jnp.sqrt(self.variance + self.noise)


class Process(eqx.Module):
    """y(x) = m(x) + f(x) + ε with f ∼ GP(0, k) for each task, for one output."""

    @abstractmethod
    def prior(self, x: Float[Array, "n dx"]) -> ProcessPrior:
        """m, the features of k and the variances at x."""

    @abstractmethod
    def covariance(self, a: ProcessPrior, b: ProcessPrior) -> Float[Array, "m n"]:
        """k(x, x')."""

    def condition(
        self, x: Float[Array, "n dx"], y: Float[Array, " n"], mask: Bool[Array, " n"]
    ) -> "ConditionedProcess":
        """The process given labelled points; those that `mask` drops do not count."""
        prior = self.prior(x)
        among = jnp.where(mask[:, None] & mask, self.covariance(prior, prior), 0.0)
        whitening = whiten(among + jnp.diag(jnp.where(mask, prior.noise, 1.0)))
        return ConditionedProcess(self, prior, mask, jnp.where(mask, y - prior.mean, 0.0), whitening)


class PopulationProcess(Process):
    """y(x) = m(x) + f(x) + ε, as a `Process`, with a mean and a covariance that networks compute.

    k(x, x') = c² + Σ_d s_d² x_d x'_d + φ(x)·φ(x') + Σ_j a_j² exp(−‖(x − x')/ℓ_j‖²/2): random intercepts and slopes, a
    covariance of any shape by the features φ, and a smooth and a rough rest. m, φ and the deviation of ε are networks.

    Args:
        mean_noise: network from dim(x) to m(x), and to how the deviation of ε depends on x.
        log_noise: logarithm of the typical deviation of ε.
        features: network from dim(x) to φ(x).
        slope: weights of a linear part of m.
        log_constant: log c.
        log_slope: log s_d.
        log_amplitude: log a_j.
        log_length: log ℓ_j for each input.
        min_std: least deviation of ε.
    """

    mean_noise: MLP
    log_noise: Float[Array, ""]
    features: MLP
    slope: Float[Array, " dx"]
    log_constant: Float[Array, ""]
    log_slope: Float[Array, " dx"]
    log_amplitude: Float[Array, " j"]
    log_length: Float[Array, "j dx"]
    min_std: float = eqx.field(static=True)

    def __init__(self, dx: int, features: int, width: int, layers: int, activation: str, min_std: float, *, key: Array):
        key_mean, key_features, key_length = jax.random.split(key, 3)
        hidden = [dx, *[width] * layers]
        self.mean_noise = _spread(MLP([*hidden, 2], activation, key=key_mean), 0.1, key_mean)
        self.log_noise = jnp.array(-2.0)
        self.features = _spread(MLP([*hidden, features], activation, key=key_features), 0.3, key_features)
        self.slope = jnp.zeros(dx)
        self.log_constant, self.log_slope = jnp.array(-0.5), jnp.full(dx, -2.0)
        self.log_amplitude = jnp.array([-1.0, -2.0])
        # Members of an ensemble start from different lengths.
        spread = 0.3 * jax.random.normal(key_length, (2, dx))
        self.log_length = jnp.array([[0.0], [-1.5]]) + jnp.array([[1.0], [0.0]]) * spread
        self.min_std = min_std

    def prior(self, x: Float[Array, "n dx"]) -> ProcessPrior:
        """m, φ and the variances at x."""
        mean, raw = self.mean_noise(x).T
        # Where a network may choose any deviation, a few points with far too small ones ruin the likelihood.
        log_noise = self.log_noise + MAX_LOG_NOISE_RATIO * jnp.tanh(raw)
        features = self.features(x) / math.sqrt(self.features.biases[-1].size)
        slopes = jnp.square(x) @ jnp.exp(2 * self.log_slope)
        fixed = jnp.exp(2 * self.log_constant) + jnp.exp(2 * self.log_amplitude).sum()
        noise = jnp.exp(2 * log_noise) + self.min_std**2
        return ProcessPrior(x, x @ self.slope + mean, features, fixed + slopes + jnp.square(features).sum(-1), noise)

    def covariance(self, a: ProcessPrior, b: ProcessPrior) -> Float[Array, "m n"]:
        """k(x, x')."""
        k = jnp.exp(2 * self.log_constant) + (a.x * jnp.exp(2 * self.log_slope)) @ b.x.T + a.features @ b.features.T
        for log_amplitude, log_length in zip(self.log_amplitude, self.log_length, strict=True):
            difference = (a.x[:, None] - b.x[None]) * jnp.exp(-log_length)
            k = k + jnp.exp(2 * log_amplitude - jnp.square(difference).sum(-1) / 2)
        return k


class ConditionedProcess(eqx.Module):
    """The process of a task given its context.

    Args:
        process: the population.
        prior: what it says of the context's inputs.
        mask: False where a row of the context is padding.
        residual: y − m(x).
        whitening: W with W K Wᵀ = I, K the covariance of the context's y.
    """

    process: Process
    prior: ProcessPrior
    mask: Bool[Array, " n"]
    residual: Float[Array, " n"]
    whitening: Float[Array, "n n"]

    def __call__(self, x: Float[Array, "m dx"]) -> tuple[Float[Array, " m"], Float[Array, " m"], ProcessPrior]:
        """Mean and deviation of y, and what the population says, at x."""
        there = self.process.prior(x)
        across = jnp.where(self.mask, self.process.covariance(there, self.prior), 0.0) @ self.whitening.T
        mean = there.mean + across @ (self.whitening @ self.residual)
        variance = jnp.maximum(there.variance - jnp.square(across).sum(-1), MIN_VARIANCE)
        return mean, jnp.sqrt(variance + there.noise), there

    def leave_one_out(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """(yᵢ − μᵢ)/σᵢ and σᵢ of each context point, predicted from the other points."""
        precision = jnp.square(self.whitening).sum(0)
        score = (self.whitening @ self.residual) @ self.whitening / jnp.sqrt(precision)
        return jnp.where(self.mask, score, 0.0), 1 / jnp.sqrt(precision)


def _spread(mlp: MLP, scale: float, key: PRNGKeyArray) -> MLP:
    """The network with units that bend all over the range of standardised inputs, and small outputs.

    With Glorot's weights and biases of 0, all units bend at 0, and a curve over one input takes long to learn.

    Args:
        mlp: a network with biases.
        scale: factor of the last weights.
        key: source of the first layer.
    """
    key_weights, key_biases = jax.random.split(key)
    first = mlp.weights[0].shape
    mlp = eqx.tree_at(lambda net: net.weights[-1], mlp, mlp.weights[-1] * scale)
    mlp = eqx.tree_at(lambda net: net.biases[0], mlp, jax.random.normal(key_biases, first[1:]))
    return eqx.tree_at(lambda net: net.weights[0], mlp, jax.random.normal(key_weights, first) / math.sqrt(first[0]))


def build_processes(outputs: int, key: PRNGKeyArray, **options: int | str | float) -> PopulationProcess:
    """One process for each output, as one with a leading axis in every array.

    Args:
        outputs: dim(y).
        key: source of the initial weights.
        **options: arguments of `PopulationProcess`.
    """
    return eqx.filter_vmap(lambda k: PopulationProcess(key=k, **options))(jax.random.split(key, outputs))  # type: ignore[arg-type]
