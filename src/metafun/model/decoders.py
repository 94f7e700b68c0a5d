"""The decoder Φ_d: from r(x) to the numbers of a prediction at x."""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .nn import ACTIVATIONS, MLP, Number, dropout


class Decoder(eqx.Module):
    """f(x) from r(x) and x alone, so that targets never see each other."""

    @abstractmethod
    def __call__(
        self, r: Float[Array, "m *k dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m out"]:
        """With a key, the random numbers of training are drawn; without one nothing is random."""


class PredictorWeights(Decoder):
    """f(x) = MLP(x; w) with w = MLP(r(x)): the representation decides the predictor's weights."""

    emit: MLP
    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __init__(self, hidden: Sequence[int], predictor: Sequence[int], activation: str, *, key: PRNGKeyArray):
        """`hidden`: widths from dr to the last hidden layer; `predictor`: widths of f from dx on."""
        self.sizes = tuple(predictor)
        self.activation = ACTIVATIONS[activation]
        emitted = sum(i * o + o for i, o in itertools.pairwise(self.sizes))
        self.emit = MLP([*hidden, emitted], activation, key=key)

    def __call__(
        self, r: Float[Array, "m dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m out"]:
        w = self.emit(r)
        h, start = x, 0
        for i, o in itertools.pairwise(self.sizes):
            weight, bias, start = (
                w[:, start : start + i * o],
                w[:, start + i * o : start + i * o + o],
                start + i * o + o,
            )
            h = jnp.einsum("mi,mio->mo", h, weight.reshape(-1, i, o)) + bias
            h = h if start == w.shape[-1] else self.activation(h)
        return h


class Conditioned(Decoder):
    """f(x) = MLP([r, x]) with r given again to every hidden layer (the model of Table 1)."""

    layers: tuple[MLP, ...]
    seen: int = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __init__(self, seen: int, sizes: Sequence[int], activation: str, *, key: PRNGKeyArray):
        """The predictor sees the first `seen` numbers of r; `sizes` are its widths from dx to its output."""
        keys = jax.random.split(key, len(sizes) - 1)
        self.layers = tuple(
            MLP([seen + i, o], activation, key=k) for k, (i, o) in zip(keys, itertools.pairwise(sizes), strict=True)
        )
        self.seen = seen
        self.activation = ACTIVATIONS[activation]

    def __call__(
        self, r: Float[Array, "m dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m out"]:
        r = r[:, : self.seen]
        h = self.layers[0](jnp.concatenate([r, x], axis=-1))
        for layer in self.layers[1:]:
            h = layer(jnp.concatenate([self.activation(h), r], axis=-1))
        return h


class Identity(Decoder):
    """f(x) = r(x): functional gradient descent (Section 3, condition i)."""

    def __call__(
        self, r: Float[Array, "m dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m out"]:
        return r


class SoftmaxWeights(Decoder):
    """logitₖ = x·wᵏ with wᵏ ∼ 𝒩(μ(rᵏ(x)), σ(rᵏ(x))²) in training and wᵏ = μ(rᵏ(x)) otherwise, as in LEO.

    μ and s are one linear map of rᵏ; σ = max(exp(s) − (1 − √(2/(N + dx))), 1e-10) starts near Glorot's scale.
    Each wᵏ meets one x only, so that x·wᵏ itself is drawn: ∼ 𝒩(x·μ, x²·σ²), one normal number instead of dx.
    N counts all classes that there is room for, which is to be that of the task in training.
    With a `bias` x gets a last entry of 1. Without one, only inputs with a common direction (as those of a network
    that ends in ReLU have) can be told apart: rᵏ knows how similar inputs are, and nothing of where they point.
    """

    linear: MLP
    dropout: Number
    bias: bool = eqx.field(static=True, default=False)

    def __call__(
        self, r: Float[Array, "m k dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m k"]:
        (w_mean, w_s), (b_mean, b_s) = (jnp.split(p[0], 2, axis=-1) for p in (self.linear.weights, self.linear.biases))
        key_x, key_w = (None, None) if key is None else jax.random.split(key)
        x = dropout(x, self.dropout, key_x)
        if self.bias:
            x = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=-1)
        # (W rᵏ)·x = rᵏ·(Wᵀ x): x is mapped once, not every rᵏ.
        logits = jnp.einsum("md,mkd->mk", x @ w_mean.T, r) + (x @ b_mean)[:, None]
        if key_w is None:
            return logits
        offset = 1 - math.sqrt(2 / (r.shape[1] + x.shape[-1]))
        std = jnp.maximum(jnp.exp(r @ w_s + b_s) - offset, 1e-10)
        variance = jnp.einsum("md,mkd->mk", jnp.square(x), jnp.square(std))
        # The root has no derivative at 0, where an x is all zeros.
        return logits + jnp.sqrt(jnp.maximum(variance, 1e-20)) * jax.random.normal(key_w, logits.shape, x.dtype)


class Logits(Decoder):
    """logitₖ = rᵏ(x), one number a class: functional gradient descent for classification (Section 3)."""

    def __call__(
        self, r: Float[Array, "m k 1"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m k"]:
        return r[..., 0]
