"""The conventions of scikit-learn that regression and classification share."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from ..errors import InvalidCheckpoint, MetaFunError
from ..tasks.scaling import TaskScaling
from .exporting import export_program
from .padding import pad_rows, padded_chunks, padded_size, rows_at_once, to_float32
from .saving import SavedContext, load_context, save
from .trained import Trained, open_trained


class FewShotEstimator(BaseEstimator):
    """A trained model with the context of one task: `fit` keeps and encodes the context, `predict` uses it."""

    problem: ClassVar[str]
    # Options of scikit-learn's validation of y.
    _y_checks: ClassVar[dict[str, bool]]
    X_: NDArray
    y_: NDArray
    n_features_in_: int
    feature_names_in_: NDArray
    trained_: Trained
    scaling_: TaskScaling
    representation_: Any

    def __init__(self, checkpoint: str | Path | Trained | None = None):
        """Chooses the model; it is opened by `fit`.

        Args:
            checkpoint: the name of a shipped model ("sinusoid", "gp-rbf", "glyphs", "tables-regression" or
                "tables-classification"), a run folder, a checkpoint file, or the model that `meta_fit` trained.
                None is the shipped model for any small table.
        """
        self.checkpoint = checkpoint

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Encodes the context of a task; no parameter of the model changes.

        Args:
            X: inputs, [n, dx]. A model for any table accepts NaN as a missing entry.
            y: outputs: numbers, [n] or [n, dy], for regression; labels, [n], for classification.
        """
        trained = self._open_model()
        # A table is standardised by its context, and one row has no spread.
        least = 2 if trained.tasks.accepts_any_table else 1
        rows, values = self._validated(trained, X, y, reset=True, ensure_min_samples=least, **self._y_checks)
        return self._fit_context(trained, rows, values)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Adds rows to the context, or starts one; X and y as for `fit`."""
        if not hasattr(self, "X_"):
            return self.fit(X, y)
        trained = self._open_model()
        rows, values = self._validated(trained, X, y, reset=False, **self._y_checks)
        if (values.dtype.kind in "biuf") != (self.y_.dtype.kind in "biuf"):
            raise ValueError(f"y is {values.dtype}, but y of the rows before is {self.y_.dtype}; give the same kind.")
        return self._fit_context(trained, np.concatenate([self.X_, rows]), np.concatenate([self.y_, values]))

    def save(self, path: str | Path) -> None:
        """Writes the model and, after `fit`, the context to one safetensors file, which runs no code when loaded."""
        columns = list(getattr(self, "feature_names_in_", []))
        context = SavedContext(self.X_, *self._saved_y(), columns) if hasattr(self, "X_") else None
        save(Path(path), open_trained(self._source), context)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a file written by `save`; the estimator is fitted if the saved one was."""
        loaded = cls(open_trained(path))
        trained = loaded._open_model()
        try:
            if context := load_context(path, trained):
                loaded.fit(context.X, loaded._restored_y(context))
                if context.columns:
                    loaded.feature_names_in_ = np.array(context.columns, object)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(f"{path} has a damaged context: {error}") from None
        return loaded

    def export(self, path: str | Path) -> None:
        """Writes the predictions from this context as one StableHLO program that needs only JAX.

        `jax.export.deserialize(bytearray(Path(path).read_bytes())).call(x)` runs it for float32 x [m, dx], any m.
        It returns the probabilities [m, k] of a classifier; mean and standard deviation, [m, dy] each, of a
        regressor, or the mean alone where `predicts_std` is False.
        """
        self._ensure_encoded()
        export_program(Path(path), self._predict_traceable, self.n_features_in_)

    def __getstate__(self) -> dict[str, Any]:
        """A pickle holds the context and the checkpoint's name; the rest is computed again when it is needed."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("trained_", "scaling_", "representation_")}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._accepts_any_table()
        return tags

    def _accepts_any_table(self) -> bool:
        try:
            return open_trained(self._source).tasks.accepts_any_table
        except MetaFunError:
            return False  # `fit` reports what is wrong with the checkpoint

    @property
    def _source(self) -> str | Path | Trained:
        return f"tables-{self.problem}" if self.checkpoint is None else self.checkpoint

    def _open_model(self) -> Trained:
        trained = open_trained(self._source)
        if trained.tasks.problem != self.problem:
            name = "this" if isinstance(self.checkpoint, Trained) else self.checkpoint
            raise InvalidCheckpoint(
                f"{name} is a model for {trained.tasks.problem}; this estimator is for {self.problem}."
            )
        return trained

    def _validated(self, trained: Trained, *arrays: ArrayLike, reset: bool, **options: Any) -> Any:
        """The arrays after scikit-learn's checks, if the model accepts their number of columns."""
        tasks = trained.tasks
        finite = "allow-nan" if tasks.accepts_any_table else True
        checked = validate_data(self, *arrays, reset=reset, dtype=float, ensure_all_finite=finite, **options)
        if not tasks.accepts_any_table and self.n_features_in_ != tasks.sizes[0]:
            raise ValueError(
                f"X has {self.n_features_in_} features, but the model takes {tasks.sizes[0]}; use a model that was "
                "trained on such inputs."
            )
        warn_out_of_range("X", checked[0] if len(arrays) > 1 else checked, tasks.input_bounds, "MinMaxScaler({})")
        return checked

    @abstractmethod
    def _fit_context(self, trained: Trained, X: NDArray, y: NDArray) -> Self:
        """Encodes and keeps a validated context."""

    def _encode_context(self, trained: Trained, scaling: TaskScaling, X: NDArray, y: NDArray, targets: NDArray) -> None:
        """Encodes a context, with y as the `targets` [n, dy] of the model, and keeps it if that succeeds."""
        size = padded_size(len(X))
        x, t = pad_rows(to_float32(scaling.scale_inputs(X), "X"), size), pad_rows(to_float32(targets, "y"), size)
        self.representation_ = trained.encode(x, t, np.arange(size) < len(X))
        # Copies: `save` must not see what the caller later does to the arrays.
        self.X_, self.y_, self.trained_, self.scaling_ = np.array(X), np.array(y), trained, scaling

    def _ensure_encoded(self) -> None:
        """Encodes the context again where a pickle or `meta_fit` has dropped its representation."""
        check_is_fitted(self, "X_")
        if not hasattr(self, "representation_"):
            self._fit_context(self._open_model(), self.X_, self.y_)

    def _chunks(self, X: ArrayLike) -> Iterator[tuple[NDArray, int]]:
        """Validated rows in padded chunks, each with its number of rows before padding."""
        self._ensure_encoded()
        rows = self._validated(self.trained_, X, reset=False)
        return padded_chunks(rows, self.scaling_.scale_inputs, rows_at_once(self.trained_.model))

    @abstractmethod
    def _predict_traceable(self, x: jax.Array) -> Any:
        """The prediction at x [m, dx] by operations of JAX alone, for `export`."""

    @abstractmethod
    def _saved_y(self) -> tuple[NDArray, list[Any]]:
        """The fields `y` and `labels` of a `SavedContext`."""

    @abstractmethod
    def _restored_y(self, context: SavedContext) -> NDArray:
        """The y that was fitted."""

    def _use(self, trained: Trained) -> Self:
        """Makes `trained` the checkpoint; an existing context is encoded again when it is needed."""
        self.checkpoint = trained
        self.__dict__.pop("representation_", None)
        return self


def warn_out_of_range(name: str, values: NDArray, bounds: tuple[float, float] | None, remedy: str) -> None:
    """Warns of values outside the range the model was trained on.

    Args:
        name: the user's name for the values, X or y.
        values: the array.
        bounds: least and largest value in training; None where any value is accepted.
        remedy: what scales the values; `{}` stands for the bounds.
    """
    if bounds is None or not len(values) or (bounds[0] <= values.min() and values.max() <= bounds[1]):
        return
    warnings.warn(
        f"{name} ranges from {values.min():g} to {values.max():g}, but the model was trained on {bounds[0]:g} to "
        f"{bounds[1]:g} and cannot extrapolate; scale {name}, e.g. with {remedy.format(bounds)}.",
        stacklevel=4,
    )
