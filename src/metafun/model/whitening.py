"""Inverse Cholesky factors: without LAPACK on CPUs, and with a gradient of four matrix products."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

# Smallest variance that rounding may leave.
MIN_VARIANCE = 1e-6
# Rows that are added at once.
BLOCK = 32


@jax.custom_vjp
def whiten(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """W = L⁻¹ with L Lᵀ = K, so that W K Wᵀ = I and K⁻¹ = Wᵀ W.

    XLA runs LAPACK's batched factorisations on the threads that wait for them, and a training that contains them can
    hang where there are two threads. On CPUs, W is therefore built by blocks of rows.

    Args:
        covariance: K, symmetric and positive definite.
    """
    with jax.default_matmul_precision("highest"):
        return jax.lax.platform_dependent(covariance, cpu=_by_blocks, default=_by_factorisation)


def _forward(covariance: Float[Array, "n n"]) -> tuple[Float[Array, "n n"], Float[Array, "n n"]]:
    W = whiten(covariance)
    return W, W


def _backward(W: Float[Array, "n n"], cotangent: Float[Array, "n n"]) -> tuple[Float[Array, "n n"]]:
    """dW = −Φ(W dK Wᵀ) W; Φ keeps the lower triangle and half of the diagonal."""
    with jax.default_matmul_precision("highest"):
        lower = jnp.tril(jnp.ones_like(W)) - jnp.eye(len(W), dtype=W.dtype) / 2
        change = -W.T @ (lower * (cotangent @ W.T)) @ W
        return ((change + change.T) / 2,)


whiten.defvjp(_forward, _backward)


def _by_factorisation(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    eye = jnp.eye(len(covariance), dtype=covariance.dtype)
    factor = jnp.linalg.cholesky(covariance + MIN_VARIANCE * eye)
    return jax.scipy.linalg.solve_triangular(factor, eye, lower=True)


def _by_blocks(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    n = len(covariance)
    if n <= BLOCK:
        return _by_rows(covariance)
    size = -(-n // BLOCK) * BLOCK
    padded = jnp.eye(size, dtype=covariance.dtype).at[:n, :n].set(covariance)

    def add_block(W: Float[Array, "s s"], start: Array) -> tuple[Float[Array, "s s"], None]:
        rows = jax.lax.dynamic_slice_in_dim(padded, start, BLOCK)
        # Rows of W that are not built yet are 0.
        C = rows @ W.T
        own = jax.lax.dynamic_slice_in_dim(rows, start, BLOCK, axis=1)
        w = _by_rows(own - C @ C.T)
        new = -w @ (C @ W)
        new = jax.lax.dynamic_update_slice_in_dim(new, w, start, axis=1)
        return jax.lax.dynamic_update_slice_in_dim(W, new, start, axis=0), None

    return jax.lax.scan(add_block, jnp.zeros_like(padded), jnp.arange(0, size, BLOCK))[0][:n, :n]


def _by_rows(covariance: Float[Array, "n n"]) -> Float[Array, "n n"]:
    def add_row(W: Float[Array, "n n"], row: tuple[Array, Array]) -> tuple[Float[Array, "n n"], None]:
        k, e = row
        c = W @ k
        d = jnp.sqrt(jnp.maximum(e @ k - c @ c, MIN_VARIANCE))
        return W + jnp.outer(e, (e - c @ W) / d), None

    eye = jnp.eye(len(covariance), dtype=covariance.dtype)
    return jax.lax.scan(add_row, jnp.zeros_like(covariance), (covariance, eye))[0]
