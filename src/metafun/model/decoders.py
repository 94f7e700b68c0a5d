"""The decoder Φ_d: from r(x) to the parameters of the predictive distribution at x."""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .nn import ACTIVATIONS, MLP, Hyperparameter, dropout


class Decoder(eqx.Module):
    """f(x) from r(x) and x alone: targets never see each other."""

    @abstractmethod
    def __call__(
        self, r: Float[Array, "m *k dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m out"]:
        """The raw outputs that the likelihood turns into a prediction.

        Args:
            r: the representation at each x; in classification one for each of the k classes.
            x: inputs.
            key: source of training-time noise; without one the decoder is deterministic.
        """


class PredictorWeights(Decoder):
    """f(x) = MLP(x; w) with w = MLP(r(x)): the representation determines the predictor's weights.

    Args:
        hidden: widths of the network that emits w, from dim(r) to its last hidden layer.
        predictor: widths of f, from dim(x) to its output.
        activation: name of φ in both networks.
        key: source of the initial weights.
    """

    emit: MLP
    sizes: tuple[int, ...] = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __init__(self, hidden: Sequence[int], predictor: Sequence[int], activation: str, *, key: PRNGKeyArray):
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
    """f(x) = MLP([r, x]) with r fed to every layer again (the model of Table 1).

    Args:
        seen: number of leading entries of r that the predictor sees.
        sizes: widths of f, from dim(x) to its output.
        activation: name of φ.
        key: source of the initial weights.
    """

    layers: tuple[MLP, ...]
    seen: int = eqx.field(static=True)
    activation: Callable = eqx.field(static=True)

    def __init__(self, seen: int, sizes: Sequence[int], activation: str, *, key: PRNGKeyArray):
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


class Concatenated(Decoder):
    """f(x) = MLP([x, r(x)]), r fed to the first layer alone (the footnote in Section 2.2).

    Args:
        mlp: network from dim(x) + dim(r) to the outputs.
    """

    mlp: MLP

    def __call__(
        self, r: Float[Array, "m dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m out"]:
        return self.mlp(jnp.concatenate([x, r], axis=-1))


class Identity(Decoder):
    """f(x) = r(x): functional gradient descent (Section 3, condition i)."""

    def __call__(
        self, r: Float[Array, "m dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m out"]:
        return r


class SoftmaxWeights(Decoder):
    """logitₖ = x·wᵏ with wᵏ ∼ 𝒩(μ(rᵏ(x)), σ(rᵏ(x))²) in training and wᵏ = μ(rᵏ(x)) otherwise, as in LEO.

    μ and s are a linear map of rᵏ, or an MLP of it; σ = max(exp(s) − (1 − √(2/(N + dx))), 1e-10) starts near Glorot's
    scale.
    Each wᵏ meets a single x, so x·wᵏ ∼ 𝒩(x·μ, x²·σ²) is drawn directly: one normal variate instead of dx.
    N counts all classes, padding included; in training a task should have no padded class.
    rᵏ holds similarities between inputs, not their directions. Without a bias, classes can therefore be separated only
    if all inputs share a common direction, as the outputs of a ReLU do.

    Args:
        linear: one layer from dim(r), or from the last hidden layer, to (μ, s).
        dropout: rate of the dropout on x in training.
        bias: whether 1 is appended to x.
        hidden: the hidden layers between rᵏ and `linear`, if any.
    """

    linear: MLP
    dropout: Hyperparameter
    bias: bool = eqx.field(static=True, default=False)
    hidden: MLP | None = None

    def __call__(
        self, r: Float[Array, "m k dr"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m k"]:
        (w_mean, w_s), (b_mean, b_s) = (jnp.split(p[0], 2, axis=-1) for p in (self.linear.weights, self.linear.biases))
        key_x, key_w = (None, None) if key is None else jax.random.split(key)
        x = dropout(x, self.dropout, key_x)
        if self.bias:
            x = jnp.concatenate([x, jnp.ones_like(x[:, :1])], axis=-1)
        h = r if self.hidden is None else self.hidden.activation(self.hidden(r))
        # (W hᵏ)·x = hᵏ·(Wᵀ x): x is mapped once, not every hᵏ.
        logits = jnp.einsum("md,mkd->mk", x @ w_mean.T, h) + (x @ b_mean)[:, None]
        if key_w is None:
            return logits
        offset = 1 - math.sqrt(2 / (r.shape[1] + x.shape[-1]))
        std = jnp.maximum(jnp.exp(h @ w_s + b_s) - offset, 1e-10)
        variance = jnp.einsum("md,mkd->mk", jnp.square(x), jnp.square(std))
        # Where x = 0 the variance is 0, and the root has no derivative there.
        return logits + jnp.sqrt(jnp.maximum(variance, 1e-20)) * jax.random.normal(key_w, logits.shape, x.dtype)


class Logits(Decoder):
    """logitₖ = rᵏ(x), a scalar for each class: functional gradient descent for classification (Section 3)."""

    def __call__(
        self, r: Float[Array, "m k 1"], x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Float[Array, "m k"]:
        return r[..., 0]
