"""Few-shot classification with the conventions of scikit-learn."""

from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from ..training.memory import enough_memory
from .base import FEWER_ROWS, FewShotEstimator, finite
from .meta_fit import MetaFitOptions, classification_data
from .padding import check_context, map_chunks, padded_classes
from .saving import SavedContext
from .trained import Interrupted, Trained
from .trees import MOST_TREES, fit_trees

# Mixed in where a table is wide: more are slower and not more accurate.
N_TREES = 32


class MetaFunClassifier(ClassifierMixin, FewShotEstimator):
    """Few-shot classification with any labels, any number of classes and a few rows of each.

    After `fit`, `X_` [n, dx] and `y_` [n] hold the context and `classes_` [k] its labels in sorted order.
    """

    problem: ClassVar[str] = "classification"
    _y_checks: ClassVar[dict[str, bool]] = {}
    classes_: NDArray
    n_trees: int = N_TREES  # pickles of earlier versions have none

    def __init__(self, checkpoint: str | Path | Trained | Interrupted | None = None, n_trees: int = N_TREES):
        """Chooses the model; it is opened by `fit`.

        Args:
            checkpoint: as for `FewShotEstimator`.
            n_trees: trees that `fit` grows and mixes in where a table has more columns than the shipped model for any
                table takes, 16. 0: none. Other models have none.
        """
        super().__init__(checkpoint)
        self.n_trees = n_trees

    def meta_fit(self, X: ArrayLike, y: ArrayLike, **options: Unpack[MetaFitOptions]) -> Self:
        """Trains a model to distinguish classes that it has not seen; it becomes this estimator's `checkpoint`.

        Some of the classes are held out, and validation on them decides when to stop. Training starts as a nearest
        class mean of centred features, whose accuracy is reported too, and keeps it if nothing better is found. Ctrl-C
        ends the training; the best parameters so far are kept.

        Args:
            X: inputs, [n, dx]: an array of numbers, or a data frame. NaN is a missing entry.
            y: labels, [n], of at least 4 classes with at least 2 rows each.
            **options: `steps`, `settings`, `folder`, `seed` and `progress`, see `MetaFitOptions`.
        """
        return self._meta_train(lambda seed: classification_data(X, y, seed), options)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Adds rows to the context, or starts one; new classes may appear at any time.

        Args:
            X: inputs of the new rows, [n, dx].
            y: labels of the new rows, [n].
            classes: ignored; other classifiers of scikit-learn need all classes in advance.
        """
        return super().partial_fit(X, y)

    def predict_proba(self, X: ArrayLike) -> NDArray:
        """Class probabilities [m, k] of the rows X [m, dx], in the order of `classes_`."""
        with enough_memory(FEWER_ROWS):
            chunks = map_chunks(self._predict_chunk, self._chunks(X))
        return finite(np.concatenate(chunks))

    def _predict_chunk(self, x: NDArray, n: int) -> NDArray:
        return np.asarray(self.trained_.probabilities(self.representation_, x))[:n, : len(self.classes_)]

    def predict(self, X: ArrayLike) -> NDArray:
        """The most probable class [m] of the rows X [m, dx]."""
        # Before `classes_`: scikit-learn expects NotFittedError from here.
        most_probable = self.predict_proba(X).argmax(1)
        return self.classes_[most_probable]

    def _fit_context(self, trained: Trained, X: NDArray, y: NDArray) -> Self:
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one class only, '{classes[0]}'; a classifier needs rows of two or more.")
        width = padded_classes(len(classes)) if trained.model.is_for_any_classes else len(classes)
        trees = self._trees_of(trained, X.shape[1])
        check_context(trained.model, len(X), X.shape[1], width, trees)
        self._encode_context(trained, trained.scaling(X, None), X, y, np.eye(len(classes), width)[codes])
        self.classes_ = classes
        return self

    def _trees_of(self, trained: Trained, columns: int) -> int:
        """The number of trees that a table of so many columns gets."""
        if not isinstance(self.n_trees, Integral) or not 0 <= self.n_trees <= MOST_TREES:
            raise ValueError(f"n_trees = {self.n_trees!r} must be a whole number from 0 to {MOST_TREES:,}.")
        return int(self.n_trees) if trained.is_mixed and columns > trained.tasks.sizes[0] else 0

    def _with_trees(self, trained: Trained, encoded: Any, context: tuple[NDArray, ...], columns: int) -> Any:
        if not (trees := self._trees_of(trained, columns)):
            return encoded
        x, y, exists = context
        every = x[exists, trained.tasks.sizes[0] :]
        return replace(encoded, forest=fit_trees(every, y[exists].argmax(1), trees, y.shape[1]))

    def _predict_traceable(self, x: jax.Array) -> jax.Array:
        return self.trained_.probabilities(self.representation_, self.scaling_.scale_inputs(x))[:, : len(self.classes_)]

    def _saved_y(self) -> tuple[NDArray, list[Any]]:
        return np.searchsorted(self.classes_, self.y_), self.classes_.tolist()

    def _restored_y(self, context: SavedContext) -> NDArray:
        codes = context.y
        if codes.ndim != 1 or codes.dtype.kind not in "iu" or not ((codes >= 0) & (codes < len(context.labels))).all():
            raise ValueError(f"its classes are not indices of its {len(context.labels)} labels")
        return np.asarray(context.labels)[codes]
