"""The conventions of scikit-learn that regression and classification share."""

import contextlib
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_is_fitted, check_X_y, validate_data

from ..data.encoding import Encoding
from ..data.frames import is_frame
from ..errors import Diverged, InvalidCheckpoint, InvalidTask, MetaFunError, NotEnoughMemory
from ..tasks.scaling import TaskScaling
from ..training.memory import enough_memory
from .exporting import export_program
from .inputs import encode_rows, encoding_for
from .meta_fit import MetaFitOptions, TrainingData, meta_train
from .padding import LEAST_ROWS, pad_rows, padded_chunks, padded_size, rows_at_once, to_float32
from .saving import SavedContext, load_context, save
from .trained import Interrupted, Trained, open_trained

# Of a user's numbers.
LARGEST = 1e100
FEWER_ROWS = "fit fewer rows, or predict fewer at a time"


class FewShotEstimator(BaseEstimator):
    """A trained model with the context of one task: `fit` keeps and encodes the context, `predict` uses it."""

    problem: ClassVar[str]
    # Options of scikit-learn's validation of y.
    _y_checks: ClassVar[dict[str, bool]]
    X_: NDArray
    y_: NDArray
    n_features_in_: int
    feature_names_in_: NDArray
    # How columns of a frame become numbers; None where X is an array of numbers.
    encoding_: Encoding | None
    trained_: Trained
    scaling_: TaskScaling
    representation_: Any

    def __init__(self, checkpoint: str | Path | Trained | Interrupted | None = None):
        """Chooses the model; it is opened by `fit`.

        Args:
            checkpoint: the name of a shipped model ("curves", "sinusoid", "gp-rbf", "glyphs", "tables-regression" or
                "tables-classification"), a run folder, a checkpoint file, or the model that `meta_fit` trained.
                None is the shipped model for any small table.
        """
        self.checkpoint = checkpoint

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Encodes the context of a task; no parameter of the model changes.

        Args:
            X: inputs: an array of numbers [n, dx], or [n] for a model with one input, or a data frame (pandas or
                polars). A model for any table takes NaN as a missing entry, and encodes columns of categories, text,
                booleans and times.
            y: outputs: numbers, [n] or [n, dy], for regression; labels, [n], for classification.
        """
        trained = self._open_model()
        encoding = encoding_for(trained, X)
        options = {"ensure_min_samples": trained.tasks.least_rows, **self._y_checks}
        rows, values = self._validated(trained, encoding, X, y, reset=True, **options)
        self._fit_context(trained, rows, values)
        self.encoding_ = encoding
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Adds rows to the context, or starts one; X and y as for `fit`. Columns are encoded as in the first rows."""
        if not hasattr(self, "X_"):
            return self.fit(X, y)
        trained = self._open_model()
        rows, values = self._validated(trained, self._encoding, X, y, reset=False, **self._y_checks)
        if (values.dtype.kind in "biuf") != (self.y_.dtype.kind in "biuf"):
            raise ValueError(f"y is {values.dtype}, but y of the rows before is {self.y_.dtype}; give the same kind.")
        return self._fit_context(trained, np.concatenate([self.X_, rows]), np.concatenate([self.y_, values]))

    def save(self, path: str | Path) -> None:
        """Writes the model and, after `fit`, the context to one safetensors file, which runs no code when loaded."""
        context = None
        if hasattr(self, "X_"):
            columns = list(getattr(self, "feature_names_in_", []))
            context = SavedContext(self.X_, *self._saved_y(), columns, self._encoding)
        save(Path(path), open_trained(self._source), context, self._options)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Reads a file written by `save`; the estimator is fitted if the saved one was."""
        loaded = cls(open_trained(path))
        trained = loaded._open_model()
        with contextlib.suppress(KeyError, TypeError):  # files of earlier versions have none
            loaded.set_params(**{name: trained.record["options"][name] for name in loaded._options})
        try:
            if context := load_context(path, trained):
                loaded._restore(trained, context)
        except NotEnoughMemory:
            raise
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(f"{path} has a damaged context: {error}") from None
        return loaded

    def export(self, path: str | Path) -> None:
        """Writes the predictions from this context as one StableHLO program that needs only JAX.

        It takes rows of numbers; for a data frame these are the rows that `encode` returns.
        `jax.export.deserialize(bytearray(Path(path).read_bytes())).call(x)` runs it for float32 x [m, dx], any m.
        It returns the probabilities [m, k] of a classifier; mean and standard deviation, [m, dy] each, of a
        regressor, or the mean alone where `predicts_std` is False.
        """
        self._ensure_encoded()
        export_program(Path(path), self._predict_traceable, self.X_.shape[1])

    def encode(self, X: ArrayLike) -> NDArray:
        """The rows X as the numbers [m, dx] that an exported program takes."""
        self._ensure_encoded()
        return self._validated(self.trained_, self._encoding, X, reset=False)

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
    def _source(self) -> str | Path | Trained | Interrupted:
        return f"tables-{self.problem}" if self.checkpoint is None else self.checkpoint

    def _open_model(self) -> Trained:
        trained = open_trained(self._source)
        if trained.tasks.problem != self.problem:
            name = "this" if isinstance(self.checkpoint, Trained) else self.checkpoint
            raise InvalidCheckpoint(
                f"{name} is a model for {trained.tasks.problem}; this estimator is for {self.problem}."
            )
        return trained

    @property
    def _options(self) -> dict[str, Any]:
        """The parameters beside the model."""
        return {name: value for name, value in self.get_params(deep=False).items() if name != "checkpoint"}

    @property
    def _encoding(self) -> Encoding | None:
        return getattr(self, "encoding_", None)  # pickles of earlier versions have none

    def _validated(
        self, trained: Trained, encoding: Encoding | None, X: ArrayLike, *y: ArrayLike, reset: bool, **options: Any
    ) -> Any:
        """X as rows of numbers, and y, after scikit-learn's checks, if the model accepts their number of columns."""
        tasks = trained.tasks
        missing = "allow-nan" if tasks.accepts_any_table else True
        options |= {"dtype": float, "ensure_all_finite": missing}
        if tasks.sizes[0] == 1 and not tasks.accepts_any_table and not is_frame(X) and np.ndim(X) == 1:
            X = np.reshape(X, (-1, 1))  # a single input needs no second axis: fit(t, y)
        if encoding is None and not is_frame(X):
            checked = validate_data(self, X, *y, reset=reset, **options)
        else:
            if is_frame(X):
                validate_data(self, X, reset=reset, skip_check_array=True)  # only the names of the columns
            else:
                X = validate_data(self, X, reset=reset, dtype=float, ensure_all_finite="allow-nan")
            rows = encode_rows(encoding, X)
            checked = check_X_y(rows, *y, **options) if y else check_array(rows, **options)
        self._check_width(trained, checked[0] if y else checked)
        return checked

    def _check_width(self, trained: Trained, rows: NDArray) -> None:
        tasks = trained.tasks
        if not tasks.accepts_any_table and rows.shape[1] != tasks.sizes[0]:
            raise ValueError(
                f"X has {rows.shape[1]} features, but the model takes {tasks.sizes[0]}; use a model that was "
                "trained on such inputs."
            )
        warn_out_of_range("X", rows, tasks.input_bounds, "MinMaxScaler({})")

    def _restore(self, trained: Trained, context: SavedContext) -> None:
        """Fits a context that was encoded before it was saved."""
        missing = "allow-nan" if trained.tasks.accepts_any_table else True
        options = {"dtype": float, "ensure_all_finite": missing, **self._y_checks}
        rows, values = check_X_y(context.X, self._restored_y(context), **options)
        encoding = trained.encoding or context.encoding
        if encoding is not None and len(encoding.outputs) != rows.shape[1]:
            raise ValueError(f"{len(encoding.outputs)} columns in its encoding, but {rows.shape[1]} in its rows")
        self._check_width(trained, rows)
        self._fit_context(trained, rows, values)
        self.encoding_ = encoding
        self.n_features_in_ = rows.shape[1] if encoding is None else len(encoding.columns)
        if context.columns:
            self.feature_names_in_ = np.array(context.columns, object)

    @abstractmethod
    def _fit_context(self, trained: Trained, X: NDArray, y: NDArray) -> Self:
        """Encodes and keeps a validated context."""

    def _encode_context(self, trained: Trained, scaling: TaskScaling, X: NDArray, y: NDArray, targets: NDArray) -> None:
        """Encodes a context, with y as the `targets` [n, dy] of the model, and keeps it if that succeeds."""
        if (most := trained.tasks.most_rows) is not None and len(X) > most:
            raise InvalidTask(
                f"{len(X):,} rows, but the model takes at most {most:,}; fit a part of them, such as X[::2]."
            )
        context = padded_context(scaling, X, targets, trained.tasks.least_padded_context or LEAST_ROWS)
        with enough_memory(FEWER_ROWS):
            # At once: otherwise a lack of memory would be reported by the first prediction.
            encoded = jax.block_until_ready(trained.encode(*context))
            self.representation_ = self._with_trees(trained, encoded, context, X.shape[1])
        # Copies: `save` must not see what the caller later does to the arrays.
        self.X_, self.y_, self.trained_, self.scaling_ = np.array(X), np.array(y), trained, scaling

    def _with_trees(self, trained: Trained, encoded: Any, context: tuple[NDArray, ...], columns: int) -> Any:
        """An encoded context with trees, where they are mixed in."""
        return encoded

    def _ensure_encoded(self) -> None:
        """Encodes the context again where a pickle or `meta_fit` has dropped its representation."""
        check_is_fitted(self, "X_")
        if not hasattr(self, "representation_"):
            self._fit_context(self._open_model(), self.X_, self.y_)

    def _chunks(self, X: ArrayLike) -> Iterator[tuple[NDArray, int]]:
        """Validated rows in padded chunks, each with its number of rows before padding."""
        self._ensure_encoded()
        rows = self._validated(self.trained_, self._encoding, X, reset=False)
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

    def _meta_train(self, make_data: Callable[[int], TrainingData], options: MetaFitOptions) -> Self:
        """Trains a model and makes it the checkpoint; an existing context is kept if it has the sizes of the tasks."""
        try:
            trained = meta_train(make_data, **options)
        except (KeyboardInterrupt, Diverged):
            self.checkpoint = Interrupted()
            raise
        self.checkpoint = trained
        dropped = ["representation_"]
        if trained.encoding is not None or self._encoding is not None or not self._context_fits(trained):
            dropped += ["X_", "y_", "encoding_", "n_features_in_", "feature_names_in_"]
        for name in dropped:
            self.__dict__.pop(name, None)
        if (encoding := trained.encoding) is not None:
            self.n_features_in_ = len(encoding.columns)
            if encoding.named:
                self.feature_names_in_ = np.array(encoding.names, object)
        return self

    def _context_fits(self, trained: Trained) -> bool:
        """Whether the context, if there is one, has as many inputs and outputs as the tasks of a new model."""
        dx, dy = trained.tasks.sizes
        return not hasattr(self, "X_") or (
            self.X_.shape[1] == dx and (dy == 0 or self.y_.reshape(len(self.y_), -1).shape[1] == dy)
        )


def padded_context(
    scaling: TaskScaling, X: NDArray, targets: NDArray, least: int = LEAST_ROWS
) -> tuple[NDArray, NDArray, NDArray]:
    """A context as a model takes it: padded inputs, padded outputs, and the mask of the rows that exist.

    Args:
        scaling: how the task is scaled.
        X: inputs, [n, dx].
        targets: outputs of the model, [n, dy].
        least: as in `padded_size`.
    """
    size = padded_size(len(X), least)
    x, t = pad_rows(to_float32(scaling.scale_inputs(X), "X"), size), pad_rows(to_float32(targets, "y"), size)
    return x, t, np.arange(size) < len(X)


def in_range(values: NDArray, name: str) -> NDArray:
    """The values, if their squares and sums are finite too; otherwise ValueError about `name`."""
    if len(values) and np.nanmax(np.abs(values), initial=0) > LARGEST:
        raise ValueError(f"{name} has numbers beyond ±{LARGEST:g}; scale it.")
    return values


def finite(predicted: NDArray) -> NDArray:
    """The predictions, if all are finite; otherwise InvalidTask."""
    if not np.isfinite(predicted).all():
        row = int(np.argwhere(~np.isfinite(predicted))[0][0])
        raise InvalidTask(
            f"the prediction of row {row} is not finite: numbers in X, y or the model are too large to compute with; "
            "scale them, or use another model."
        )
    return predicted


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
