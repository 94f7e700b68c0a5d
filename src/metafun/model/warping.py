"""A monotone map of outputs to nearly normal ones, so that skewed outputs are no special case."""

import math
from typing import Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .likelihoods import Mixture, Normal, masked_mean

# The powers to choose from: 0 is the logarithm of large outputs, 1 no change, 2 the logarithm of small ones.
POWERS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0)
# Log-probability that each unit of power costs, squared: few outputs do not show that they are skewed.
COST = 4.0
# Outputs are predicted within these bounds, in units of their scale.
LARGEST = 40.0
MIN_VARIANCE = 1e-8
# The components that a mapped normal is approximated by, and their share of its deviation.
COMPONENTS, SHARE = 8, 0.7


class Warp(eqx.Module):
    """z = (T(y) − centre) / scale, T the power transform of Yeo and Johnson (2000).

    Args:
        power: λ of each output.
        centre: mean of T(y).
        scale: deviation of T(y).
    """

    power: Float[Array, " k"]
    centre: Float[Array, " k"]
    scale: Float[Array, " k"]

    @classmethod
    def of(cls, y: Float[Array, "n k"], mask: Bool[Array, " n"]) -> Self:
        """The most probable warp of outputs of scale 1 and median 0; powers are averaged over their posterior.

        Args:
            y: outputs of the context.
            mask: False where a row is padding.
        """
        powers = jnp.array(POWERS, y.dtype)
        y = jnp.where(mask[:, None], y, 0)

        def log_posterior(power: Float[Array, ""]) -> Float[Array, " k"]:
            _, variance = _moments(_power(y, power), mask)
            growth = (jnp.sign(y) * jnp.log1p(abs(y))).sum(0)
            return (power - 1) * growth - mask.sum() / 2 * jnp.log(variance) - COST * jnp.square(power - 1)

        power = powers @ jax.nn.softmax(jax.vmap(log_posterior)(powers), axis=0)
        centre, variance = _moments(_power(y, power), mask)
        return cls(power, centre, jnp.sqrt(variance))

    def __call__(self, y: Float[Array, "n k"]) -> Float[Array, "n k"]:
        """z of y."""
        return (_power(y, self.power) - self.centre) / self.scale

    def inverse(self, z: Float[Array, "*s n k"]) -> Float[Array, "*s n k"]:
        """y of z, within ± `LARGEST`."""
        t = self.centre + self.scale * z
        above, below = _above_and_below(self.power)
        up = jnp.log1p(above * jnp.maximum(t, 0)) / above
        down = jnp.log1p(below * jnp.maximum(-t, 0)) / below
        most = jnp.log1p(LARGEST)
        return jnp.expm1(jnp.minimum(up, most)) - jnp.expm1(jnp.minimum(down, most))

    def unwarped(self, prediction: Normal) -> Mixture:
        """The distribution of y where z is normal.

        Its components are narrower normals, of which the mean and the deviation are mapped.

        Args:
            prediction: the distribution of z.
        """
        levels = (jnp.arange(COMPONENTS) + 0.5) / COMPONENTS
        at = jax.scipy.stats.norm.ppf(levels)
        at = at * jnp.sqrt((1 - SHARE**2) / jnp.square(at).mean())
        # Gauss and Hermite's three points of each component.
        weights, points = jnp.array([1, 4, 1]) / 6, SHARE * math.sqrt(3) * jnp.array([-1.0, 0.0, 1.0])
        y = self.inverse(prediction.mean + prediction.std * (at[:, None] + points)[..., None, None])
        mean = jnp.einsum("p,sp...->s...", weights, y)
        variance = jnp.einsum("p,sp...->s...", weights, jnp.square(y - mean[:, None]))
        return Mixture(Normal(mean, jnp.sqrt(variance + MIN_VARIANCE)))


def _above_and_below(power: Float[Array, "*k"]) -> tuple[Float[Array, "*k"], Float[Array, "*k"]]:
    """λ and 2 − λ, the powers of positive and of negative outputs; the logarithm is their limit at 0."""
    return jnp.maximum(power, 1e-3), jnp.maximum(2 - power, 1e-3)


def _power(y: Float[Array, "n k"], power: Float[Array, "*k"]) -> Float[Array, "n k"]:
    above, below = _above_and_below(power)
    up = jnp.expm1(above * jnp.log1p(jnp.maximum(y, 0))) / above
    return up - jnp.expm1(below * jnp.log1p(jnp.maximum(-y, 0))) / below


def _moments(z: Float[Array, "n k"], mask: Bool[Array, " n"]) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """Mean and variance; as of one more row whose square is 1 and which does not move the mean."""
    mean = masked_mean(z, mask)
    squares = jnp.where(mask[:, None], jnp.square(z - mean), 0).sum(0)
    return mean, (squares + 1) / (mask.sum() + 1)
