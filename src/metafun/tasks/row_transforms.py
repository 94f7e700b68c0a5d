"""From stored rows to the inputs of a task: features of length one, or the pixels of an image."""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .preprocessing import Preprocessing, unit


class RowTransform(eqx.Module):
    """Applied to the rows of a task as it is drawn."""

    @property
    def copies(self) -> int:
        """Number of classes made from each class, e.g. one for each rotation."""
        return 1

    @abstractmethod
    def __call__(
        self, rows: Float[Array, "ways each dx"], copy: Int[Array, " ways"], key: PRNGKeyArray
    ) -> Float[Array, "ways each dx"]:
        """The inputs of a task.

        Args:
            rows: stored rows of each class.
            copy: for each class, which of its copies.
            key: source of the augmentation.
        """


class UnitLength(RowTransform):
    """Features of length one.

    Args:
        noise: root mean square length of the normal noise that is added; the sum is scaled to length one again.
        preprocessing: of every row.
    """

    noise: float = eqx.field(static=True, default=0.0)
    preprocessing: Preprocessing = Preprocessing()

    def __call__(
        self, rows: Float[Array, "ways each dx"], copy: Int[Array, " ways"], key: PRNGKeyArray
    ) -> Float[Array, "ways each dx"]:
        x = self.preprocessing(rows)
        if self.noise:
            x = unit(x + self.noise / math.sqrt(x.shape[-1]) * jax.random.normal(key, x.shape, x.dtype))
        return x


class Unchanged(RowTransform):
    """Rows as they are stored."""

    def __call__(
        self, rows: Float[Array, "ways each dx"], copy: Int[Array, " ways"], key: PRNGKeyArray
    ) -> Float[Array, "ways each dx"]:
        return rows


class Pixels(RowTransform):
    """Pixels from 0 to 1.

    Args:
        image: height and width.
        rotations: make four classes of each, rotated by multiples of 90°.
        jitter: strength of a random affine map, drawn for each image.
    """

    image: tuple[int, int] = eqx.field(static=True)
    rotations: bool = eqx.field(static=True, default=False)
    jitter: float = eqx.field(static=True, default=0.0)

    @property
    def copies(self) -> int:
        return 4 if self.rotations else 1

    def __call__(
        self, rows: Float[Array, "ways each dx"], copy: Int[Array, " ways"], key: PRNGKeyArray
    ) -> Float[Array, "ways each dx"]:
        images = rows.reshape(*rows.shape[:2], *self.image, -1) / 255
        if self.rotations:
            turned = jnp.stack([jnp.rot90(images, k, (2, 3)) for k in range(self.copies)])
            images = turned[copy, jnp.arange(len(copy))]
        if self.jitter:
            keys = jax.random.split(key, images.shape[:2])
            images = jax.vmap(jax.vmap(lambda image, key: jittered(image, self.jitter, key)))(images, keys)
        return images.reshape(rows.shape)


def jittered(image: Float[Array, "a b c"], jitter: float, key: PRNGKeyArray) -> Float[Array, "a b c"]:
    """The image under a random affine map: matrix I + jitter·ε, shift jitter·ε half images, with ε ∼ 𝒩(0, 1)."""
    key_matrix, key_shift = jax.random.split(key)
    size = jnp.asarray(image.shape[:2])
    half = (size - 1) / 2
    matrix = jnp.eye(2) + jitter * jax.random.normal(key_matrix, (2, 2))
    shift = jitter * half * jax.random.normal(key_shift, (2,))
    places = jnp.moveaxis(jnp.indices(image.shape[:2]), 0, -1) - half
    at = jnp.moveaxis(places @ matrix.T + half + shift, -1, 0)
    return jax.vmap(lambda channel: map_coordinates(channel, list(at), order=1, mode="nearest"), -1, -1)(image)
