"""A model at the points of a task, as their outputs become known block by block: each kind does the least work."""

from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .known_weights import KnownWeights
from .learner import Learner
from .likelihoods import Prediction
from .metafun import FunctionalRepresentation, MetaFun
from .task import Points, join


class Chain(eqx.Module):
    """Predictions at rows of context and targets, given the rows whose outputs are known so far.

    Args:
        start: context and targets, of which the mask keeps the context.
        most: as in `Learner.for_context`.
    """

    start: eqx.AbstractVar[Points]
    most: eqx.AbstractVar[int | None]

    @abstractmethod
    def initial(self) -> Any:
        """What is known at first."""

    @abstractmethod
    def predict(self, known: Any, rows: Int[Array, " b"]) -> Prediction:
        """P(y|x) at some rows given what is known."""

    @abstractmethod
    def add(self, known: Any, rows: Int[Array, " b"], y: Float[Array, "b dy"]) -> Any:
        """What is known together with y at some rows; rows that do not exist add nothing."""


class Encoding(Chain):
    """For any learner: everything known is encoded again for each block."""

    model: Learner
    start: Points
    most: int | None = eqx.field(static=True)

    def initial(self) -> Points:
        return self.start

    def predict(self, known: Points, rows: Int[Array, " b"]) -> Prediction:
        representation = self.model.for_context(known, self.most).encode(known)
        return self.model.predict(representation, known.x[rows])

    def add(self, known: Points, rows: Int[Array, " b"], y: Float[Array, "b dy"]) -> Points:
        return _label(known, rows, y)


class Iterating(Chain):
    """For MetaFun: the T updates are repeated for each block, with a(x) and the weights of kernels computed once.

    A new point changes r(xᵢ) at all others after the first update, so for T > 1 every later update is different.
    """

    model: MetaFun
    start: Points
    pools: tuple[KnownWeights, ...]
    most: int | None = eqx.field(static=True)

    def initial(self) -> Points:
        return self.start

    def predict(self, known: Points, rows: Int[Array, " b"]) -> Prediction:
        model = self.model.for_context(known, self.most)
        representation = eqx.tree_at(lambda model: model.pools, model, self.pools).encode(known)
        here = tuple(pool.at(rows) for pool in self.pools)
        return self.model.predict(eqx.tree_at(lambda r: r.pools, representation, here), known.x[rows])

    def add(self, known: Points, rows: Int[Array, " b"], y: Float[Array, "b dy"]) -> Points:
        return _label(known, rows, y)


class Accumulated(eqx.Module):
    """Points, and their local updates."""

    points: Points
    updates: Float[Array, "p dr"]


class Adding(Chain):
    """For MetaFun with a single update of each point by itself: a block adds its local updates to r(·).

    Nothing is computed twice: u(xᵢ, yᵢ, r⁽⁰⁾(xᵢ)) does not depend on the other points.
    """

    model: MetaFun
    start: Points
    pools: tuple[KnownWeights, ...]
    most: int | None = eqx.field(static=True)

    def initial(self) -> Accumulated:
        return Accumulated(self.start, self._updates(self.start))

    def predict(self, known: Accumulated, rows: Int[Array, " b"]) -> Prediction:
        (pool,), points = self.pools, known.points
        representation = FunctionalRepresentation(
            initial=self.model.initial,
            pools=(pool.at(rows),),
            step_size=self.model.for_context(points, self.most).step_size,
            keys=(pool.queries,),
            mask=points.mask,
            classes=None,
            updates=known.updates[None],
        )
        return self.model.predict(representation, points.x[rows])

    def add(self, known: Accumulated, rows: Int[Array, " b"], y: Float[Array, "b dy"]) -> Accumulated:
        new = Points(known.points.x[rows], y, jnp.ones(len(rows), bool))
        updates = known.updates.at[rows].set(self._updates(new), mode="drop")
        return Accumulated(_label(known.points, rows, y), updates)

    def _updates(self, points: Points) -> Float[Array, "n dr"]:
        return self.model.updates[0](points, self.model.initial(points.x), lambda r: jnp.zeros(()))


def chain(
    model: Learner, context: Points, x: Float[Array, "m dx"], mask: Bool[Array, " m"], most: int | None = None
) -> Chain:
    """The model at the rows of the context and then those of x, by the least work.

    Args:
        model: any model.
        context: what is known.
        x: inputs of the targets.
        mask: False where a row of x is padding.
        most: as in `Learner.for_context`.
    """
    unknown = Points(x, jnp.zeros((len(x), context.y.shape[1]), context.y.dtype), jnp.zeros(len(x), bool))
    start = join(context, unknown)
    if not isinstance(model, MetaFun):
        return Encoding(model=model, start=start, most=most)
    # Padding is left out of what a pooling computes from all keys, such as their centre.
    there = jnp.concatenate([context.mask, mask])
    pools = tuple(KnownWeights.between(pool, start.x, there) for pool in model.pools)
    is_additive = model.iterations == 1 and model.similarity is None and model.updates[0].is_pointwise
    return (Adding if is_additive else Iterating)(model=model, start=start, pools=pools, most=most)


def _label(points: Points, rows: Int[Array, " b"], y: Float[Array, "b dy"]) -> Points:
    """The points with y at some rows, which the mask then keeps."""
    return Points(points.x, points.y.at[rows].set(y, mode="drop"), points.mask.at[rows].set(True, mode="drop"))
