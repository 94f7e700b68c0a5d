"""Tasks of any kind: many Gaussian processes, weighted by how likely each of them makes the context."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .likelihoods import Normal
from .whitening import MIN_VARIANCE, whiten

# Where the hyperparameters of the processes start, spread evenly over these ranges: the logarithms of ℓ, of the
# deviation of ε, of a and of s; w; and the logit of ρ.
RANGES = ((-2.1, 1.4), (-5.5, -0.2), (-0.9, 1.8), (-1.6, 0.7), (-1.5, 1.5), (-2.0, 2.0))
LOG_CONSTANT = 0.7
# Of the variance of y: in single precision, less noise leaves nothing of a covariance.
LEAST_NOISE = 5e-5
# w is not 0.
LEAST_WARP = 1e-3


class ProcessMixture(eqx.Module):
    """y(x) = f(x) + ε with f ∼ GP(0, kⱼ), and j unknown: P(j|context) ∝ πⱼ P(y|x, j), for one output.

    kⱼ(x, x') = cⱼ² + sⱼ² v·v' + aⱼ² ((1 − ρⱼ) exp(−d²/2) + ρⱼ (1 + √3 d) exp(−√3 d)) with d = ‖(v − v')/ℓⱼ‖ and
    v = (exp(wⱼ x) − 1)/(exp(|wⱼ|) − 1) within ±1: smooth or rough functions about a level and a trend, on an axis that
    is stretched at one end. Hyperparameters need not be fitted to a context: those that suit it have the weight.

    Args:
        log_weight: log πⱼ, up to a constant.
        log_constant: log cⱼ.
        log_amplitude: log aⱼ.
        log_noise: logarithm of the deviation of ε.
        rough: logit of ρⱼ.
        log_slope: log sⱼ for each input.
        log_length: log ℓⱼ for each input.
        warp: wⱼ for each input.
        min_std: least deviation of ε.
    """

    log_weight: Float[Array, " j"]
    log_constant: Float[Array, " j"]
    log_amplitude: Float[Array, " j"]
    log_noise: Float[Array, " j"]
    rough: Float[Array, " j"]
    log_slope: Float[Array, "j dx"]
    log_length: Float[Array, "j dx"]
    warp: Float[Array, "j dx"]
    min_std: float = eqx.field(static=True)

    def __init__(self, dx: int, processes: int, min_std: float, *, key: PRNGKeyArray):
        length, noise, amplitude, slope, warp, rough = _spread(processes, key)
        self.log_weight = jnp.zeros(processes)
        self.log_constant = jnp.full(processes, LOG_CONSTANT)
        # Long functions vary little over a context unless their amplitude is large.
        self.log_amplitude = amplitude + 0.3 * length
        self.log_noise, self.rough = noise, rough
        self.log_slope, self.log_length, self.warp = (jnp.tile(a[:, None], dx) for a in (slope, length, warp))
        self.min_std = min_std

    @property
    def noise(self) -> Float[Array, " j"]:
        """The variance of ε of each process."""
        signal = jnp.exp(2 * self.log_amplitude) + jnp.exp(2 * self.log_constant) + jnp.exp(2 * self.log_slope).sum(-1)
        return jnp.exp(2 * self.log_noise) + self.min_std**2 + LEAST_NOISE * signal

    def axis(self, x: Float[Array, "n dx"]) -> Float[Array, "j n dx"]:
        """v(x) of each process; beyond the context, a straight line."""
        w = jnp.where(abs(self.warp) < LEAST_WARP, LEAST_WARP, self.warp)[:, None]
        inside = jnp.clip(x, -1, 1)
        return (jnp.expm1(w * inside) + w * jnp.exp(w * inside) * (x - inside)) / jnp.expm1(abs(w))

    def covariance(self, v: Float[Array, "j m dx"], other: Float[Array, "j n dx"]) -> Float[Array, "j m n"]:
        """kⱼ(x, x') of each process, for v(x) and v(x')."""
        difference = (v[:, :, None] - other[:, None]) * jnp.exp(-self.log_length)[:, None, None]
        squared = jnp.square(difference).sum(-1)
        d = jnp.sqrt(3 * squared + MIN_VARIANCE)  # the root of 0 has no gradient
        rough = jax.nn.sigmoid(self.rough)[:, None, None]
        shape = (1 - rough) * jnp.exp(-squared / 2) + rough * (1 + d) * jnp.exp(-d)
        slopes = (v * jnp.exp(2 * self.log_slope)[:, None]) @ jnp.swapaxes(other, 1, 2)
        return _each(self.log_constant) + slopes + _each(self.log_amplitude) * shape

    def variance(self, v: Float[Array, "j n dx"]) -> Float[Array, "j n"]:
        """kⱼ(x, x)."""
        fixed = jnp.exp(2 * self.log_constant) + jnp.exp(2 * self.log_amplitude)
        return fixed[:, None] + (jnp.square(v) * jnp.exp(2 * self.log_slope)[:, None]).sum(-1)

    def condition(
        self, x: Float[Array, "n dx"], y: Float[Array, " n"], mask: Bool[Array, " n"]
    ) -> "ConditionedMixture":
        """The processes given labelled points; those that `mask` drops do not count."""
        axis, residual = self.axis(x), jnp.where(mask, y, 0.0)
        among = jnp.where(mask[:, None] & mask, self.covariance(axis, axis), 0.0)
        noise = jnp.where(mask, self.noise[:, None], 1.0)
        whitening = jax.vmap(lambda k, variances: whiten(k + jnp.diag(variances)))(among, noise)
        white = whitening @ residual
        evidence = jnp.log(jnp.diagonal(whitening, axis1=1, axis2=2)).sum(-1) - jnp.square(white).sum(-1) / 2
        weights = jax.nn.softmax(self.log_weight + evidence)
        prior = self.prior(axis, weights)
        return ConditionedMixture(self, weights, prior, axis, mask, residual, whitening, white)

    def prior(self, axis: Float[Array, "j n dx"], weights: Float[Array, " j"]) -> Normal:
        """What the processes say of y before the context.

        Args:
            axis: v(x).
            weights: of the processes.
        """
        variance = weights @ (self.variance(axis) + self.noise[:, None])
        return Normal(jnp.zeros_like(variance), jnp.sqrt(variance))


class ConditionedMixture(eqx.Module):
    """The processes of a task given its context.

    Args:
        mixture: the processes.
        weights: P(j|context).
        prior: what the processes, so weighted, say of the context's y before it.
        axis: v(x) of the context.
        mask: False where a row of the context is padding.
        residual: y.
        whitening: Wⱼ with Wⱼ Kⱼ Wⱼᵀ = I, Kⱼ the covariance of the context's y.
        white: Wⱼ y.
    """

    mixture: ProcessMixture
    weights: Float[Array, " j"]
    prior: Normal
    axis: Float[Array, "j n dx"]
    mask: Bool[Array, " n"]
    residual: Float[Array, " n"]
    whitening: Float[Array, "j n n"]
    white: Float[Array, "j n"]

    def __call__(self, x: Float[Array, "m dx"]) -> tuple[Float[Array, " m"], Float[Array, " m"], Normal]:
        """Mean and deviation of y, and what was said before the context, at x."""
        there = self.mixture.axis(x)
        across = jnp.where(self.mask, self.mixture.covariance(there, self.axis), 0.0)
        across = across @ jnp.swapaxes(self.whitening, 1, 2)
        left = self.mixture.variance(there) - jnp.square(across).sum(-1)
        variance = jnp.maximum(left, MIN_VARIANCE) + self.mixture.noise[:, None]
        mean, std = self._together((across @ self.white[..., None])[..., 0], variance)
        return mean, std, self.mixture.prior(there, self.weights)

    def leave_one_out(self) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
        """(yᵢ − μᵢ)/σᵢ and σᵢ of each context point, predicted from the other points; the weights see all points."""
        precision = jnp.square(self.whitening).sum(1)
        error = (self.white[:, None] @ self.whitening)[:, 0] / precision
        mean, std = self._together(self.residual - error, 1 / precision)
        return jnp.where(self.mask, (self.residual - mean) / std, 0.0), std

    def _together(
        self, mean: Float[Array, "j m"], variance: Float[Array, "j m"]
    ) -> tuple[Float[Array, " m"], Float[Array, " m"]]:
        """Mean and deviation of the mixture."""
        middle = self.weights @ mean
        return middle, jnp.sqrt(self.weights @ (variance + jnp.square(mean - middle)))


def _each(logs: Float[Array, " j"]) -> Float[Array, "j 1 1"]:
    return jnp.exp(2 * logs)[:, None, None]


def _spread(count: int, key: PRNGKeyArray) -> Float[Array, "settings j"]:
    """Points that fill the box `RANGES`: a Kronecker sequence, shifted at random."""
    d, root = len(RANGES), 1.0
    for _ in range(50):
        root = (1 + root) ** (1 / (d + 1))  # to the root of rᵈ⁺¹ = r + 1
    low, high = np.array(RANGES).T[:, :, None]
    steps = np.outer(root ** -np.arange(1.0, d + 1), np.arange(count)) % 1
    return low + (high - low) * ((steps + jax.random.uniform(key, (d, 1))) % 1)


def build_mixtures(outputs: int, key: PRNGKeyArray, **options: int | float) -> ProcessMixture:
    """One mixture for each output, as one with a leading axis in every array.

    Args:
        outputs: dim(y).
        key: source of the initial hyperparameters.
        **options: arguments of `ProcessMixture`.
    """
    return eqx.filter_vmap(lambda k: ProcessMixture(key=k, **options))(jax.random.split(key, outputs))  # type: ignore[arg-type]
