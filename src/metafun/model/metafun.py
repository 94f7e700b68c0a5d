"""MetaFun: a task is encoded into a function r(·) by T iterative functional updates (Section 2)."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from .blocks import pooling_at
from .decoders import Decoder
from .initial import Initial
from .learner import Learner
from .likelihoods import Likelihood, Prediction, masked_mean
from .pooling import Pooling
from .regularisers import Regulariser
from .similarity import ClassMeanSimilarity
from .task import Points, Task, join
from .updates import Update


class FunctionalRepresentation(eqx.Module):
    """The representation of a task, the function r(x) = r⁽⁰⁾(x) − α Σᵢ k(x, xᵢ) ūᵢ with ūᵢ = Σₜ uᵢ⁽ᵗ⁾.

    The pooling weights do not change with t, so T updates collapse into one sum over the context; if each iteration
    has its own pooling, into one sum for each. In classification r(x) has a part rᵏ(x) for each class.

    Args:
        initial: r⁽⁰⁾.
        pools: the pooling shared by all iterations, or one for each.
        step_size: α.
        keys: a(xᵢ) at the context, for each pooling.
        mask: False where a row of the context is padding.
        classes: the classes of the task; None in regression.
        updates: uᵢ⁽ᵗ⁾ for each iteration.
        means: the mean of each class, if the model has a similarity term.
    """

    initial: Initial
    pools: tuple[Pooling, ...]
    step_size: Float[Array, ""]
    keys: tuple[Float[Array, "n da"], ...]
    mask: Bool[Array, " n"]
    classes: Bool[Array, " k"] | None
    updates: Float[Array, "t n *k dr"]
    means: Float[Array, "k dx"] | None = None

    def __call__(
        self,
        x: Float[Array, "m dx"],
        key: PRNGKeyArray | None = None,
        start: Float[Array, "m *k dr"] | None = None,
    ) -> Float[Array, "m *k dr"]:
        r = _started(_for_each_class(self.initial(x, key), self.classes), start)
        for p, pool in enumerate(self._pooling_at(x)):
            u_sum = self.updates[p :: len(self.pools)].sum(0)
            r = r - self.step_size * pool(u_sum)
        return r

    def trajectory(self, x: Float[Array, "m dx"]) -> Float[Array, "t1 m *k dr"]:
        """r⁽⁰⁾(x), …, r⁽ᵀ⁾(x)."""
        pools = self._pooling_at(x)
        r = [_for_each_class(self.initial(x), self.classes)]
        for t, u in enumerate(self.updates):
            r.append(r[-1] - self.step_size * pools[t % len(pools)](u))
        return jnp.stack(r)

    def weights(self, x: Float[Array, "m dx"]) -> list[Float[Array, "*h m n"]]:
        """k(x, xᵢ) of each pooling."""
        return [p.weights(p.embed(x), k, self.mask) for p, k in zip(self.pools, self.keys, strict=True)]

    def _pooling_at(self, x: Float[Array, "m dx"]) -> list[Callable[[Float[Array, "n *k dr"]], Array]]:
        return [pooling_at(p, p.embed(x), k, self.mask) for p, k in zip(self.pools, self.keys, strict=True)]


class MetaFun(Learner):
    """The learning model f = Φ(context): encode the context into r(·), then decode r(x) at any x.

    Args:
        initial: r⁽⁰⁾.
        update: the local update u, shared by all iterations, or one for each (the paper's future work b).
        pool: the functional pooling k, shared or one for each iteration.
        decode: the decoder Φ_d.
        likelihood: the predictive distribution and its loss ℓ.
        step_size: α, trainable.
        iterations: T.
        context_weight: weight of the mean loss of the context points.
        target_weight: weight of the mean loss of the target points.
        regularisers: penalties on the weights.
        similarity: logits that the decoder's add to; None for none.
    """

    initial: Initial
    updates: tuple[Update, ...]
    pools: tuple[Pooling, ...]
    decode: Decoder
    likelihood: Likelihood
    step_size: Float[Array, ""]
    iterations: int = eqx.field(static=True)
    context_weight: float = eqx.field(static=True)
    target_weight: float = eqx.field(static=True)
    regularisers: tuple[Regulariser, ...]
    similarity: ClassMeanSimilarity | None

    def __init__(
        self,
        *,
        initial: Initial,
        update: Update | tuple[Update, ...],
        pool: Pooling | tuple[Pooling, ...],
        decode: Decoder,
        likelihood: Likelihood,
        step_size: float,
        iterations: int,
        context_weight: float,
        target_weight: float,
        regularisers: tuple[Regulariser, ...] = (),
        similarity: ClassMeanSimilarity | None = None,
    ):
        self.initial, self.decode, self.likelihood = initial, decode, likelihood
        self.updates = update if isinstance(update, tuple) else (update,)
        self.pools = pool if isinstance(pool, tuple) else (pool,)
        for modules in (self.updates, self.pools):
            if len(modules) not in (min(1, iterations), iterations):
                raise ValueError(f"give one module for all {iterations} iterations or one for each, not {len(modules)}")
        self.step_size, self.iterations = jnp.asarray(step_size, float), iterations
        self.context_weight, self.target_weight = context_weight, target_weight
        self.regularisers, self.similarity = regularisers, similarity

    @property
    def is_for_any_classes(self) -> bool:
        return all(update.is_for_any_classes for update in self.updates)

    def weighing(self, weight: Float[Array, ""]) -> Self:
        # A softmax divides by the sum of the weights, and the gradient of a mean loss by the number of points.
        adds_up = any(p.is_kernel for p in self.pools) and all(u.is_pointwise for u in self.updates)
        return eqx.tree_at(lambda model: model.step_size, self, weight * self.step_size) if adds_up else self

    def at_temperature(self, temperature: float) -> Self:
        if self.similarity is None:
            return self
        return eqx.tree_at(lambda m: m.similarity.log_temperature, self, jnp.log(jnp.asarray(temperature, float)))

    def encode(
        self, context: Points, key: PRNGKeyArray | None = None, start: Float[Array, "n *k dr"] | None = None
    ) -> FunctionalRepresentation:
        """T steps of r⁽ᵗ⁺¹⁾ = r⁽ᵗ⁾ − α Σᵢ k(·, xᵢ) u(xᵢ, yᵢ, r⁽ᵗ⁾(xᵢ)), on the context points alone.

        Args:
            context: the labelled points.
            key: source of training-time noise.
            start: what is added to r⁽⁰⁾ at the context; whoever gives it adds its values elsewhere too.
        """
        keys = tuple(pool.embed(context.x) for pool in self.pools)
        pools = [pooling_at(p, k, k, context.mask) for p, k in zip(self.pools, keys, strict=True)]
        classes = self.likelihood.classes(context)
        means = None if self.similarity is None else self.similarity.summary(context)

        def loss(t: int, r: Float[Array, "n *k dr"]) -> Float[Array, ""]:
            noise = None if key is None else jax.random.fold_in(key, t)
            prediction = self.likelihood(self.outputs(r, context.x, means, noise), classes)
            return masked_mean(self.likelihood.loss(prediction, context.y), context.mask)

        r, us = _started(_for_each_class(self.initial(context.x, key), classes), start), []
        for t in range(self.iterations):
            u = self.updates[t % len(self.updates)](context, r, partial(loss, t))
            r = r - self.step_size * pools[t % len(pools)](u)
            us.append(u)
        updates = jnp.stack(us) if us else jnp.zeros((0, *r.shape))
        return FunctionalRepresentation(
            self.initial, self.pools, self.step_size, keys, context.mask, classes, updates, means
        )

    def outputs(
        self,
        r: Float[Array, "m *k dr"],
        x: Float[Array, "m dx"],
        means: Float[Array, "k dx"] | None,
        key: PRNGKeyArray | None = None,
    ) -> Float[Array, "m out"]:
        """Φ_d(r(x))(x), added to the similarity term if there is one.

        Args:
            r: r(x).
            x: inputs.
            means: of the representation.
            key: source of training-time noise.
        """
        raw = self.decode(r, x, key)
        return raw if self.similarity is None or means is None else self.similarity(raw, means, x)

    def predict(
        self, representation: FunctionalRepresentation, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None
    ) -> Prediction:
        """P(y|x) = Φ_d(r(x))(x)."""
        raw = self.outputs(representation(x, key), x, representation.means, key)
        return self.likelihood(raw, representation.classes)

    def predict_trajectory(self, representation: FunctionalRepresentation, x: Float[Array, "m dx"]) -> Prediction:
        """The predictions from r⁽⁰⁾, …, r⁽ᵀ⁾, along a leading axis."""
        raw = jax.vmap(lambda r: self.outputs(r, x, representation.means))(representation.trajectory(x))
        return self.likelihood(raw, representation.classes)

    def weights(self, representation: FunctionalRepresentation, x: Float[Array, "m dx"]) -> Float[Array, "m n"] | None:
        """k(x, xᵢ), averaged over heads and over the poolings of the iterations."""
        each = [weights.reshape(-1, *weights.shape[-2:]) for weights in representation.weights(x)]
        return jnp.concatenate(each).mean(0) if each else None

    def peak_floats_per_task(self, task: Task) -> int:
        """Three times the size of the updates: the peak that was measured on large tasks."""

        def updates(model: MetaFun, task: Task) -> Float[Array, "t n *k dr"]:
            return model.encode(task.context).updates

        return 3 * self.size_for_all(updates, self, task)

    def size_for_all(self, compute: Callable[[Any, Task], Array], model: Learner, task: Task) -> int:
        """The number of entries of `compute(model, task)`, for all models if they are stacked.

        Args:
            compute: called with shapes in place of arrays.
            model: this model, or one that contains it.
            task: the shapes of a task.
        """
        is_stacked = self.step_size.ndim > 0  # several models with a leading axis in every array
        each = eqx.filter_vmap(compute, in_axes=(eqx.if_array(0), None)) if is_stacked else compute
        return eqx.filter_eval_shape(each, model, task).size

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        key_encode, key_predict = (None, None) if key is None else jax.random.split(key)
        representation = self.encode(task.context, key_encode)
        return self.weighted_loss(task, lambda x: self.predict(representation, x, key_predict))

    def weighted_loss(self, task: Task, predict: Callable[[Float[Array, "m dx"]], Prediction]) -> Float[Array, ""]:
        """The weighted sum of the mean ℓ over the target, the mean ℓ over the context, and the penalties.

        Args:
            task: context and target.
            predict: P(y|x) given the encoded context.
        """
        # The context need not be predicted if it has no weight.
        points = join(task.context, task.target) if self.context_weight else task.target
        losses = self.likelihood.loss(predict(points.x), points.y)
        n = len(losses) - len(task.target.mask)
        loss = self.target_weight * masked_mean(losses[n:], task.target.mask)
        if self.context_weight:
            loss = loss + self.context_weight * masked_mean(losses[:n], task.context.mask)
        return loss + sum(regulariser(self) for regulariser in self.regularisers)


def _for_each_class(r: Float[Array, "m dr"], classes: Bool[Array, " k"] | None) -> Float[Array, "m *k dr"]:
    """In classification, r⁽⁰⁾(x) repeated for each class."""
    if classes is None:
        return r
    return jnp.broadcast_to(r[:, None], (r.shape[0], len(classes), r.shape[-1]))


def _started(r: Float[Array, "m *k dr"], start: Float[Array, "m *k dr"] | None) -> Float[Array, "m *k dr"]:
    return r if start is None else r + start
