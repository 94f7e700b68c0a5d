"""scikit-learn estimators over a trained model: `fit` encodes the context, `predict` evaluates and decodes."""

import tempfile
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from numpy.typing import ArrayLike, NDArray
from rich.console import Console
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, column_or_1d, validate_data

from ..config import Config
from ..data import Table
from ..embeddings.base import Embedded
from ..errors import InvalidCheckpoint, MetaFunError
from ..files import write_atomically
from ..model.learner import Learner
from ..model.likelihoods import Gaussian
from ..model.stochastic import StochasticMetaFun
from ..tasks.scaling import OUTPUT_CLIP, TaskScaling
from ..training.checkpoint import read_arrays, read_header
from ..training.evaluation import MAX_FLOATS
from ..training.progress import watched
from . import meta_fit as own
from .padding import pad_rows, padded_size, to_float32
from .trained import Trained, locate, open_trained

# Bounds the memory of a prediction: so many rows are predicted at a time, or fewer if they need many numbers.
MAX_ROWS_AT_ONCE = 4096

_functions = eqx.filter_jit(lambda model, representation, x, key, n: model.functions(representation, x, key, n))


class FewShot(BaseEstimator):
    """What regression and classification share: a trained model, a context, and predictions in chunks."""

    problem: ClassVar[str]
    # What scikit-learn is to check of y beside the usual.
    checks: ClassVar[dict[str, bool]]
    X_: NDArray
    y_: NDArray
    n_features_in_: int
    feature_names_in_: NDArray
    trained_: Trained
    scaling_: TaskScaling

    def __init__(self, checkpoint: str | Path | Trained | None = None):
        """`checkpoint`: the name of a shipped one, a run folder, a file, or what `meta_fit` trained.

        If none is given, it is a model of any small table.
        """
        self.checkpoint = checkpoint

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """The context: a few rows and what is known of them."""
        trained = self._load()
        # One row tells nothing of how far numbers lie apart.
        least = 2 if trained.config.tasks.accepts_any_table else 1
        return self._take(trained, *self._validated(trained, X, y, reset=True, ensure_min_samples=least, **self.checks))

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Adds points to the context."""
        if not hasattr(self, "X_"):
            return self.fit(X, y)
        trained = self._load()
        x, new = self._validated(trained, X, y, reset=False, **self.checks)
        if (new.dtype.kind in "biuf") != (self.y_.dtype.kind in "biuf"):
            raise ValueError(f"y is {new.dtype}, but that of the rows before is {self.y_.dtype}; give the same kind.")
        return self._take(trained, np.concatenate([self.X_, x]), np.concatenate([self.y_, new]))

    def save(self, path: str | Path) -> None:
        """The model and, after `fit`, its context, in one file that runs no code when it is loaded."""
        context, labels = self._context() if hasattr(self, "X_") else ({}, [])
        if labels and not isinstance(labels[0], str | bool | int | float):
            raise ValueError(f"labels of {self.y_.dtype} cannot be saved; give them as text or numbers.")
        record = {"labels": labels, "names": list(getattr(self, "feature_names_in_", []))}
        open_trained(self._checkpoint()).save(Path(path), {"context": context}, record)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` wrote: fitted, if it was."""
        file, loaded = locate(path), cls(open_trained(path))
        loaded._expect_problem(open_trained(path))
        arrays, record = read_arrays(file, "context"), read_header(file)[1]
        if not arrays:
            return loaded
        try:
            loaded._restore(arrays["context.X"], arrays["context.y"], record["labels"])
            if names := [str(name) for name in record.get("names", [])]:
                loaded.feature_names_in_ = np.array(names, object)
            return loaded
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(f"{path} has a damaged context: {error}") from None

    def export(self, path: str | Path) -> None:
        """The prediction for this context, rows in and numbers out, as a program that needs nothing but JAX.

        `jax.export.deserialize(Path(path).read_bytes()).call(x)` runs it, for float32 x with any number of rows.
        """
        self._ready()
        rows = jax.ShapeDtypeStruct((*export.symbolic_shape("rows"), self.n_features_in_), jnp.float32)
        program = export.export(jax.jit(self._answer), platforms=("cpu", "cuda"))(rows)
        write_atomically(Path(path), bytes(program.serialize()))

    def __getstate__(self) -> dict[str, Any]:
        """The context is kept, and what is made of it is made again: a pickle needs the checkpoint where it was."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("trained_", "scaling_", "representation_")}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_any_table()
        return tags

    def _takes_any_table(self) -> bool:
        try:
            return open_trained(self._checkpoint()).config.tasks.accepts_any_table
        except MetaFunError:
            return False  # what is wrong with the checkpoint is said when it is used

    def _checkpoint(self) -> str | Path | Trained:
        return f"tables-{self.problem}" if self.checkpoint is None else self.checkpoint

    def _expect_problem(self, trained: Trained) -> None:
        if trained.config.model.problem != self.problem:
            named = "this" if isinstance(self.checkpoint, Trained) else self.checkpoint
            raise InvalidCheckpoint(
                f"{named} is a model for {trained.config.model.problem}; this estimator is for {self.problem}."
            )

    def _load(self) -> Trained:
        trained = open_trained(self._checkpoint())
        self._expect_problem(trained)
        return trained

    def _validated(self, trained: Trained, *arrays: ArrayLike, reset: bool, **options: Any) -> Any:
        """scikit-learn's checks, and whether the model takes rows of that width."""
        tasks = trained.config.tasks
        finite = "allow-nan" if tasks.accepts_any_table else True
        checked = validate_data(self, *arrays, reset=reset, dtype=float, ensure_all_finite=finite, **options)
        if not tasks.accepts_any_table and self.n_features_in_ != tasks.sizes[0]:
            raise ValueError(
                f"X has {self.n_features_in_} features, but the model takes {tasks.sizes[0]}; use one that was trained "
                "on such inputs."
            )
        return checked

    @abstractmethod
    def _take(self, trained: Trained, rows: NDArray, y: NDArray) -> Self:
        """Encodes a context that has been checked."""

    def _encode(self, trained: Trained, frame: TaskScaling, X: NDArray, Y: NDArray) -> Any:
        _check_range("X", X, trained.config.tasks.inputs, "MinMaxScaler({}) does")
        x, y, size = to_float32(frame.inputs(X), "X"), to_float32(Y, "y"), padded_size(len(X))
        return trained.encode(pad_rows(x, size), pad_rows(y, size), np.arange(size) < len(X))

    def _ready(self) -> None:
        check_is_fitted(self, "X_")
        if not hasattr(self, "representation_"):
            self._take(self._load(), self.X_, self.y_)

    def _chunks(self, X: ArrayLike) -> Iterator[tuple[NDArray, int]]:
        """Rows as the model takes them, a chunk at a time, and how many of them are more than padding."""
        self._ready()
        rows = self._validated(self.trained_, X, reset=False)
        _check_range("X", rows, self.trained_.config.tasks.inputs, "MinMaxScaler({}) does")
        most = rows_at_once(self.trained_.model)
        for start in range(0, len(rows), most):
            chunk = to_float32(self.scaling_.inputs(rows[start : start + most]), "X")
            yield pad_rows(chunk, min(padded_size(len(chunk)), most)), len(chunk)

    def _train(self, table: Table, config: Config, folder: str | Path | None, progress: bool) -> Self:
        """Trains in `folder`, where it can be stopped and goes on, or in a place that is gone afterwards."""
        with tempfile.TemporaryDirectory(prefix="metafun-") as temporary:
            run = own.open_own(Path(folder or temporary), table, config)
            console = Console(stderr=True, soft_wrap=True, highlight=False, quiet=not progress)
            for _ in watched(run, console, "meta-training"):
                pass
            self.checkpoint = open_trained(run.path)
        # A context that was given before is encoded again, by the new model.
        self.__dict__.pop("representation_", None)
        return self


class MetaFunRegressor(RegressorMixin, FewShot):
    """Few-shot regression: the points given to `fit` are the context of a task like those the model was trained on."""

    problem: ClassVar[str] = "regression"
    checks: ClassVar[dict[str, bool]] = {"y_numeric": True, "multi_output": True}

    def meta_fit(
        self,
        tasks: Sequence[tuple[ArrayLike, ArrayLike]],
        *,
        steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Self:
        """Trains the model itself on tasks (X, y), some of which are held out and tell when to stop.

        What it learned becomes this estimator's `checkpoint`. In a `folder`, a training that was interrupted goes on.
        `settings` are those of a run, as {"model.iterations": 3}.
        """
        table, outputs = own.regression_table(tasks, seed)
        return self._train(
            table, own.regression_config(table, outputs, own.chosen(steps, seed, settings)), folder, progress
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = not self._takes_any_table()
        return tags

    def _take(self, trained: Trained, rows: NDArray, values: NDArray) -> Self:
        if values.dtype.kind not in "biuf":
            raise ValueError(f"y must be numbers, not {values.dtype}.")
        outputs, tasks = np.reshape(values, (len(values), -1)).astype(float), trained.config.tasks
        if tasks.accepts_any_table and outputs.shape[1] == 1:
            values = column_or_1d(values, warn=True)
        if outputs.shape[1] != tasks.sizes[1]:
            raise ValueError(
                f"y has {outputs.shape[1]} outputs, but the model has {tasks.sizes[1]}; scikit-learn's "
                "MultiOutputRegressor takes a model for each."
            )
        _check_range("y", outputs, tasks.output_bounds, "TransformedTargetRegressor with a StandardScaler does")
        frame = tasks.frame(rows, outputs)
        scaled = frame.outputs(outputs)
        if tasks.accepts_any_table and (far := int((abs(scaled) >= OUTPUT_CLIP).sum())):
            warnings.warn(
                f"{far} of {len(scaled)} y lie more than {OUTPUT_CLIP:g} widths of the others away, and count as if they lay "
                "there; if they are no mistakes, predict log y or the like, as TransformedTargetRegressor does.",
                stacklevel=3,
            )
        # Only what has gone well changes the estimator.
        representation = self._encode(trained, frame, rows, scaled)
        # Copies: what the caller does to the arrays must not change what is saved.
        self.X_, self.y_, self.trained_ = np.array(rows), np.array(values), trained
        self.scaling_, self.representation_ = frame, representation
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> NDArray | tuple[NDArray, NDArray]:
        """The mean, and with `return_std` the standard deviation beside it."""
        predictions = [(self.trained_.predict(self.representation_, x), n) for x, n in self._chunks(X)]
        scale = self.scaling_.outputs
        mean = self._shaped([scale.back(np.asarray(p.mean, float)[:n]) for p, n in predictions])
        if not return_std:
            return mean
        self._expect_spread()
        return mean, self._shaped([np.asarray(p.std, float)[:n] * scale.deviation for p, n in predictions])

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None) -> NDArray:
        """Outputs drawn at X, [rows, n_samples]; whole functions, where the representation is stochastic."""
        self._expect_spread()
        if n_samples < 0:
            raise ValueError(f"n_samples = {n_samples} must not be negative.")
        key = jax.random.key(check_random_state(random_state).randint(2**31 - 1))
        drawn = []
        for x, n in self._chunks(X):
            model = self.trained_.model
            if isinstance(model, StochasticMetaFun):
                # The same key in every chunk: its z, and so the function, is the same.
                values = _functions(model, self.representation_, x, key, n_samples).mean
            else:
                key, now = jax.random.split(key)
                values = self.trained_.predict(self.representation_, x).sample(now, n_samples)
            values = self.scaling_.outputs.back(np.asarray(values, float)[:, :n])
            drawn.append(np.moveaxis(values, 0, -1))
        return np.concatenate(drawn)[:, 0] if self.y_.ndim == 1 else np.concatenate(drawn)

    def _answer(self, x: jax.Array) -> Any:
        """Mean and deviation, or the mean alone where the model knows no other."""
        prediction, scale = self.trained_.predict(self.representation_, self.scaling_.inputs(x)), self.scaling_.outputs
        mean, std = scale.back(prediction.mean), prediction.std * np.array(scale.deviation)
        return (mean, std) if self.predicts_std else mean

    def _expect_spread(self) -> None:
        if not self.predicts_std:
            raise ValueError(
                "the model was trained on the squared error and knows no standard deviation; use one that was trained "
                "with model.loss.kind=gaussian."
            )

    @property
    def predicts_std(self) -> bool:
        """Whether the model knows how sure it is."""
        self._ready()
        return isinstance(self.trained_.model.likelihood, Gaussian)

    def _shaped(self, chunks: list[NDArray]) -> NDArray:
        """As y was given: a column, or a matrix."""
        values = np.concatenate(chunks)
        return values[:, 0] if self.y_.ndim == 1 else values

    def _context(self) -> tuple[dict[str, NDArray], list[Any]]:
        return {"X": self.X_, "y": self.y_}, []

    def _restore(self, X: NDArray, y: NDArray, labels: list[Any]) -> Self:
        return self.fit(X, y)


class MetaFunClassifier(ClassifierMixin, FewShot):
    """Few-shot classification: any labels, any number of classes, a few rows of each."""

    problem: ClassVar[str] = "classification"
    checks: ClassVar[dict[str, bool]] = {}

    def meta_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        steps: int | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
        seed: int = 0,
        progress: bool = True,
    ) -> Self:
        """Trains the model itself on rows X of classes y, some of which are held out and tell when to stop.

        It learns to tell classes apart that it has not seen. What it learned becomes this estimator's `checkpoint`.
        In a `folder`, a training that was interrupted goes on. `settings` are those of a run.
        """
        table = own.classification_table(X, y, seed)
        config = own.classification_config(table, own.chosen(steps, seed, settings))
        return self._train(table, config, folder, progress)

    def _take(self, trained: Trained, rows: NDArray, labels: NDArray) -> Self:
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(f"y has one class only, '{classes[0]}'; a classifier needs rows of two or more.")
        frame = trained.config.tasks.frame(rows, None)
        representation = self._encode(trained, frame, rows, np.eye(len(classes))[codes])
        # Copies: what the caller does to the arrays must not change what is saved.
        self.X_, self.y_, self.classes_ = np.array(rows), np.array(labels), classes
        self.trained_, self.scaling_, self.representation_ = trained, frame, representation
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Self:
        """Adds rows to the context. Classes need not be announced: they are those the context shows."""
        return super().partial_fit(X, y)

    def predict_proba(self, X: ArrayLike) -> NDArray:
        """[rows, classes], in the order of `classes_`."""
        chunks = [
            np.asarray(self.trained_.probabilities(self.representation_, x))[:n, : len(self.classes_)]
            for x, n in self._chunks(X)
        ]
        return np.concatenate(chunks)

    def predict(self, X: ArrayLike) -> NDArray:
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def _answer(self, x: jax.Array) -> jax.Array:
        """The probabilities of the classes."""
        return self.trained_.probabilities(self.representation_, self.scaling_.inputs(x))[:, : len(self.classes_)]

    def _context(self) -> tuple[dict[str, NDArray], list[Any]]:
        return {"X": self.X_, "y": np.searchsorted(self.classes_, self.y_)}, self.classes_.tolist()

    def _restore(self, X: NDArray, y: NDArray, labels: list[Any]) -> Self:
        return self.fit(X, np.asarray(labels)[y])


def _check_range(name: str, values: NDArray, bounds: tuple[float, float] | None, remedy: str) -> None:
    """Warns of numbers that the model has never met."""
    if bounds is None or not len(values) or (bounds[0] <= values.min() and values.max() <= bounds[1]):
        return
    warnings.warn(
        f"{name} reaches from {values.min():g} to {values.max():g}, but the model was trained on {bounds[0]:g} to "
        f"{bounds[1]:g} and knows nothing beyond; scale {name}, as {remedy.format(bounds)}.",
        stacklevel=4,
    )


def rows_at_once(model: Learner) -> int:
    each = model.embedding.peak_floats_per_row() if isinstance(model, Embedded) else 0
    return max(1, min(MAX_ROWS_AT_ONCE, MAX_FLOATS // max(each, 1)))
