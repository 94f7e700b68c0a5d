"""Predictions for a table by MetaFun, a Gaussian process over all columns, and trees."""

from typing import Any, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .averaged_process import AveragedProcess, AveragedTable
from .forest import Forest
from .learner import Learner
from .likelihoods import Categorical, CrossEntropy, Likelihood, Normal, Prediction
from .task import Points

# The process, whose time grows with the third power of the rows, takes no larger contexts.
MOST_ROWS = 1024
# To be increased with a change of what the shipped models predict that their checkpoints do not show.
VERSION = 1


class TableMixtureRepresentation(eqx.Module):
    """What each member makes of a context.

    Args:
        metafun: the representation of MetaFun.
        process: the process; None where there are too many rows for it.
        forest: trees, which whoever encodes the context may add; they see the columns that the process sees.
    """

    metafun: Any
    process: AveragedTable | None
    forest: Forest | None = None


class TableMixture(Learner):
    """P(y = k|x) ∝ √(P_MetaFun P_process), and where there are trees the mean of that and theirs.

    Numbers have the mean of both means and the geometric mean of both deviations.

    A row has the columns that MetaFun takes, then all columns of the table, standardised.

    Args:
        metafun: a model for tables, whose wide ones it takes as principal components.
        process: a Gaussian process over all columns.
        columns: number of columns that MetaFun takes.
        likelihood: that of MetaFun.
    """

    metafun: Learner
    process: AveragedProcess
    columns: int = eqx.field(static=True)
    likelihood: Likelihood

    def __init__(self, metafun: Learner, columns: int):
        self.metafun, self.columns, self.likelihood = metafun, columns, metafun.likelihood
        self.process = AveragedProcess(isinstance(metafun.likelihood, CrossEntropy))

    def weighing(self, weight: Float[Array, ""]) -> Self:
        return eqx.tree_at(lambda model: model.metafun, self, self.metafun.weighing(weight))

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> TableMixtureRepresentation:
        narrow, every = self._split(context.x)
        process = None
        if len(context.mask) <= MOST_ROWS:
            process = self.process.condition(Points(every, context.y, context.mask))
        return TableMixtureRepresentation(self.metafun.encode(Points(narrow, context.y, context.mask), key), process)

    def predict(
        self, representation: TableMixtureRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Prediction:
        narrow, every = self._split(x)
        members: list[Any] = [self.metafun.predict(representation.metafun, narrow, key)]
        if representation.process is not None:
            members.append(self.process.predict(representation.process, every))
        if not self.process.classifies:
            return _mean_of_numbers(members)
        found = _mean_of_classes(members)
        if representation.forest is None:
            return found
        return Categorical(jnp.log((found.probabilities + representation.forest(every)) / 2), found.classes)

    def _split(self, x: Float[Array, "m dx"]) -> tuple[Float[Array, "m c"], Float[Array, "m d"]]:
        return x[:, : self.columns], x[:, self.columns :]


def _mean_of_classes(members: list[Categorical]) -> Categorical:
    classes = members[0].classes
    # log 0 of an absent class would be no number.
    logits = [jnp.where(classes, member.log_probabilities, 0) for member in members]
    return Categorical(jnp.stack(logits).mean(0), classes)


def _mean_of_numbers(members: list[Normal]) -> Normal:
    mean = jnp.stack([member.mean for member in members]).mean(0)
    return Normal(mean, jnp.exp(jnp.stack([jnp.log(member.std) for member in members]).mean(0)))
