"""The prediction that MetaFun corrects: one dataclass for each kind."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..embeddings.columns import Relation, RelationToClasses, RelationToNumbers
from ..embeddings.table import ColumnMixing, RowVectors, TableMetaFun
from ..errors import InvalidConfig
from ..model.learner import Learner
from ..model.metafun import MetaFun
from ..model.mixed_process import empty_forest_processes
from ..model.nn import MLP
from ..model.population import EXTRA_INPUTS, SIGNALS, CorrectedProcess, PopulationMetaFun, stacked_members
from ..model.process import PopulationProcess, build_processes
from ..model.process_mixture import ProcessMixture, build_mixtures
from ..model.responses import SIGNALS_OF_CLASS, SIGNALS_OF_NUMBER, Numbers, Response, Softmax
from ..model.stacked import Stacked, first_alone
from ..model.table_process import TableProcess
from ..values import Depth, Size, Width, WidthOrZero
from .latents import GlobalLatentConfig, NoLatentConfig
from .losses import CrossEntropyConfig, GaussianConfig, SquaredErrorConfig
from .parts import PartConfig, Sizes

# MetaFun with an encoder and a decoder for the given sizes.
BuildMetaFun = Callable[[Sizes, Sizes, PRNGKeyArray], MetaFun]
Loss = SquaredErrorConfig | GaussianConfig | CrossEntropyConfig
LatentConfig = NoLatentConfig | GlobalLatentConfig


@dataclass(frozen=True)
class NoPopulationConfig(PartConfig):
    """MetaFun predicts alone, as in the paper."""

    kind: Literal["none"] = "none"

    members: ClassVar[int] = 0

    def check(self, loss: str, update: str) -> None:
        """Any loss and update will do."""

    def build(
        self, metafun: BuildMetaFun, sizes: Sizes, loss: Loss, latent: LatentConfig, key: PRNGKeyArray
    ) -> Learner:
        """MetaFun with its latent, if there is one.

        Args:
            metafun: makes MetaFun.
            sizes: of a task.
            loss: not used.
            latent: the latent.
            key: source of the initial weights.
        """
        return latent.build(partial(metafun, sizes), sizes, key)


@dataclass(frozen=True)
class PopulationConfig(PartConfig):
    """A Gaussian process with a learned mean and covariance, for tasks of one population.

    Args:
        width: number of units in each hidden layer of its networks.
        layers: number of their hidden layers.
        features: number of features in its covariance.
        members: number of models whose predictions are mixed. If tasks.folds is set, it must be the same number: each
            model leaves out one fold of the tasks.
        trees: trees of the forest that `meta_fit` fits beside each of these models after training, where tasks.folds is
            set; 0 for none.
        nodes: nodes of each tree; filled in when they are fitted.
    """

    kind: Literal["process"] = "process"
    width: Width = 64
    layers: Depth = 2
    features: Width = 16
    members: Width = 5
    trees: WidthOrZero = 0
    nodes: WidthOrZero = 0

    added = {"trees": 0, "nodes": 0}  # noqa: RUF012
    problem = "regression"
    accepts_latent = False

    def check(self, loss: str, update: str) -> None:
        """InvalidConfig unless the loss and the update, by their kinds, go with it."""
        _check_correction(self.kind, loss, update)

    def build(
        self, metafun: BuildMetaFun, sizes: Sizes, loss: Loss, latent: LatentConfig, key: PRNGKeyArray
    ) -> Learner:
        """An ensemble with random weights.

        Args:
            metafun: makes MetaFun.
            sizes: of a task.
            loss: the loss, with the least standard deviation that can be predicted.
            latent: not used.
            key: source of the initial weights.
        """

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
                min_std=loss.min_std,  # type: ignore[union-attr]
            )
            return _corrected(process, metafun, sizes, key_metafun)

        network = stacked_members(self.members, key, member)
        if not (self.trees and self.nodes):
            return network
        simple = empty_forest_processes(self.members, sizes.dx, sizes.dy, self.trees, self.nodes)
        return Stacked(network.likelihood, network, simple, first_alone())


@dataclass(frozen=True)
class MixturePopulationConfig(PartConfig):
    """Many Gaussian processes for tasks of any kind, weighted by how likely each makes the context.

    Args:
        processes: number of processes.
    """

    kind: Literal["mixture"] = "mixture"
    processes: Width = 32

    problem = "regression"
    accepts_latent = False
    members: ClassVar[int] = 0

    def check(self, loss: str, update: str) -> None:
        """InvalidConfig unless the loss and the update, by their kinds, go with it."""
        _check_correction(self.kind, loss, update)

    def build(
        self, metafun: BuildMetaFun, sizes: Sizes, loss: Loss, latent: LatentConfig, key: PRNGKeyArray
    ) -> Learner:
        """A model with random weights, as good as its processes.

        Args:
            metafun: makes MetaFun.
            sizes: of a task.
            loss: the loss, with the least standard deviation that can be predicted.
            latent: not used.
            key: source of the initial weights.
        """
        key_process, key_metafun = jax.random.split(key)
        options = dict(dx=sizes.dx, processes=self.processes, min_std=loss.min_std)  # type: ignore[union-attr]
        member = _corrected(build_mixtures(sizes.dy, key_process, **options), metafun, sizes, key_metafun)
        return CorrectedProcess(member.likelihood, member)


@dataclass(frozen=True)
class TablePopulationConfig(PartConfig):
    """A Gaussian process over the columns of any table, whose relevances are inferred from the context.

    Args:
        cells: number of features of a cell.
        about: length of the summary of a column; a multiple of `heads`.
        mixing: number of rounds of attention between columns.
        heads: number of heads of that attention.
        features: number of features of a cell in the covariance.
        rounds: number of times that the relevances are refined.
        entries: number of units that see a cell and the summary of its column.
        size: length of a row's vector, the input of MetaFun.
        outputs: number of learned functions of y that columns are correlated with, in regression.
    """

    kind: Literal["table"] = "table"
    cells: Width = 32
    about: Width = 64
    mixing: Size = 2
    heads: Width = 4
    features: Width = 4
    rounds: Size = 2
    entries: Width = 128
    size: Width = 128
    outputs: Width = 4

    members: ClassVar[int] = 0
    accepts_latent = False

    def check(self, loss: str, update: str) -> None:
        """InvalidConfig unless the loss, by its kind, goes with it."""
        if loss == "squared-error":
            raise InvalidConfig(
                "model.population.kind = 'table' predicts deviations; set model.loss.kind = 'gaussian'."
            )
        if self.about % self.heads:
            raise InvalidConfig(
                f"model.population.about = {self.about} cannot be divided among model.population.heads = {self.heads}."
            )

    def build(
        self, metafun: BuildMetaFun, sizes: Sizes, loss: Loss, latent: LatentConfig, key: PRNGKeyArray
    ) -> Learner:
        """A model with random weights, as good as its process.

        Args:
            metafun: makes MetaFun.
            sizes: of a task.
            loss: the loss, with the least standard deviation that can be predicted.
            latent: not used.
            key: source of the initial weights.
        """
        keys = jax.random.split(key, 7)
        seen, c, s = replace(sizes, dx=self.size), self.cells, self.about
        relation: Relation = RelationToClasses()
        response: Response = Softmax()
        signals = SIGNALS_OF_CLASS
        if not sizes.classifies:
            of_y = MLP([sizes.dy, 4 * self.outputs, self.outputs], "gelu", key=keys[0])
            relation, response = RelationToNumbers(of_y), Numbers(loss.min_std)  # type: ignore[union-attr]
            signals = SIGNALS_OF_NUMBER * sizes.dy
        process = dict(cells=c, about=s, features=self.features, rounds=self.rounds)
        inner = metafun(seen, seen, keys[6])
        return TableMetaFun(
            cell=MLP([2, c, c], "gelu", key=keys[1]),
            relation=relation,
            about=MLP([TableMetaFun.statistics(c, relation), 2 * s, s], "gelu", key=keys[2]),
            mixing=tuple(ColumnMixing(s, self.heads, key=k) for k in jax.random.split(keys[3], self.mixing)),
            process=TableProcess(response, **process, classifies=sizes.classifies, key=keys[4]),
            rows=RowVectors(c, s, self.entries, self.size, key=keys[5]),
            start=MLP([signals, sizes.dr, sizes.dr], "gelu", key=jax.random.fold_in(keys[5], 0)),
            metafun=inner,
            gain=jnp.zeros(()),
            likelihood=inner.likelihood,
        )


def _corrected(
    process: PopulationProcess | ProcessMixture, metafun: BuildMetaFun, sizes: Sizes, key: PRNGKeyArray
) -> PopulationMetaFun:
    """The process, and a fresh MetaFun that corrects it and has no influence yet."""
    seen = replace(sizes, dx=sizes.dx + EXTRA_INPUTS * sizes.dy)
    inner = metafun(replace(seen, dy=SIGNALS * sizes.dy), seen, key)
    return PopulationMetaFun(process, inner, jnp.zeros(()), inner.likelihood)


def _check_correction(kind: str, loss: str, update: str) -> None:
    """InvalidConfig unless MetaFun corrects a normal distribution, from the signals of a process."""
    if loss != "gaussian" or update != "mlp":
        raise InvalidConfig(
            f"model.population.kind = '{kind}' needs model.loss.kind = 'gaussian' and model.update.kind = 'mlp', "
            f"not '{loss}' and '{update}'."
        )
