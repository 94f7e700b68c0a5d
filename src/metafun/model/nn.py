"""The multi-layer perceptron that every component is made of."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

ACTIVATIONS: dict[str, Callable] = {
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
}

# An array only where variants that train at once differ in it: one value for each of them.
Hyperparameter = float | Float[Array, ""]

_glorot_uniform = jax.nn.initializers.glorot_uniform()


class MLP(eqx.Module):
    """x ↦ W_L φ(… φ(W₁ x + b₁) …) + b_L: no activation after the last layer.

    Weights start Glorot-uniform and are stored [in, out]; biases start at 0, as in the authors' program.

    Args:
        sizes: widths from input to output, [in, hidden, …, out].
        activation: name of φ, a key of `ACTIVATIONS`.
        bias: whether the layers have biases.
        key: source of the initial weights.
    """

    weights: tuple[Float[Array, "i o"], ...]
    biases: tuple[Float[Array, " o"], ...]
    activation: Callable = eqx.field(static=True)

    def __init__(self, sizes: Sequence[int], activation: str, *, bias: bool = True, key: PRNGKeyArray):
        keys = jax.random.split(key, len(sizes) - 1)
        shapes = list(itertools.pairwise(sizes))
        self.weights = tuple(_glorot_uniform(k, shape) for k, shape in zip(keys, shapes, strict=True))
        self.biases = tuple(jnp.zeros(o) for _, o in shapes if bias)
        self.activation = ACTIVATIONS[activation]

    def __call__(self, x: Float[Array, "*batch i"]) -> Float[Array, "*batch o"]:
        for i, w in enumerate(self.weights):
            x = x @ w + self.biases[i] if self.biases else x @ w
            x = self.activation(x) if i < len(self.weights) - 1 else x
        return x


def with_random_biases(mlp: MLP, key: PRNGKeyArray) -> MLP:
    """The network with biases that start as Glorot-uniform weights of an additional input of 1.

    With ReLU and biases of 0, a network is 0 at the input 0 and so are its derivatives: what comes before it gets no
    gradient.

    Args:
        mlp: a network with biases.
        key: source of the biases.
    """
    keys = jax.random.split(key, len(mlp.biases))
    biases = tuple(_glorot_uniform(k, (1, b.size))[0] for k, b in zip(keys, mlp.biases, strict=True))
    return eqx.tree_at(lambda net: net.biases, mlp, biases)


def dropout(x: Float[Array, "*shape"], rate: Hyperparameter, key: PRNGKeyArray | None) -> Float[Array, "*shape"]:
    """Sets each entry to 0 with probability `rate` and scales the others to keep the mean; the identity without a key.

    Args:
        x: array of any shape.
        rate: probability of 0, below 1.
        key: source of randomness, given in training only.
    """
    if key is None or (isinstance(rate, float) and rate == 0):
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def is_array(leaf: Any) -> bool:
    """Whether a leaf of a model is a parameter: an array, or the shape of one."""
    return isinstance(leaf, (jax.Array, np.ndarray, jax.ShapeDtypeStruct))


def count_parameters(model: eqx.Module) -> int:
    """The number of trainable parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
