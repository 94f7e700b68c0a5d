"""Images to vectors, by the convolutional network common in few-shot learning."""

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .base import Embedding

_he = jax.nn.initializers.he_normal()


class Block(eqx.Module):
    """A 3 × 3 convolution, normalisation, ReLU and 2 × 2 max pooling.

    Normalisation is over groups of channels within an image: across a batch, the images of a task would see each other.

    Args:
        size: channels in and out.
        groups: number of groups of channels that are normalised together.
        precision: dtype of the products.
        key: source of the initial weights.
    """

    kernel: Float[Array, "i o"]
    scale: Float[Array, " o"]
    shift: Float[Array, " o"]
    groups: int = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(self, size: tuple[int, int], groups: int, precision: str, *, key: PRNGKeyArray):
        self.kernel = _he(key, (9 * size[0], size[1]))
        self.scale, self.shift = jnp.ones(size[1]), jnp.zeros(size[1])
        self.groups, self.precision = groups, precision

    def __call__(self, h: Float[Array, "m a b i"]) -> Float[Array, "m c d o"]:
        h, kernel = _windows(h.astype(self.precision)), self.kernel.astype(self.precision)
        # Tensor cores of a GPU need sizes that are multiples of 8; the first block of a grey image has 9.
        missing = -h.shape[-1] % 8 if h.dtype.itemsize < 4 else 0
        h = jnp.pad(h, [*[(0, 0)] * 3, (0, missing)]) @ jnp.pad(kernel, [(0, missing), (0, 0)])
        return _pool(jax.nn.relu(self.scale * self._normalised(h.astype(self.scale.dtype)) + self.shift))

    def _normalised(self, h: Float[Array, "m a b o"]) -> Float[Array, "m a b o"]:
        grouped = h.reshape(*h.shape[:3], self.groups, h.shape[3] // self.groups)
        mean = grouped.mean((1, 2, 4), keepdims=True)
        variance = jnp.square(grouped - mean).mean((1, 2, 4), keepdims=True)
        return ((grouped - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(h.shape)


class ConvNet(Embedding):
    """A sequence of blocks.

    Args:
        image: height and width.
        channels: channels of the image, 1 or 3, then of each block's output.
        groups: groups of channels in the normalisation.
        precision: dtype of the products.
        key: source of the initial weights.
    """

    blocks: tuple[Block, ...]
    image: tuple[int, int] = eqx.field(static=True)

    def __init__(
        self,
        image: tuple[int, int],
        channels: Sequence[int],
        groups: int,
        precision: str = "float32",
        *,
        key: PRNGKeyArray,
    ):
        sizes = list(itertools.pairwise(channels))
        keys = jax.random.split(key, len(sizes))
        self.blocks = tuple(Block(size, groups, precision, key=k) for k, size in zip(keys, sizes, strict=True))
        self.image = image

    @property
    def size(self) -> int:
        a, b = self.image
        for _ in self.blocks:
            a, b = (a // 2, b // 2) if min(a, b) > 1 else (a, b)
        return a * b * self.blocks[-1].scale.shape[-1]

    def __call__(self, x: Float[Array, "m dx"], summary: None = None) -> Float[Array, "m e"]:
        h = x.reshape(x.shape[0], *self.image, self.blocks[0].kernel.shape[0] // 9)
        for block in self.blocks:
            h = block(h)
        return h.reshape(x.shape[0], self.size)

    def peak_floats_per_row(self) -> int:
        """The output of the first block, and the 3 × 3 windows of the second at a quarter of the pixels."""
        kernel = self.blocks[0].kernel
        models = math.prod(kernel.shape[:-2])
        return models * math.prod(self.image) * kernel.shape[-1] * (4 + 9) // 4


def _windows(h: Float[Array, "m a b c"]) -> Float[Array, "m a b 9*c"]:
    """The 3 × 3 surroundings of each pixel, whose product with a matrix is a convolution.

    Unlike a convolution, a product is fast under `jax.vmap` over the kernels of several seeds.
    """
    a, b = h.shape[1:3]
    padded = jnp.pad(h, [(0, 0), (1, 1), (1, 1), (0, 0)])
    return jnp.concatenate([padded[:, i : i + a, j : j + b] for i in range(3) for j in range(3)], axis=-1)


def _pool(h: Float[Array, "m a b c"]) -> Float[Array, "m a2 b2 c"]:
    """2 × 2 max pooling, without an odd last row or column; an image of one row or column is returned unchanged."""
    a, b = h.shape[1] // 2, h.shape[2] // 2
    if not (a and b):
        return h
    h = h[:, : 2 * a, : 2 * b]
    # The derivative of jnp.max searches for entries equal to the maximum and divides by their number; where the
    # compiler recomputes an entry with other rounding, it finds none. A comparison is safe.
    rows = jnp.where(h[:, ::2] > h[:, 1::2], h[:, ::2], h[:, 1::2])
    return jnp.where(rows[:, :, ::2] > rows[:, :, 1::2], rows[:, :, ::2], rows[:, :, 1::2])
