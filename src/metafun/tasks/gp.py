"""Gaussian processes: kernels, and exact inference with known hyperparameters."""

import functools
import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from ..model.likelihoods import Normal
from ..model.task import Points

# Smallest noise variance as a fraction of s²: below it, the float32 Cholesky factorisation fails at repeated inputs.
LEAST_NOISE = 1e-5


class Kernel(eqx.Module):
    """The covariance k(x, x').

    Args:
        scale: standard deviation s of the process.
        lengthscale: length scale ℓ.
    """

    scale: Float[Array, ""]
    lengthscale: Float[Array, ""]

    @abstractmethod
    def __call__(self, x: Float[Array, "m dx"], y: Float[Array, "n dx"]) -> Float[Array, "m n"]: ...


class RBF(Kernel):
    """k = s² exp(−‖x−x'‖²/2ℓ²)."""

    def __call__(self, x: Float[Array, "m dx"], y: Float[Array, "n dx"]) -> Float[Array, "m n"]:
        return self.scale**2 * jnp.exp(-_squares(x, y) / (2 * self.lengthscale**2))


class Matern52(Kernel):
    """k = s² (1 + √5 d + 5d²/3) exp(−√5 d) with d = ‖x−x'‖/ℓ."""

    def __call__(self, x: Float[Array, "m dx"], y: Float[Array, "n dx"]) -> Float[Array, "m n"]:
        # √ has an infinite derivative at 0, which would make gradients NaN.
        d = jnp.sqrt(5 * jnp.maximum(_squares(x, y), 1e-20)) / self.lengthscale
        return self.scale**2 * (1 + d + d**2 / 3) * jnp.exp(-d)


class Periodic(Kernel):
    """k = s² exp(−2 Σ sin²(π(x−x')/p)/ℓ²), the sum over the inputs' dimensions."""

    period: Float[Array, ""]

    def __call__(self, x: Float[Array, "m dx"], y: Float[Array, "n dx"]) -> Float[Array, "m n"]:
        sines = jnp.sin(math.pi * (x[:, None] - y) / self.period)
        return self.scale**2 * jnp.exp(-2 * jnp.square(sines).sum(-1) / self.lengthscale**2)


KERNELS = {"rbf": RBF, "matern52": Matern52, "periodic": Periodic}


class GaussianProcess(eqx.Module):
    """y = f(x) + ε with f ∼ GP(0, k) and ε ∼ 𝒩(0, σ²).

    Args:
        kernel: k.
        noise: σ.
    """

    kernel: Kernel
    noise: Float[Array, ""]

    def sample(self, key: PRNGKeyArray, x: Float[Array, "n dx"]) -> Float[Array, "n 1"]:
        """A draw of y at x, jointly."""
        root = self._root(x, jnp.ones(len(x), bool))
        return root @ jax.random.normal(key, (len(x), 1), x.dtype)

    def predict(self, context: Points, x: Float[Array, "m dx"]) -> Normal:
        """P(y|x, context), the marginal of each x: the factorised prediction that neural processes approximate."""
        root = self._root(context.x, context.mask)
        y = jnp.where(context.mask[:, None], context.y, 0)
        cross = jnp.where(context.mask, self.kernel(x, context.x), 0)
        half = _solve(root, cross.T)
        mean = half.T @ _solve(root, y)
        prior, least = self.kernel.scale**2 + self._variance(), self._variance()
        return Normal(mean, jnp.sqrt(jnp.maximum(prior - jnp.square(half).sum(0), least))[:, None])

    def log_prob(self, points: Points) -> Float[Array, ""]:
        """log P(y₁, …, yₙ|x₁, …, xₙ), jointly. For targets given a context, take the difference of two."""
        root = self._root(points.x, points.mask)
        z = _solve(root, jnp.where(points.mask[:, None], points.y, 0))
        count = points.mask.sum()
        return -(jnp.square(z).sum() + count * math.log(2 * math.pi)) / 2 - jnp.log(jnp.diagonal(root)).sum()

    def _variance(self) -> Float[Array, ""]:
        return jnp.maximum(self.noise**2, LEAST_NOISE * self.kernel.scale**2)

    def _root(self, x: Float[Array, "n dx"], mask: Bool[Array, " n"]) -> Float[Array, "n n"]:
        """The Cholesky factor of K + σ²I, with a row of the identity for each padded point."""
        there = mask[:, None] & mask
        covariance = jnp.where(there, self.kernel(x, x), 0) + jnp.diag(jnp.where(mask, self._variance(), 1))
        return _cholesky(covariance)


# On the CPU, the next two functions avoid LAPACK, whose threads deadlock with those of several CPU devices.


def _cholesky(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """L with L Lᵀ = a."""

    def by_columns(a: Array) -> Array:
        def step(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            rest, root = state
            column = jnp.where(jnp.arange(len(a)) >= j, rest[:, j] / jnp.sqrt(rest[j, j]), 0)
            return rest - jnp.outer(column, column), root.at[:, j].set(column)

        return jax.lax.fori_loop(0, len(a), step, (a, jnp.zeros_like(a)))[1]

    return jax.lax.platform_dependent(a, cpu=by_columns, default=jnp.linalg.cholesky) if len(a) else a


def _solve(root: Float[Array, "n n"], b: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """L⁻¹ b for a lower triangle L."""

    def by_columns(root: Array, b: Array) -> Array:
        def step(j: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            rest, z = state
            row = rest[j] / root[j, j]
            return rest - jnp.outer(root[:, j], row), z.at[j].set(row)

        return jax.lax.fori_loop(0, len(b), step, (b, jnp.zeros_like(b)))[1]

    default = functools.partial(solve_triangular, lower=True)
    return jax.lax.platform_dependent(root, b, cpu=by_columns, default=default) if len(b) else b


def _squares(x: Float[Array, "m dx"], y: Float[Array, "n dx"]) -> Float[Array, "m n"]:
    # Differences, not inner products: float32 would lose the distance of nearby points.
    return jnp.square(x[:, None] - y).sum(-1)
