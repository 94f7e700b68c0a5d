"""A task 𝒯 = (context, target): two sets of labelled points, padded and masked."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from ..errors import InvalidTask


class Points(eqx.Module):
    """Labelled points {(xᵢ, yᵢ)}.

    Args:
        x: inputs.
        y: outputs; one-hot labels in classification.
        mask: False where a row is padding.
    """

    x: Float[Array, "n dx"]
    y: Float[Array, "n dy"]
    mask: Bool[Array, " n"]

    @classmethod
    def of(cls, x: ArrayLike, y: ArrayLike, role: str = "context") -> "Points":
        """Points from a user's arrays, checked.

        Args:
            x: inputs [n, dx], finite; n may be 0.
            y: outputs [n, dy], finite.
            role: "context" or "target", for error messages.
        """
        arrays = {
            "inputs": _matrix(x, f"{role} inputs", "dx"),
            "outputs": _matrix(y, f"{role} outputs", "dy"),
        }
        n_x, n_y = len(arrays["inputs"]), len(arrays["outputs"])
        if n_x != n_y:
            raise InvalidTask(
                f"{role} has {n_x} inputs but {n_y} outputs; pair them along the first axis: "
                f"x_{role} [n, dx] with y_{role} [n, dy]."
            )
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                row = int(np.argmin(np.isfinite(array).all(axis=1)))
                raise InvalidTask(f"{role} {name} hold NaN or infinity, first in row {row}; drop or repair those rows.")
        return cls(jnp.asarray(arrays["inputs"]), jnp.asarray(arrays["outputs"]), jnp.ones(n_x, bool))

    @property
    def classes(self) -> Bool[Array, " k"]:
        """The classes that occur among one-hot labels y; all classes if there are no points."""
        shown = ((self.y > 0) & self.mask[:, None]).any(0)
        return shown | ~shown.any()

    def pad(self, n: int) -> "Points":
        """The same points, padded to n rows."""
        extra = n - len(self.mask)
        if extra < 0:
            raise InvalidTask(f"{len(self.mask)} points do not fit into {n}; pad to {len(self.mask)} or more.")
        return jax.tree.map(lambda a: jnp.pad(a, [(0, extra)] + [(0, 0)] * (a.ndim - 1)), self)


class Task(eqx.Module):
    """A learning problem.

    Args:
        context: labelled points to learn from.
        target: points to predict, with labels for the loss.
        fold: index of the part of the data that the task belongs to, for cross-fitting; None where there are none.
    """

    context: Points
    target: Points
    fold: Int[Array, ""] | None = None

    @classmethod
    def of(cls, x_context: ArrayLike, y_context: ArrayLike, x_target: ArrayLike, y_target: ArrayLike) -> "Task":
        """A task from a user's arrays, checked; context and target must agree in dx and dy.

        Args:
            x_context: inputs [n, dx]; n may be 0.
            y_context: outputs [n, dy].
            x_target: inputs [m, dx].
            y_target: outputs [m, dy].
        """
        context, target = Points.of(x_context, y_context, "context"), Points.of(x_target, y_target, "target")
        for axis, c, t in (("dx", context.x, target.x), ("dy", context.y, target.y)):
            if c.shape[1] != t.shape[1]:
                raise InvalidTask(
                    f"context has {axis} = {c.shape[1]} but target has {axis} = {t.shape[1]}; use the same."
                )
        return cls(context, target)


def join(a: Points, b: Points) -> Points:
    """The points of both sets, those of `a` first."""
    return jax.tree.map(lambda *arrays: jnp.concatenate(arrays), a, b)


def stack(tasks: Sequence[Task]) -> Task:
    """Tasks of different sizes as one batch: padded to the largest, with a leading axis for `jax.vmap`."""
    if not tasks:
        raise InvalidTask("a batch needs at least one task, but the list is empty; add one.")
    sizes = {(task.context.x.shape[1], task.context.y.shape[1]) for task in tasks}
    if len(sizes) > 1:
        raise InvalidTask(f"the tasks of a batch must agree in (dx, dy), but they have {sorted(sizes)}; use one size.")
    n = max(len(task.context.mask) for task in tasks)
    m = max(len(task.target.mask) for task in tasks)
    padded = [Task(task.context.pad(n), task.target.pad(m)) for task in tasks]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)


def _matrix(array: ArrayLike, what: str, axis: str) -> np.ndarray:
    try:
        if np.iscomplexobj(array):
            raise TypeError("it holds complex numbers")
        # Cast to the precision of computation first: a large value may overflow to infinity there.
        with np.errstate(over="ignore"):
            matrix = np.asarray(array, dtype=float).astype(jnp.zeros(()).dtype)
    except (TypeError, ValueError) as error:
        raise InvalidTask(f"{what} must be an array of numbers [n, {axis}]; {error}.") from None
    if matrix.ndim != 2:
        raise InvalidTask(
            f"{what} have shape {list(matrix.shape)}; expected [n, {axis}]. For scalars, add an axis: a[:, None]."
        )
    return matrix
