"""The small tables that scikit-learn ships, and how they are split."""

import hashlib
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
        bundled: scikit-learn's function that loads it.
        problem: "classification" or "regression".
        sizes: numbers of training rows to try; rows of each class in classification.
        components: number of principal components that replace the columns, if any.
    """

    bundled: Callable[..., Any]
    problem: str
    sizes: tuple[int, ...]
    components: int | None = None

    def load(self) -> tuple[NDArray, NDArray]:
        """The inputs [rows, columns] and the labels or values [rows]."""
        x, y = self.bundled(return_X_y=True)
        return (x if self.components is None else PCA(self.components, random_state=0).fit_transform(x)), y

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the table as scikit-learn has it: principal components may differ in their last bits."""
        digest = hashlib.sha256()
        for array in self.bundled(return_X_y=True):
            digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()


SETS = {
    "iris": TableSet(datasets.load_iris, "classification", CLASS_SIZES),
    "wine": TableSet(datasets.load_wine, "classification", CLASS_SIZES),
    "breast_cancer": TableSet(datasets.load_breast_cancer, "classification", CLASS_SIZES),
    "digits": TableSet(datasets.load_digits, "classification", CLASS_SIZES, components=16),
    "diabetes": TableSet(datasets.load_diabetes, "regression", ROW_COUNTS),
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
