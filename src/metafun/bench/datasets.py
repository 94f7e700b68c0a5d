"""The small tables that scikit-learn ships, and how they are split."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.decomposition import PCA

# Test rows in each split, at most.
TEST_ROWS = 200
# Training rows: of each class in classification, in all in regression.
CLASS_SIZES, ROW_COUNTS = (2, 5, 10, 20), (8, 16, 32, 64, 128)


@dataclass(frozen=True)
class TableSet:
    """A table to benchmark on.

    Args:
        load: returns the inputs [rows, columns] and the labels or values [rows].
        problem: "classification" or "regression".
        sizes: numbers of training rows to try; rows of each class in classification.
    """

    load: Callable[[], tuple[NDArray, NDArray]]
    problem: str
    sizes: tuple[int, ...]


def _digits() -> tuple[NDArray, NDArray]:
    x, y = datasets.load_digits(return_X_y=True)
    return PCA(16, random_state=0).fit_transform(x), y


def _bundled(load: Callable[..., Any]) -> Callable[[], tuple[NDArray, NDArray]]:
    return lambda: load(return_X_y=True)


SETS = {
    "iris": TableSet(_bundled(datasets.load_iris), "classification", CLASS_SIZES),
    "wine": TableSet(_bundled(datasets.load_wine), "classification", CLASS_SIZES),
    "breast_cancer": TableSet(_bundled(datasets.load_breast_cancer), "classification", CLASS_SIZES),
    "digits": TableSet(_digits, "classification", CLASS_SIZES),
    "diabetes": TableSet(_bundled(datasets.load_diabetes), "regression", ROW_COUNTS),
}


def split_rows(y: NDArray, size: int, problem: str, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Random indices of training rows and of at most `TEST_ROWS` other rows to test on.

    Args:
        y: labels or values, [rows].
        size: number of training rows; of each class in classification.
        problem: "classification" or "regression".
        rng: draws the split.
    """
    order = rng.permutation(len(y))
    if problem == "classification":
        train = np.concatenate([order[y[order] == label][:size] for label in np.unique(y)])
    else:
        train = order[:size]
    return train, order[~np.isin(order, train)][:TEST_ROWS]
