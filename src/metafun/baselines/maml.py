"""MAML (Finn et al., 2017) and Meta-SGD (Li et al., 2017): learn the starting point of gradient descent."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..model.learner import Learner
from ..model.likelihoods import Likelihood, Prediction, SquaredError, masked_mean
from ..model.nn import MLP, Hyperparameter, count_parameters
from ..model.task import Points, Task


class Adapted(eqx.Module):
    """θₜ, stored as the factors of its gradients.

    The gradient of a layer's weights is Σᵢ hᵢ δᵢᵀ over the points of the context, hᵢ the layer's input and δᵢ the
    derivative of the loss in its output. These factors are smaller than the weights, and all tasks share the product
    with the weights of θ₀.

    Args:
        inputs: hᵢ of each layer, a row for each step and point.
        slopes: δᵢ of each layer; rows of 0 where no step has been taken yet.
        classes: the classes of the task; None in regression.
    """

    inputs: tuple[Float[Array, "rows _"], ...]
    slopes: tuple[Float[Array, "rows _"], ...]
    classes: Bool[Array, " k"] | None

    def until(self, rows: Int[Array, ""]) -> "Adapted":
        """θ after the steps whose factors are in the first `rows`."""
        first = jnp.arange(len(self.slopes[0]))[:, None] < rows
        inputs, slopes = (tuple(jnp.where(first, a, 0) for a in arrays) for arrays in (self.inputs, self.slopes))
        return Adapted(inputs, slopes, self.classes)


class MAML(Learner):
    """θₜ₊₁ = θₜ − η ∇L(θₜ) on the context, from a learned θ₀ and, in Meta-SGD, with learned rates η.

    In classification the last layer has one column, from which every class starts: no parameter depends on the number
    of classes, and their order does not matter.

    Args:
        network: f(x; θ₀).
        likelihood: the predictive distribution and its loss.
        rate: η.
        learn_rates: whether each parameter has a trainable rate that starts at `rate` (Meta-SGD).
        steps: updates in training.
        test_steps: updates otherwise.
        first_order: whether training treats ∇L as a constant instead of differentiating through the updates.
    """

    network: MLP
    rates: MLP | None
    likelihood: Likelihood
    rate: Hyperparameter
    steps: int = eqx.field(static=True)
    test_steps: int = eqx.field(static=True)
    first_order: bool = eqx.field(static=True)

    def __init__(
        self,
        network: MLP,
        likelihood: Likelihood,
        *,
        rate: float,
        learn_rates: bool,
        steps: int,
        test_steps: int,
        first_order: bool,
    ):
        self.network, self.likelihood, self.rate = network, likelihood, rate
        self.rates = jax.tree.map(lambda p: jnp.full_like(p, rate), network) if learn_rates else None
        self.steps, self.test_steps, self.first_order = steps, test_steps, first_order

    def encode(self, context: Points, key: PRNGKeyArray | None = None) -> Adapted:
        """The θₜ with the least loss on the context: in one task of several thousand, descent diverges."""
        adapted, losses = self._descend(context, self.test_steps)
        last, _ = self._loss(adapted, context)
        return adapted.until(jnp.nanargmin(jnp.append(losses, last)) * len(context.mask))

    def predict(self, representation: Adapted, x: Float[Array, "m dx"], key: PRNGKeyArray | None = None) -> Prediction:
        raw, _ = self._forward(representation, x)
        return self.likelihood(raw, representation.classes)

    def peak_floats_per_task(self, task: Task) -> int:
        """Each task has its own copy of the parameters."""
        return count_parameters(self)

    def predict_trajectory(self, representation: Adapted, x: Float[Array, "m dx"]) -> Prediction:
        """The predictions after t = 0, …, T updates, along a leading axis; constant from the best one on."""
        ends = jnp.arange(self.test_steps + 1) * (len(representation.slopes[0]) // self.test_steps)
        raw = jax.vmap(lambda rows: self._forward(representation.until(rows), x)[0])(ends)
        return self.likelihood(raw, representation.classes)

    def loss(self, task: Task, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """The mean loss of the targets after `steps` updates."""
        adapted, _ = self._descend(task.context, self.steps)
        return self.target_loss(adapted, task.target)

    def _descend(self, context: Points, steps: int) -> tuple[Adapted, Float[Array, " steps"]]:
        """θ after all steps, and the loss on the context before each of them."""
        n, classes = len(context.x), self.likelihood.classes(context)
        sizes_in, sizes_out = self._sizes(classes)
        inputs, slopes = (tuple(jnp.zeros((steps * n, size)) for size in sizes) for sizes in (sizes_in, sizes_out))
        start = Adapted(inputs, slopes, classes)

        def step(adapted: Adapted, t: Int[Array, ""]) -> tuple[Adapted, Float[Array, ""]]:
            zeros = [jnp.zeros((n, o)) for o in sizes_out]
            (value, inputs), slopes = jax.value_and_grad(self._loss, 2, has_aux=True)(adapted, context, zeros)
            found = inputs, slopes
            if self.first_order:
                found = jax.lax.stop_gradient(found)
            inputs, slopes = (
                tuple(jax.lax.dynamic_update_slice_in_dim(old, new, t * n, 0) for old, new in zip(*pair, strict=True))
                for pair in zip((adapted.inputs, adapted.slopes), found, strict=True)
            )
            return Adapted(inputs, slopes, classes), value

        # Unrolled, the few steps of training are one sequence of kernels on a GPU; a loop would synchronise at each.
        return jax.lax.scan(step, start, jnp.arange(steps), unroll=steps <= 5)

    def _loss(
        self, adapted: Adapted, context: Points, offsets: Sequence[Float[Array, "n _"]] | None = None
    ) -> tuple[Float[Array, ""], list[Float[Array, "n _"]]]:
        """L on the context, and the input of each layer."""
        raw, inputs = self._forward(adapted, context.x, offsets)
        losses = self.likelihood.loss(self.likelihood(raw, adapted.classes), context.y)
        return masked_mean(losses, context.mask), inputs

    def _forward(
        self, adapted: Adapted, x: Float[Array, "m dx"], offsets: Sequence[Float[Array, "m _"]] | None = None
    ) -> tuple[Float[Array, "m out"], list[Float[Array, "m _"]]]:
        """f(x; θ) with `offsets` added to each layer's output, and the input of each layer."""
        inputs, last = [], len(self.network.weights) - 1
        for layer, (w, b) in enumerate(zip(self.network.weights, self.network.biases, strict=True)):
            h, d = adapted.inputs[layer], adapted.slopes[layer]
            inputs.append(x)
            if self.rates is None:
                # x (W − η hᵀd) + b − η Σd without forming hᵀd, which is as large as W.
                y = x @ w + b - self.rate * (x @ h.T + 1) @ d
            else:
                y = x @ (w - self.rates.weights[layer] * (h.T @ d)) + b - self.rates.biases[layer] * d.sum(0)
            if offsets is not None:
                y = y + offsets[layer]
            x = y if layer == last else self.network.activation(y)
        # Trained by the squared error, the network has no output for s.
        return jnp.concatenate([y, jnp.zeros_like(y)], -1) if isinstance(self.likelihood, SquaredError) else y, inputs

    def _sizes(self, classes: Bool[Array, " k"] | None) -> tuple[list[int], list[int]]:
        """Input and output sizes of the layers; in classification the last one has an output for each class."""
        inputs, outputs = ([w.shape[axis] for w in self.network.weights] for axis in (0, 1))
        return inputs, outputs if classes is None else [*outputs[:-1], len(classes)]
