"""The similarity term of a classifier: one dataclass for each kind."""

import math
from dataclasses import dataclass
from typing import Literal

import jax.numpy as jnp

from ..model.similarity import ClassMeanSimilarity
from ..values import Positive
from .parts import PartConfig


@dataclass(frozen=True)
class NoSimilarityConfig(PartConfig):
    """Logits of the decoder alone, as in the paper."""

    kind: Literal["none"] = "none"

    def build(self) -> None:
        return None


@dataclass(frozen=True)
class ClassMeanConfig(PartConfig):
    """The distance of x from the mean of each class in the context, inputs scaled to length one.

    With r⁽⁰⁾ = 0 and classwise updates of r alone, training starts as a nearest class mean: the networks map 0 to 0.

    Args:
        temperature: initial value of τ, trainable.
    """

    kind: Literal["class-mean"] = "class-mean"
    temperature: Positive = 0.1

    problem = "classification"

    def build(self) -> ClassMeanSimilarity:
        return ClassMeanSimilarity(jnp.asarray(math.log(self.temperature)))
