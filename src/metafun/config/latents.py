"""The latent that a decoder may see besides r: one dataclass for each kind."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
from jaxtyping import PRNGKeyArray

from ..model.learner import Learner
from ..model.metafun import MetaFun
from ..model.stochastic import ClasswiseLatent, GlobalLatent, Latent, StochasticMetaFun
from ..values import Depth, LoopCount, Width
from .parts import PartConfig, Sizes

# MetaFun with a decoder for representations of the given sizes.
BuildMetaFun = Callable[[Sizes, PRNGKeyArray], MetaFun]


@dataclass(frozen=True)
class NoLatentConfig(PartConfig):
    """A deterministic representation."""

    kind: Literal["none"] = "none"

    size: ClassVar[int] = 0

    def build(self, metafun: BuildMetaFun, sizes: Sizes, key: PRNGKeyArray) -> Learner:
        return metafun(sizes, key)


@dataclass(frozen=True)
class GlobalLatentConfig(PartConfig):
    """A latent z for the whole function, to draw functions; in classification one for each class.

    Args:
        size: length of z.
        width: number of units in each hidden layer.
        layers: number of hidden layers for each point; two more follow the mean over points.
        samples: number of draws of z that a prediction mixes.
    """

    kind: Literal["global"] = "global"
    size: Width = 64
    width: Width = 128
    layers: Depth = 3
    samples: LoopCount = 50

    def build(self, metafun: BuildMetaFun, sizes: Sizes, key: PRNGKeyArray) -> Learner:
        key_metafun, key_latent = jax.random.split(key)
        latent = self._classwise(sizes, key_latent) if sizes.classifies else self._global(sizes, key_latent)
        # The decoder sees [z, r(x)].
        inner = metafun(dataclasses.replace(sizes, dr=self.size + sizes.dr), key_metafun)
        return StochasticMetaFun(metafun=inner, latent=latent, likelihood=inner.likelihood, samples=self.samples)

    def _global(self, sizes: Sizes, key: PRNGKeyArray) -> Latent:
        key_each, key_pooled = jax.random.split(key)
        return GlobalLatent(
            each=sizes.mlp(sizes.dx + sizes.dy + sizes.dr, self.width, self.layers, self.width, key_each),
            pooled=sizes.mlp(self.width, self.width, 2, 2 * self.size, key_pooled),
        )

    def _classwise(self, sizes: Sizes, key: PRNGKeyArray) -> Latent:
        key_each, key_pooled = jax.random.split(key)
        return ClasswiseLatent(
            each=sizes.mlp(sizes.dx + sizes.dr, self.width, self.layers, self.width, key_each),
            pooled=sizes.mlp(2 * self.width, self.width, 2, 2 * self.size, key_pooled),
        )
