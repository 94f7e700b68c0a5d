"""Images as vectors: the convolutional network that few-shot learners usually have."""

import itertools
import math
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .embedding import Embedding
from .likelihoods import masked_mean
from .task import Points

_he = jax.nn.initializers.he_normal()


class Moments(eqx.Module):
    """Mean and variance of each channel over the images of a context, and how many there are."""

    mean: Float[Array, " c"]
    variance: Float[Array, " c"]
    count: Float[Array, ""]


class Block(eqx.Module):
    """A 3 × 3 convolution and what normalises it: each image by itself, and the context, in trained shares.

    With more images the context counts for more. This is the TaskNorm of Bronskill et al. (2020); batches are not
    normalised, for that would let the targets of a task see each other.
    """

    kernel: Float[Array, "i o"]
    scale: Float[Array, " o"]
    shift: Float[Array, " o"]
    trust: Float[Array, " two"] | None
    groups: int = eqx.field(static=True)
    precision: str = eqx.field(static=True)

    def __init__(self, size: tuple[int, int], groups: int, precision: str, looks: bool, *, key: PRNGKeyArray):
        self.kernel = _he(key, (9 * size[0], size[1]))
        self.scale, self.shift, self.trust = jnp.ones(size[1]), jnp.zeros(size[1]), jnp.zeros(2) if looks else None
        self.groups, self.precision = groups, precision

    def convolve(self, h: Float[Array, "m a b i"]) -> Float[Array, "m a b o"]:
        # cuBLAS refuses half-precision products over the nine numbers that the first block sees.
        precision = self.precision if h.shape[-1] % 8 == 0 else self.scale.dtype
        return (_windows(h.astype(precision)) @ self.kernel.astype(precision)).astype(self.scale.dtype)

    def normalise(self, h: Float[Array, "m a b o"], seen: Moments | None) -> Float[Array, "m a b o"]:
        grouped = h.reshape(*h.shape[:3], self.groups, -1)
        mean = grouped.mean((1, 2, 4), keepdims=True)
        variance = jnp.square(grouped - mean).mean((1, 2, 4), keepdims=True)
        if seen is not None and self.trust is not None:
            share = jax.nn.sigmoid(self.trust[0] + self.trust[1] * jnp.log(seen.count))
            common = seen.mean.reshape(self.groups, -1)
            mixed = share * common + (1 - share) * mean
            # The variance of the mixture of both.
            variance = share * (seen.variance.reshape(self.groups, -1) + jnp.square(common - mixed)) + (1 - share) * (
                variance + jnp.square(mean - mixed)
            )
            mean = mixed
        even = ((grouped - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(h.shape)
        return jax.nn.relu(self.scale * even + self.shift)


class ConvNet(Embedding):
    """Blocks of a 3 × 3 convolution, normalisation, ReLU and 2 × 2 max pooling, as few-shot learners usually have.

    What is kept between the layers has the given `precision`.
    """

    blocks: tuple[Block, ...]
    image: tuple[int, int] = eqx.field(static=True)
    looks: bool = eqx.field(static=True)

    def __init__(
        self,
        image: tuple[int, int],
        channels: Sequence[int],
        groups: int,
        precision: str = "float32",
        looks: bool = False,
        *,
        key: PRNGKeyArray,
    ):
        """`channels` are those of the image, 1 or 3, and those that each block gives.

        If it `looks`, the context takes part in the normalisation.
        """
        sizes = list(itertools.pairwise(channels))
        keys = jax.random.split(key, len(sizes))
        self.blocks = tuple(Block(size, groups, precision, looks, key=k) for k, size in zip(keys, sizes, strict=True))
        self.image, self.looks = image, looks

    @property
    def size(self) -> int:
        a, b = self.image
        for _ in self.blocks:
            a, b = (a // 2, b // 2) if min(a, b) > 1 else (a, b)
        return a * b * self.blocks[-1].scale.shape[-1]

    def look(self, context: Points) -> tuple[Moments, ...] | None:
        """The moments that the context has in each block, normalised so far as it goes."""
        if not self.looks:
            return None
        h, seen = self._images(context.x), []
        for block in self.blocks:
            h = block.convolve(h)
            seen.append(_moments(h, context.mask))
            h = _pool(block.normalise(h, seen[-1]))
        return tuple(seen)

    def __call__(self, x: Float[Array, "m dx"], seen: tuple[Moments, ...] | None = None) -> Float[Array, "m e"]:
        h = self._images(x)
        for block, moments in zip(self.blocks, seen or (None,) * len(self.blocks), strict=True):
            h = _pool(block.normalise(block.convolve(h), moments))
        return h.reshape(x.shape[0], -1)

    def numbers_per_row(self) -> int:
        """Of the first block its output and, at a quarter of the places, all that the second sees from there."""
        kernel = self.blocks[0].kernel
        models = math.prod(kernel.shape[:-2])
        return models * math.prod(self.image) * kernel.shape[-1] * (4 + 9) // 4

    def _images(self, x: Float[Array, "m dx"]) -> Float[Array, "m a b c"]:
        return x.reshape(x.shape[0], *self.image, self.blocks[0].kernel.shape[0] // 9)


def _moments(h: Float[Array, "m a b c"], mask: Bool[Array, " m"]) -> Moments:
    mean = masked_mean(h.mean((1, 2)), mask)
    variance = masked_mean(jnp.square(h - mean).mean((1, 2)), mask)
    return Moments(mean, variance, jnp.maximum(mask.sum(), 1).astype(h.dtype))


def _windows(h: Float[Array, "m a b c"]) -> Float[Array, "m a b 9c"]:
    """The 3 × 3 surroundings of each pixel: a convolution is their product with a matrix.

    So are several at once, one for each seed, where a convolution of several kernels would be slow.
    """
    a, b = h.shape[1:3]
    padded = jnp.pad(h, [(0, 0), (1, 1), (1, 1), (0, 0)])
    return jnp.concatenate([padded[:, i : i + a, j : j + b] for i in range(3) for j in range(3)], axis=-1)


def _pool(h: Float[Array, "m a b c"]) -> Float[Array, "m a2 b2 c"]:
    """The largest of 2 × 2; a row or column that is left over is left out. What is too small stays."""
    a, b = h.shape[1] // 2, h.shape[2] // 2
    if not (a and b):
        return h
    h = h[:, : 2 * a, : 2 * b]
    # By comparison: the derivative of jnp.max looks for the entry that equals the largest, which a compiler that
    # computes it anew may round differently, and divides by how many it finds.
    rows = jnp.where(h[:, ::2] > h[:, 1::2], h[:, ::2], h[:, 1::2])
    return jnp.where(rows[:, :, ::2] > rows[:, :, 1::2], rows[:, :, ::2], rows[:, :, 1::2])
