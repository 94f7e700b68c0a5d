"""Random functions of time: smooth and rough processes, periodic ones, sawtooth waves, growth, powers, and mixtures."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .draws import log_uniform, normals

FREQUENCIES = 96
# Share of series of a single kind; the others are mixtures.
ALONE = 0.6


def draw(key: PRNGKeyArray, t: Float[Array, " n"]) -> Float[Array, " n"]:
    """A random function at t, standardised over t."""
    key_shares, key_alone, key_trend, *keys = jax.random.split(key, 3 + len(KINDS))
    each = jnp.stack([_standardise(kind(k, t)) for (kind, _), k in zip(KINDS, keys, strict=True)])
    (noise,) = normals(key_shares, (len(KINDS),))
    weights = jnp.log(jnp.array([weight for _, weight in KINDS])) + noise
    key_kind, key_is_alone = jax.random.split(key_alone)
    alone = jax.nn.one_hot(jax.random.categorical(key_kind, weights), len(KINDS))
    shares = jnp.where(jax.random.bernoulli(key_is_alone, ALONE), alone, jax.nn.softmax(weights))
    key_there, key_slope = jax.random.split(key_trend)
    slope = jax.random.bernoulli(key_there, 0.3) * jax.random.normal(key_slope)
    return _standardise(_standardise(shares @ each) + slope * _standardise(t))


def smooth(key: PRNGKeyArray, t: Float[Array, " n"]) -> Float[Array, " n"]:
    """Gaussian processes by random Fourier features; widely spread frequencies make rough functions."""
    key_normal, key_phase, key_length, key_rough = jax.random.split(key, 4)
    w, sizes, sums = normals(key_normal, *[(FREQUENCIES,)] * 3)
    rough = jnp.maximum(jax.random.uniform(key_rough, minval=-0.6, maxval=1.2), 0)
    frequencies = w * jnp.exp(rough * sizes) / log_uniform(key_length, 0.06, 3.0)
    phase = jax.random.uniform(key_phase, (FREQUENCIES,), maxval=2 * math.pi)
    return jnp.cos(t[:, None] * frequencies + phase) @ sums


def periodic(key: PRNGKeyArray, t: Float[Array, " n"]) -> Float[Array, " n"]:
    """Processes with the covariance exp(−2 sin²(π(t−t')/p)/ℓ²): features of a point on a circle."""
    key_normal, key_phase, key_period, key_length = jax.random.split(key, 4)
    w, sums = normals(key_normal, (2, FREQUENCIES), (FREQUENCIES,))
    angle = 2 * math.pi * t / log_uniform(key_period, 0.15, 1.5)
    circle = jnp.stack([jnp.sin(angle), jnp.cos(angle)], -1) / log_uniform(key_length, 0.5, 4.0)
    phase = jax.random.uniform(key_phase, (FREQUENCIES,), maxval=2 * math.pi)
    return jnp.cos(circle @ w + phase) @ sums


def sawtooth(key: PRNGKeyArray, t: Float[Array, " n"]) -> Float[Array, " n"]:
    """±(t/p + c mod 1)."""
    key_period, key_phase, key_sign = jax.random.split(key, 3)
    phase, sign = jax.random.uniform(key_phase), jnp.where(jax.random.bernoulli(key_sign), 1, -1)
    return sign * ((t / log_uniform(key_period, 0.15, 1.0) + phase) % 1)


def growth(key: PRNGKeyArray, t: Float[Array, " n"]) -> Float[Array, " n"]:
    """Logistic curves ±1/(1 + exp(−(t−c)/w)): growth, decay, saturation, and steps where w is small."""
    key_middle, key_width, key_sign = jax.random.split(key, 3)
    middle, width = jax.random.uniform(key_middle, minval=-0.3, maxval=1.0), log_uniform(key_width, 0.02, 0.6)
    return jnp.where(jax.random.bernoulli(key_sign), 1, -1) * jax.nn.sigmoid((t - middle) / width)


def power(key: PRNGKeyArray, t: Float[Array, " n"]) -> Float[Array, " n"]:
    """±(t + c)ᵖ: straight lines, roots and squares, and with p < 0 decays such as those of concentrations."""
    key_start, key_power, key_falls, key_sign = jax.random.split(key, 4)
    p = jnp.where(jax.random.bernoulli(key_falls, 0.25), -1, 1) * log_uniform(key_power, 0.3, 3.0)
    sign = jnp.where(jax.random.bernoulli(key_sign), 1, -1)
    return sign * (jnp.maximum(t, 0) + log_uniform(key_start, 0.03, 1.0)) ** p


# Each kind with its share among series of a single kind, before these are varied.
KINDS: tuple[tuple[Callable[[PRNGKeyArray, Float[Array, " n"]], Float[Array, " n"]], float], ...] = (
    (smooth, 0.45),
    (periodic, 0.15),
    (sawtooth, 0.05),
    (growth, 0.15),
    (power, 0.2),
)


def _standardise(values: Float[Array, " n"]) -> Float[Array, " n"]:
    return (values - values.mean()) / (values.std() + 1e-6)
