"""Tables to benchmark on, those that scikit-learn ships among them, and how they are split."""

import hashlib
from abc import ABC, abstractmethod
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


class TableSet(ABC):
    """A table to benchmark on.

    Args:
        problem: "classification" or "regression".
        sizes: numbers of training rows to try; rows of each class in classification.
        categorical: whether the numbers of each column are codes of categories; empty if none are.
    """

    problem: str
    sizes: tuple[int, ...]
    categorical: tuple[bool, ...]

    @abstractmethod
    def load(self) -> tuple[NDArray, NDArray]:
        """The inputs [rows, columns], NaN where missing, and the labels or values [rows]."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 of the table."""


@dataclass(frozen=True)
class BundledTable(TableSet):
    """A table of scikit-learn.

    Args:
        bundled: scikit-learn's function that loads it.
        problem: "classification" or "regression".
        sizes: numbers of training rows to try; rows of each class in classification.
        components: number of principal components that replace the columns, if any.
        categorical: as in `TableSet`.
    """

    bundled: Callable[..., Any]
    problem: str
    sizes: tuple[int, ...]
    components: int | None = None
    categorical: tuple[bool, ...] = ()

    def load(self) -> tuple[NDArray, NDArray]:
        x, y = self.bundled(return_X_y=True)
        return (x if self.components is None else PCA(self.components, random_state=0).fit_transform(x)), y

    @property
    def fingerprint(self) -> str:
        # As scikit-learn has it: principal components may differ in their last bits.
        return hash_arrays(*self.bundled(return_X_y=True))


def hash_arrays(*arrays: NDArray) -> str:
    """SHA-256 of the arrays with their types and shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


SETS: dict[str, TableSet] = {
    "iris": BundledTable(datasets.load_iris, "classification", CLASS_SIZES),
    "wine": BundledTable(datasets.load_wine, "classification", CLASS_SIZES),
    "breast_cancer": BundledTable(datasets.load_breast_cancer, "classification", CLASS_SIZES),
    "digits": BundledTable(datasets.load_digits, "classification", CLASS_SIZES, components=16),
    "diabetes": BundledTable(datasets.load_diabetes, "regression", ROW_COUNTS),
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
        of_label = [order[y[order] == label] for label in np.unique(y)]
        train = np.concatenate([rows[: min(size, len(rows) - 1)] for rows in of_label])
    else:
        train = order[:size]
    return train, order[~np.isin(order, train)][:TEST_ROWS]
