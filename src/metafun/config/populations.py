"""The prediction that MetaFun corrects in regression: one dataclass for each kind."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..model.learner import Learner
from ..model.metafun import MetaFun
from ..model.population import EXTRA_INPUTS, SIGNALS, PopulationMetaFun, stacked_members
from ..model.process import build_processes
from ..values import Depth, Width
from .parts import PartConfig, Sizes

# MetaFun with an encoder and a decoder for the given sizes.
BuildMetaFun = Callable[[Sizes, Sizes, PRNGKeyArray], MetaFun]


@dataclass(frozen=True)
class NoPopulationConfig(PartConfig):
    """MetaFun predicts alone, as in the paper."""

    kind: Literal["none"] = "none"

    members: ClassVar[int] = 0


@dataclass(frozen=True)
class PopulationConfig(PartConfig):
    """A Gaussian process with a learned mean and covariance, for tasks of one population.

    Args:
        width: number of units in each hidden layer of its networks.
        layers: number of their hidden layers.
        features: number of features in its covariance.
        members: number of models whose predictions are mixed. If tasks.folds is set, it must be the same number: each
            model leaves out one fold of the tasks.
    """

    kind: Literal["process"] = "process"
    width: Width = 64
    layers: Depth = 2
    features: Width = 16
    members: Width = 5

    problem = "regression"
    accepts_latent = False

    def build(self, metafun: BuildMetaFun, sizes: Sizes, min_std: float, key: PRNGKeyArray) -> Learner:
        """An ensemble with random weights.

        Args:
            metafun: makes MetaFun.
            sizes: of a task.
            min_std: the least standard deviation that can be predicted.
            key: source of the initial weights.
        """
        seen = replace(sizes, dx=sizes.dx + EXTRA_INPUTS * sizes.dy)

        def member(key: PRNGKeyArray) -> PopulationMetaFun:
            key_process, key_metafun = jax.random.split(key)
            process = build_processes(
                sizes.dy,
                key_process,
                dx=sizes.dx,
                features=self.features,
                width=self.width,
                layers=self.layers,
                activation=sizes.activation,
                min_std=min_std,
            )
            inner = metafun(replace(seen, dy=SIGNALS * sizes.dy), seen, key_metafun)
            return PopulationMetaFun(process, inner, jnp.zeros(()), inner.likelihood)

        return stacked_members(self.members, key, member)
