"""A user's arrays become tasks, or a clear error."""

import dataclasses
import re

import numpy as np
import pytest

from metafun import MetaFunError, Points, Task, stack

X, Y = np.zeros((5, 2)), np.ones((5, 1))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (X, Y[:4], "context has 5 inputs but 4 outputs; pair them along the first axis: x_context [n, dx]"),
        (X[:, 0], Y, "context inputs have shape [5]; expected [n, dx]"),
        (X, Y[None], "context outputs have shape [1, 5, 1]; expected [n, dy]"),
        (
            np.where(np.arange(5)[:, None] == 3, np.nan, X),
            Y,
            "context inputs hold NaN or infinity, first in row 3",
        ),
        (
            X,
            np.where(np.arange(5)[:, None] == 1, np.inf, Y),
            "context outputs hold NaN or infinity, first in row 1",
        ),
        ([[1e39]], [[1.0]], "context inputs hold NaN or infinity, first in row 0"),
        ([[1.0]], [[1j]], "context outputs must be an array of numbers [n, dy]; it holds complex numbers"),
        ([["a", "b"]], [[1.0]], "context inputs must be an array of numbers"),
        ([[1.0], [1.0, 2.0]], [[1.0], [1.0]], "context inputs must be an array of numbers"),
    ],
)
def test_bad_arrays_are_refused(x, y, message):
    with pytest.raises(MetaFunError, match="^" + re.escape(message)):
        Points.of(x, y)


def test_context_and_target_must_agree():
    with pytest.raises(MetaFunError, match="context has dx = 2 but target has dx = 3"):
        Task.of(X, Y, np.zeros((4, 3)), np.zeros((4, 1)))
    with pytest.raises(MetaFunError, match="target has 4 inputs but 5 outputs"):
        Task.of(X, Y, X[:4], Y)


def test_lists_and_an_empty_context_are_valid():
    task = Task.of(np.zeros((0, 1)), np.zeros((0, 1)), [[1], [2]], [[3], [4]])
    assert task.context.mask.shape == (0,) and task.target.mask.all()


def test_a_task_is_frozen():
    task = Task.of(X, Y, X, Y)
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.context = task.target


def test_stack_pads_to_the_largest():
    batch = stack([Task.of(X, Y, X[:1], Y[:1]), Task.of(X[:2], Y[:2], X, Y)])
    np.testing.assert_array_equal(batch.context.mask.sum(1), [5, 2])
    np.testing.assert_array_equal(batch.target.mask.sum(1), [1, 5])
    assert batch.context.x.shape == (2, 5, 2)
    np.testing.assert_array_equal(batch.context.y[1, 2:], 0)


def test_padding_and_stacking_check_sizes():
    with pytest.raises(MetaFunError, match="5 points do not fit into 3"):
        Points.of(X, Y).pad(3)
    with pytest.raises(MetaFunError, match="at least one task"):
        stack([])
    with pytest.raises(MetaFunError, match=r"must agree in \(dx, dy\), but they have \[\(1, 1\), \(2, 1\)\]"):
        stack([Task.of(X, Y, X, Y), Task.of(Y, Y, Y, Y)])
