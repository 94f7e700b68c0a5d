"""MetaFun on tasks of one population: it corrects the predictions of a Gaussian process that is learned with it."""

from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from .learner import Learner
from .likelihoods import Likelihood, Mixture, Normal, masked_mean
from .metafun import FunctionalRepresentation, MetaFun
from .nn import is_array
from .process import ConditionedProcess, PopulationProcess
from .process_mixture import ConditionedMixture, ProcessMixture
from .task import Points, Task

Members = TypeVar("Members", bound=eqx.Module)

# A correction changes the logarithm of the deviation by at most this much.
MAX_LOG_RATIO = 0.7
# Calibration distinguishes contexts of 0, of 1 or 2, of 3 to 5, of 6 to 11, and of more points.
CONTEXT_SIZES = (0, 1, 3, 6, 12)
# Inputs of any function beyond this are treated as at it; the context of a task reaches from -1 to 1.
FARTHEST = 3.0
# Columns that a process adds to x and to y, for each output.
EXTRA_INPUTS, SIGNALS = 3, 2


class PopulationRepresentation(eqx.Module):
    """The context of a task, as the process and as MetaFun see it.

    Args:
        process: the process of each output given the context, with a leading axis.
        correction: r(·) of MetaFun.
    """

    process: ConditionedProcess | ConditionedMixture
    correction: FunctionalRepresentation


class PopulationMetaFun(eqx.Module):
    """P(y|x) = 𝒩(μ + σ δ, σ² e²ˢ): a process predicts μ and σ, and MetaFun δ and s.

    The correction starts at 0, so that the model starts as the process. The update sees how well the process predicts
    each context point from the others; the decoder sees the prediction that it corrects. Both are constants to it: the
    process is trained by its own loss.

    Args:
        process: the population of each output, with a leading axis.
        metafun: r(·), with dim(x) + 3 dim(y) inputs and 2 dim(y) outputs.
        gain: factor of δ and s.
        likelihood: the loss.
    """

    process: PopulationProcess | ProcessMixture
    metafun: MetaFun
    gain: Float[Array, ""]
    likelihood: Likelihood

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> PopulationRepresentation:
        condition = eqx.filter_vmap(lambda process, y: process.condition(context.x, y, context.mask), in_axes=(0, 1))
        process = condition(self.process, context.y)
        scores, spread = jax.vmap(lambda conditioned: conditioned.leave_one_out())(process)
        prior = process.prior
        x = _columns(context.x, prior.mean, jnp.log(prior.std), jnp.log(spread))
        y = _columns(context.y[:, :0], scores, process.residual / prior.std)
        seen = jax.lax.stop_gradient(Points(x, y, context.mask))
        return PopulationRepresentation(process, self.metafun.encode(seen, key))

    def predict_both(
        self, representation: PopulationRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> tuple[Normal, Normal]:
        """The prediction of the process, and the corrected one.

        Args:
            representation: what `encode` returned.
            x: inputs.
            key: source of training-time noise.
        """
        mean, std, prior = jax.vmap(lambda process: process(x))(representation.process)
        process = Normal(mean.T, std.T)
        base = jax.lax.stop_gradient(process)
        seen = _columns(x, prior.mean, (mean - prior.mean) / prior.std, jnp.log(std / prior.std))
        seen = jax.lax.stop_gradient(seen)
        raw = self.metafun.outputs(representation.correction(seen, key), seen, None, key)
        shift, log_ratio = jnp.split(self.gain * raw, 2, axis=-1)
        ratio = jnp.exp(MAX_LOG_RATIO * jnp.tanh(log_ratio / MAX_LOG_RATIO))
        return process, Normal(base.mean + base.std * shift, base.std * ratio)


class CorrectedProcess(Learner):
    """One `PopulationMetaFun`, trained on all tasks. Inputs farther out than in training are moved to its edge.

    Args:
        likelihood: the loss.
        member: the process and its correction.
    """

    likelihood: Likelihood
    member: PopulationMetaFun

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> PopulationRepresentation:
        return self.member.encode(Points(_near(context.x), context.y, context.mask), key)

    def weighing(self, weight: Float[Array, ""]) -> "CorrectedProcess":
        # A process knows by itself what many points say.
        return eqx.tree_at(lambda model: model.member.metafun, self, self.member.metafun.weighing(weight))

    def predict(
        self, representation: PopulationRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Normal:
        return self.member.predict_both(representation, _near(x), key)[1]

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The mean loss of the process and that of the corrected prediction."""
        both = self.member.predict_both(self.encode(task.context, key), _near(task.target.x), key)
        losses = [masked_mean(self.likelihood.loss(p, task.target.y), task.target.mask) for p in both]
        return losses[0] + losses[1]

    def peak_floats_per_task(self, task: Task) -> int:
        n, m, processes = len(task.context.mask), len(task.target.mask), self.member.process.log_noise.size
        return processes * n * (4 * n + 2 * m)


class Calibration(eqx.Module):
    """How far the correction is trusted, and how the deviations are rescaled, by the number of context points.

    σ becomes e⁴ˢ σ¹⁺²ᵖ: a negative p makes the deviations more equal. The factors speed training up: the calibration
    must keep pace with the networks.

    Args:
        trust: the share of the correction is sigmoid(4·trust).
        log_scale: s.
        power: p.
    """

    trust: Float[Array, " sizes"]
    log_scale: Float[Array, " sizes"]
    power: Float[Array, " sizes"]

    def __init__(self) -> None:
        none = jnp.zeros(len(CONTEXT_SIZES))
        self.trust, self.log_scale, self.power = none + 0.25, none, none

    def __call__(self, base: Normal, corrected: Normal, points: Int[Array, ""]) -> Normal:
        """The process's prediction, moved towards the corrected one.

        Args:
            base: the prediction of the process.
            corrected: the prediction of MetaFun.
            points: number of context points.
        """
        size = context_size(points)
        g = jax.nn.sigmoid(4 * self.trust[size])
        mean = base.mean + g * (corrected.mean - base.mean)
        log_std = (1 - g) * jnp.log(base.std) + g * jnp.log(corrected.std)
        return Normal(mean, jnp.exp(4 * self.log_scale[size] + (1 + 2 * self.power[size]) * log_std))


def context_size(points: Int[Array, "*s"]) -> Int[Array, "*s"]:
    """Which of the ranges of `CONTEXT_SIZES` a number of context points is in."""
    return jnp.searchsorted(jnp.array(CONTEXT_SIZES), points, side="right") - 1


class CrossFittedRepresentation(eqx.Module):
    """What each member makes of a context, with a leading axis, and the number of its points."""

    members: PopulationRepresentation
    points: Int[Array, ""]


class CrossFitted(Learner):
    """P(y|x) = 1/K Σₖ Pₖ(y|x). Where tasks have folds, member k is trained on all but fold k.

    The calibration is trained on what each member predicts for the fold that it has not seen. It trusts a correction
    less that does not help there, and widens the deviations of members that have overfitted.

    Args:
        likelihood: the loss.
        members: K learners as one, with a leading axis in every array.
        calibration: how their predictions are adjusted.
    """

    likelihood: Likelihood
    members: PopulationMetaFun
    calibration: Calibration

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> CrossFittedRepresentation:
        each = eqx.filter_vmap(lambda member: member.encode(context, key))(self.members)
        return CrossFittedRepresentation(each, context.mask.sum())

    def predict(
        self, representation: CrossFittedRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Mixture:
        return self.likelihood.mixture(self.predict_each(representation, x, key))

    def predict_each(
        self, representation: CrossFittedRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Normal:
        """The calibrated prediction of each member, along a leading axis; arguments as in `predict`."""

        def each(member: PopulationMetaFun, encoded: PopulationRepresentation) -> Normal:
            return self.calibration(*member.predict_both(encoded, x, key), representation.points)

        return eqx.filter_vmap(each)(self.members, representation.members)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The mean loss of the members that see the task, and that of the calibration of the member that does not."""

        def both(member: PopulationMetaFun) -> tuple[Float[Array, ""], Float[Array, ""]]:
            base, corrected = member.predict_both(member.encode(task.context, key), task.target.x, key)
            own = self.likelihood.loss(base, task.target.y) + self.likelihood.loss(corrected, task.target.y)
            fixed = jax.lax.stop_gradient((base, corrected))
            calibrated = self.calibration(*fixed, task.context.mask.sum())
            losses = own, self.likelihood.loss(calibrated, task.target.y)
            return masked_mean(losses[0], task.target.mask), masked_mean(losses[1], task.target.mask)

        own, calibrated = eqx.filter_vmap(both)(self.members)
        if task.fold is None:
            return own.mean()
        is_held_out = jnp.arange(len(own)) == task.fold
        return masked_mean(own, ~is_held_out) + masked_mean(calibrated, is_held_out)

    def held_out(self, task: Task) -> "CrossFitted":
        """The member that was not trained on the task; all of them where tasks have no folds."""
        if task.fold is None:
            return self
        return CrossFitted(self.likelihood, select(self.members, task.fold), self.calibration)


def select(members: Members, index: Int[Array, ""]) -> Members:
    """One of several members that are stacked in one, alone on the leading axis."""
    return jax.tree.map(lambda leaf: leaf[index][None] if is_array(leaf) else leaf, members)


def _near(x: Float[Array, "n dx"]) -> Float[Array, "n dx"]:
    return jnp.clip(x, -FARTHEST, FARTHEST)


def _columns(x: Float[Array, "n dx"], *arrays: Float[Array, "dy n"]) -> Float[Array, "n columns"]:
    """The columns of x, then those of the arrays."""
    return jnp.concatenate([x, *(array.T for array in arrays)], axis=-1)


def stacked_members(count: int, key: PRNGKeyArray, build: Callable[[PRNGKeyArray], PopulationMetaFun]) -> CrossFitted:
    """An ensemble of `count` members with different initial weights.

    Args:
        count: number of members.
        key: source of their weights.
        build: makes a member from a key.
    """
    members = eqx.filter_vmap(build)(jax.random.split(key, count))
    return CrossFitted(members.likelihood, members, Calibration())
