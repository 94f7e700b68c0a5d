"""Regression in one dimension, point by point: what the page draws for a set of context points."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from ..errors import InvalidCheckpoint, InvalidTask
from ..estimators.padding import pad_rows, to_float32
from ..estimators.trained import Trained
from ..model.autoregressive import Plan, sample_functions
from ..model.learner import Learner
from ..model.likelihoods import Gaussian
from ..model.orders import CoarseToFine
from ..model.stochastic import StochasticMetaFun
from ..model.task import Points
from ..tasks.curves import CurveTasks
from ..tasks.scaling import TaskScaling
from .exact import exact_prediction

# Contexts are padded to this size, so that one program predicts from all of them.
MAX_POINTS = 48
# The exact process takes time that is cubic in the size; for fewer points than this there is a second program.
FEW_POINTS = 16
GRID = 161
FUNCTIONS = 6
# Samples of a model without a latent variable are drawn at this many inputs, one after the other.
DRAWN_INPUTS = 24


class CurveModel:
    """A model for regression in one dimension, compiled for the page.

    Args:
        name: what the page calls it.
        trained: the model; InvalidCheckpoint unless it takes one number and predicts one.
    """

    def __init__(self, name: str, trained: Trained):
        tasks = trained.tasks
        if tasks.problem != "regression" or tasks.accepts_any_table or tasks.sizes != (1, 1):
            raise InvalidCheckpoint(
                f"{name} does not predict curves: expected a model for regression with one input and one output; "
                "choose another run or file, or leave it out for the shipped models."
            )
        if tasks.least_rows > 1:
            raise InvalidCheckpoint(
                f"{name} takes its scale from at least {tasks.least_rows} points, and the page starts without any; "
                "use MetaFunRegressor, or choose another run or file."
            )
        self.name, self.trained = name, trained
        self.x_range, self.y_range = _ranges(trained)
        self.scaling: TaskScaling = tasks.scaling(np.zeros((1, 1)), np.zeros((1, 1)))
        self.x = np.linspace(*self.x_range, GRID, dtype=np.float32)
        self.scaled_x = jnp.asarray(to_float32(self.scaling.scale_inputs(self.x[:, None]), "x"))

    @cached_property
    def description(self) -> dict[str, Any]:
        """What the page needs to know; the shapes tell how to read an answer."""
        mean, std, weights = self._predict(*self._context([], MAX_POINTS))
        return {
            "name": self.name,
            "trained_on": self.trained.record.get("trained_on", self.trained.tasks.trained_on),
            "x": self.x_range,
            "y": self.y_range,
            "grid": GRID,
            "updates": len(mean) - 1,
            "most_points": MAX_POINTS,
            "has_std": std is not None,
            "has_weights": weights is not None,
            "has_exact": self._exact is not None,
            "functions": FUNCTIONS if std is not None else 0,
        }

    def answer(self, points: Sequence[tuple[float, float]], exact: bool = False) -> list[NDArray]:
        """The arrays to draw, in the user's units.

        These are means [T + 1, m] and standard deviations [T + 1, m] after each update, the weights k(x, xᵢ) [m, n],
        and with `exact` mean and deviation of the exact process, [m] each. What a model does not have is left out.

        Args:
            points: the context (xᵢ, yᵢ).
            exact: whether the exact process is wanted, where it is known.
        """
        mean, std, weights = self._predict(*self._context(points, MAX_POINTS))
        found = [self._mean(mean)]
        if std is not None:
            found.append(self._std(std))
        if weights is not None:
            found.append(weights[:, : len(points)])
        if exact and self._exact is not None:
            size = FEW_POINTS if len(points) <= FEW_POINTS else MAX_POINTS
            mean, std = self._exact(*self._context(points, size))
            found += [self._mean(mean), self._std(std)]
        return _finite(found)

    def functions(self, points: Sequence[tuple[float, float]]) -> list[NDArray]:
        """Functions drawn from the model, [FUNCTIONS, m]; the same noise in every call, so that they move smoothly."""
        return _finite([self._mean(self._draw(*self._context(points, MAX_POINTS)))])

    def warm_up(self) -> None:
        """Compiles everything an answer needs."""
        for size in (FEW_POINTS, MAX_POINTS):
            self.answer([(self.x_range[0], 0.0)] * size, exact=True)
        if self.description["functions"]:
            self.functions([])

    def _context(self, points: Sequence[tuple[float, float]], size: int) -> tuple[NDArray, NDArray, NDArray]:
        if len(points) > MAX_POINTS:
            raise InvalidTask(f"{len(points)} points; the page takes at most {MAX_POINTS}. Remove some.")
        given = np.asarray(points, float).reshape(-1, 2)
        if not np.isfinite(given).all():
            raise InvalidTask("a point is not a pair of finite numbers; remove it.")
        x, y = self.scaling.scale_inputs(given[:, :1]), self.scaling.outputs(given[:, 1:])
        padded = pad_rows(to_float32(x, "x"), size), pad_rows(to_float32(y, "y"), size)
        return (*padded, np.arange(size) < len(points))

    def _mean(self, values: Any) -> NDArray:
        return self.scaling.outputs.inverse(np.asarray(values, float)[..., None])[..., 0]

    def _std(self, values: Any) -> NDArray:
        return np.asarray(values, float) * np.asarray(self.scaling.outputs.deviation)[0]

    @cached_property
    def _predict(self) -> Callable[..., Any]:
        """Compiled: context -> means and deviations [T + 1, m], weights [m, n]."""
        has_std = isinstance(self.trained.model.likelihood, Gaussian)

        def predict(model: Learner, x: Array, y: Array, mask: Array) -> tuple[Array, Array | None, Array | None]:
            representation = model.encode(Points(x, y, mask))
            found: Any = model.predict_trajectory(representation, self.scaled_x)
            weights = model.weights(representation, self.scaled_x)
            return found.mean[..., 0], found.std[..., 0] if has_std else None, weights

        return self._compiled(predict)

    @cached_property
    def _exact(self) -> Callable[..., Any] | None:
        """Compiled: context -> mean and deviation of the exact process [m]; None where there is none."""
        tasks = self.trained.tasks
        if not isinstance(tasks, CurveTasks):
            return None
        predict, grid = exact_prediction(tasks), self.scaled_x

        @jax.jit
        def exact(x: Array, y: Array, mask: Array) -> tuple[Array, Array]:
            found = predict(Points(x, y, mask), grid)
            return found.mean[:, 0], found.std[:, 0]

        return exact

    @cached_property
    def _draw(self) -> Callable[..., Any]:
        """Compiled: context -> functions [FUNCTIONS, m]."""
        key, grid = jax.random.key(0), self.scaled_x
        inputs = grid[np.linspace(0, GRID - 1, DRAWN_INPUTS).astype(int)]

        def draw(model: Learner, x: Array, y: Array, mask: Array) -> Array:
            context = Points(x, y, mask)
            if isinstance(model, StochasticMetaFun):
                drawn: Any = model.functions(model.encode(context), grid, key, FUNCTIONS)
                return drawn.mean[..., 0]
            return sample_functions(model, context, inputs, grid, key, FUNCTIONS, Plan(CoarseToFine()))[..., 0]

        return self._compiled(draw)

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        arrays, rest = eqx.partition(self.trained.model, eqx.is_array)
        compiled = jax.jit(lambda arrays, *context: function(eqx.combine(arrays, rest), *context))
        return lambda *context: compiled(arrays, *context)


def _finite(arrays: Sequence[NDArray]) -> list[NDArray]:
    """The arrays as float32; InvalidTask if the page could not draw them."""
    with np.errstate(over="ignore"):
        found = [np.asarray(array, np.float32) for array in arrays]
    if not all(np.isfinite(array).all() for array in found):
        raise InvalidTask("the curve is not finite; remove points that are far away from the others.")
    return found


def _ranges(trained: Trained) -> tuple[tuple[float, float], tuple[float, float]]:
    """The parts of the x and y axes that the page shows."""
    tasks = trained.tasks
    if tasks.input_bounds is not None and tasks.output_bounds is not None:
        # A curve rarely comes near the bounds of a process, which are four deviations away.
        share = 0.45 if isinstance(tasks, CurveTasks) else 1.1
        return tasks.input_bounds, (share * tasks.output_bounds[0], share * tasks.output_bounds[1])
    scaling = tasks.scaling(np.zeros((1, 1)), np.zeros((1, 1)))
    ends = np.array([[-3.0], [3.0]])
    x, y = scaling.scale_inputs, scaling.outputs
    low, high = (float(v) for v in y.inverse(ends)[:, 0])
    # The inputs are scaled linearly, so two values give the inverse.
    zero, one = x(np.zeros((1, 1)))[0, 0], x(np.ones((1, 1)))[0, 0]
    left, right = ((end - zero) / (one - zero) for end in (-2.0, 2.0))
    return (float(left), float(right)), (low, high)
