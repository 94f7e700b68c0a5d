"""The order in which targets join the context when a model is run along them."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray


class Order(eqx.Module):
    """A permutation of the targets of a task."""

    @abstractmethod
    def place(self, x: Float[Array, "m dx"], mask: Bool[Array, " m"], key: PRNGKeyArray) -> Float[Array, " m"]:
        """A number for each target: those with smaller ones come first. Its value at padding does not matter."""

    def __call__(self, x: Float[Array, "m dx"], mask: Bool[Array, " m"], key: PRNGKeyArray) -> Int[Array, " m"]:
        """Rows of x in the order in which they join; padding comes last.

        Args:
            x: inputs of the targets.
            mask: False where a row is padding.
            key: source of a random order.
        """
        return jnp.argsort(jnp.where(mask, self.place(x, mask, key), jnp.inf), stable=True)


class Given(Order):
    """The order of the rows."""

    def place(self, x: Float[Array, "m dx"], mask: Bool[Array, " m"], key: PRNGKeyArray) -> Float[Array, " m"]:
        return jnp.arange(len(x), dtype=float)


class Random(Order):
    """All orders are equally likely."""

    def place(self, x: Float[Array, "m dx"], mask: Bool[Array, " m"], key: PRNGKeyArray) -> Float[Array, " m"]:
        return jax.random.uniform(key, (len(x),))


class LeftToRight(Order):
    """By the first input, from the least to the largest."""

    def place(self, x: Float[Array, "m dx"], mask: Bool[Array, " m"], key: PRNGKeyArray) -> Float[Array, " m"]:
        return x[:, 0]


class CoarseToFine(Order):
    """By the first input, distant ones first and then those between them (the van der Corput sequence)."""

    def place(self, x: Float[Array, "m dx"], mask: Bool[Array, " m"], key: PRNGKeyArray) -> Float[Array, " m"]:
        by_input = jnp.argsort(jnp.where(mask, x[:, 0], jnp.inf), stable=True)
        rank = jnp.zeros(len(x), int).at[by_input].set(jnp.arange(len(x)))
        # The bits of the rank, reversed.
        bits = max(1, (len(x) - 1).bit_length())
        reversed_bits = np.array([int(f"{i:0{bits}b}"[::-1], 2) for i in range(len(x))], float)
        return jnp.asarray(reversed_bits)[rank]


ORDERS: dict[str, type[Order]] = {
    "random": Random,
    "left-to-right": LeftToRight,
    "coarse-to-fine": CoarseToFine,
    "given": Given,
}
