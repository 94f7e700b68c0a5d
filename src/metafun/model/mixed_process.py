"""A mixed model on the inputs and on the prediction of a forest: what simple methods know of a population."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .forest import Forest, empty_forest
from .likelihoods import Normal
from .process import ConditionedProcess, Process, ProcessPrior
from .task import Points

# Variance of ε that remains where `log_noise` goes to −∞.
LEAST_NOISE = 1e-4


class MixedProcess(Process):
    """y(x) = (β + b)·z(x) + f(x) + ε with z(x) = (1, x): population and task have a linear trend each.

    Of a task are b ∼ 𝒩(0, diag s²) and f ∼ GP(0, a² exp(−Σ_d (x_d − x'_d)²/(2ℓ_d²))). The last column of x is the
    prediction of a forest: f does not depend on it.

    Args:
        fixed: β.
        log_slope: log s.
        log_amplitude: log a.
        log_length: log ℓ for each column but the last.
        log_noise: logarithm of the deviation of ε.
    """

    fixed: Float[Array, " p"]
    log_slope: Float[Array, " p"]
    log_amplitude: Float[Array, ""]
    log_length: Float[Array, " dx"]
    log_noise: Float[Array, ""]

    def prior(self, x: Float[Array, "n p_less_one"]) -> ProcessPrior:
        z = with_intercept(x)
        features = z * jnp.exp(self.log_slope)
        variance = jnp.square(features).sum(-1) + jnp.exp(2 * self.log_amplitude)
        noise = jnp.full(x.shape[0], jnp.exp(2 * self.log_noise) + LEAST_NOISE)
        return ProcessPrior(x, z @ self.fixed, features, variance, noise)

    def covariance(self, a: ProcessPrior, b: ProcessPrior) -> Float[Array, "m n"]:
        difference = (a.x[:, None, :-1] - b.x[None, :, :-1]) * jnp.exp(-self.log_length)
        smooth = jnp.exp(2 * self.log_amplitude - jnp.square(difference).sum(-1) / 2)
        return a.features @ b.features.T + smooth


class ForestProcess(eqx.Module):
    """A forest F on the rows of all tasks, and a mixed process on (x, F(x)) for each output.

    Args:
        forest: F.
        processes: the process of each output, with a leading axis.
    """

    forest: Forest
    processes: MixedProcess

    def condition(self, context: Points) -> ConditionedProcess:
        """The process of each output given the context, with a leading axis."""

        def one(
            process: MixedProcess, x: Float[Array, "n dx"], y: Float[Array, " n"], mask: Bool[Array, " n"]
        ) -> ConditionedProcess:
            return process.condition(x, y, mask)

        rows = self._rows(context.x)
        return eqx.filter_vmap(one, in_axes=(0, 0, 1, None))(self.processes, rows, context.y, context.mask)

    def predict(self, conditioned: ConditionedProcess, x: Float[Array, "m dx"]) -> Normal:
        """P(y|x).

        Args:
            conditioned: what `condition` returned.
            x: inputs.
        """
        mean, std, _ = eqx.filter_vmap(lambda process, rows: process(rows))(conditioned, self._rows(x))
        return Normal(mean.T, std.T)

    def _rows(self, x: Float[Array, "m dx"]) -> Float[Array, "dy m columns"]:
        """(x, F(x)) for each output."""
        predicted = self.forest(x).T[:, :, None]
        return jnp.concatenate([jnp.broadcast_to(x, (len(predicted), *x.shape)), predicted], axis=-1)


def with_intercept(x: Float[Array, "*n dx"]) -> Float[Array, "*n p"]:
    """z(x) = (1, x)."""
    return jnp.concatenate([jnp.ones((*x.shape[:-1], 1), x.dtype), x], axis=-1)


def empty_forest_processes(members: int, dx: int, dy: int, trees: int, nodes: int) -> ForestProcess:
    """Members of the shapes of fitted ones, with a leading axis; their parameters are 0.

    Args:
        members: number of members.
        dx: dim(x).
        dy: dim(y).
        trees: number of trees of a member.
        nodes: number of nodes of each tree.
    """
    trend, one = jnp.zeros(dx + 2), jnp.zeros(())
    process = MixedProcess(trend, trend, one, jnp.zeros(dx), one)
    stacked = jax.tree.map(lambda a: jnp.broadcast_to(a, (members, dy, *a.shape)), process)
    return ForestProcess(empty_forest(members * trees, nodes, dy).grouped(members), stacked)
