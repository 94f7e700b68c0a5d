"""MetaFun: a task is encoded into a function r(·) by T iterative functional updates (Section 2)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .decoders import Decoder
from .initial import Initial
from .likelihoods import Likelihood, Normal, masked_mean
from .pooling import Pooling
from .task import Points, Task
from .updates import Update


class FunctionalRepresentation(eqx.Module):
    """r(x) = r⁽⁰⁾(x) − α Σᵢ k(x, xᵢ) ūᵢ with ūᵢ = Σₜ uᵢ⁽ᵗ⁾: all that is known of a task.

    The pooling weights do not change with t, so T updates are one sum over the context. Where each
    iteration has a pooling of its own, the sum has one term for each of them.
    """

    initial: Initial
    pools: tuple[Pooling, ...]
    step_size: Float[Array, ""]
    keys: tuple[Float[Array, "n da"], ...]
    mask: Bool[Array, " n"]
    updates: Float[Array, "t n dr"]

    def __call__(self, x: Float[Array, "m dx"]) -> Float[Array, "m dr"]:
        r = self.initial(x)
        for p, weights in enumerate(self._weights(x)):
            u_sum = self.updates[p :: len(self.pools)].sum(0)
            r = r - self.step_size * weights @ u_sum
        return r

    def trajectory(self, x: Float[Array, "m dx"]) -> Float[Array, "t1 m dr"]:
        """r⁽⁰⁾(x), …, r⁽ᵀ⁾(x)."""
        weights = self._weights(x)
        r = [self.initial(x)]
        for t, u in enumerate(self.updates):
            r.append(r[-1] - self.step_size * weights[t % len(weights)] @ u)
        return jnp.stack(r)

    def _weights(self, x: Float[Array, "m dx"]) -> list[Float[Array, "m n"]]:
        return [p.weights(p.embed(x), k, self.mask) for p, k in zip(self.pools, self.keys, strict=True)]


class MetaFun(eqx.Module):
    """The learning model f = Φ(context): encode the context, then decode r(x) wherever a prediction is asked.

    `updates` and `pools` hold one shared module, or one for each iteration (the paper's future work b).
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
    ):
        self.initial, self.decode, self.likelihood = initial, decode, likelihood
        self.updates = update if isinstance(update, tuple) else (update,)
        self.pools = pool if isinstance(pool, tuple) else (pool,)
        for modules in (self.updates, self.pools):
            if len(modules) not in (1, iterations):
                raise ValueError(
                    f"give one module for all {iterations} iterations or one for each; {len(modules)} came."
                )
        self.step_size, self.iterations = jnp.asarray(step_size, float), iterations
        self.context_weight, self.target_weight = context_weight, target_weight

    def encode(self, context: Points) -> FunctionalRepresentation:
        """T steps of r⁽ᵗ⁺¹⁾ = r⁽ᵗ⁾ − α Σᵢ k(·, xᵢ) u(xᵢ, yᵢ, r⁽ᵗ⁾(xᵢ)), on the context points alone."""
        keys = tuple(pool.embed(context.x) for pool in self.pools)
        weights = [p.weights(k, k, context.mask) for p, k in zip(self.pools, keys, strict=True)]
        loss = self._context_loss(context)

        r, us = self.initial(context.x), []
        for t in range(self.iterations):
            u = self.updates[t % len(self.updates)](context, r, loss)
            r = r - self.step_size * weights[t % len(weights)] @ u
            us.append(u)
        return FunctionalRepresentation(self.initial, self.pools, self.step_size, keys, context.mask, jnp.stack(us))

    def predict(self, representation: FunctionalRepresentation, x: Float[Array, "m dx"]) -> Normal:
        """P(y|x) = Φ_d(r(x))(x)."""
        return self.likelihood(self.decode(representation(x), x))

    def predict_trajectory(self, representation: FunctionalRepresentation, x: Float[Array, "m dx"]) -> Normal:
        """What would be predicted after t = 0, …, T updates: a Normal with a leading axis for t."""
        return jax.vmap(lambda r: self.likelihood(self.decode(r, x)))(representation.trajectory(x))

    def loss(self, task: Task) -> Float[Array, ""]:
        """The mean of ℓ over the target, plus the mean over the context as the authors train it."""
        context, target = task.context, task.target
        prediction = self.predict(self.encode(context), jnp.concatenate([context.x, target.x]))
        losses = self.likelihood.loss(prediction, jnp.concatenate([context.y, target.y]))
        n = len(context.mask)
        return self.context_weight * masked_mean(losses[:n], context.mask) + self.target_weight * masked_mean(
            losses[n:], target.mask
        )

    def _context_loss(self, context: Points) -> Callable[[Float[Array, "n dr"]], Float[Array, ""]]:
        def loss(r: Float[Array, "n dr"]) -> Float[Array, ""]:
            prediction = self.likelihood(self.decode(r, context.x))
            return masked_mean(self.likelihood.loss(prediction, context.y), context.mask)

        return loss
