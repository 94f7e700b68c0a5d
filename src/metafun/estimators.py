"""scikit-learn estimators over a trained checkpoint: `fit` encodes the context, `predict` evaluates and decodes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from .checkpoint import load_model, read_header
from .errors import InvalidCheckpoint
from .likelihoods import Gaussian
from .runs import Run
from .stochastic import StochasticMetaFun
from .task import Points

# Bounds the memory of a prediction: this many rows are predicted at a time.
ROWS_AT_A_TIME = 4096

_encode = eqx.filter_jit(lambda model, context: model.encode(context))
_predict = eqx.filter_jit(lambda model, representation, x: model.predict(representation, x))
_functions = eqx.filter_jit(lambda model, representation, x, key, n: model.functions(representation, x, key, n))


class FewShot(BaseEstimator):
    """What regression and classification share: a checkpoint, a context, and predictions in chunks."""

    X_: NDArray
    y_: NDArray
    n_features_in_: int

    def __init__(self, checkpoint: str | Path):
        """`checkpoint` is a run folder or a checkpoint's file."""
        self.checkpoint = checkpoint

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Adds points to the context."""
        if not hasattr(self, "X_"):
            return self.fit(X, y)
        x, new = validate_data(self, X, y, reset=False, dtype=float)
        return self.fit(np.concatenate([self.X_, x]), np.concatenate([self.y_, new]))

    def __getstate__(self) -> dict[str, Any]:
        """The context is kept, and what is made of it is made again: a pickle needs the checkpoint where it was."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in ("model_", "config_", "representation_")}

    def _load(self, problem: str) -> None:
        path = Path(self.checkpoint)
        path = Run(path).checkpoint_file if path.is_dir() else path
        self.config_ = read_header(path)[0]
        if self.config_.model.problem != problem:
            raise InvalidCheckpoint(
                f"{self.checkpoint} is a model for {self.config_.model.problem}; this estimator is for {problem}."
            )
        features = self.config_.tasks.sizes[0]
        if self.n_features_in_ != features:
            raise ValueError(
                f"X has {self.n_features_in_} features, but the model in {self.checkpoint} takes {features}; "
                "use a checkpoint that was trained on such inputs."
            )
        self.model_ = load_model(path)

    def _encode(self, X: NDArray, Y: NDArray) -> None:
        context = Points.of(self.config_.tasks.prepare(X), Y)
        self.representation_ = _encode(self.model_, context.pad(_room(len(X))))

    def _chunks(self, X: ArrayLike) -> Iterator[tuple[jax.Array, int]]:
        """Rows as the model takes them, a chunk at a time, and how many of them are more than padding."""
        check_is_fitted(self, "X_")
        if not hasattr(self, "representation_"):
            self.fit(self.X_, self.y_)
        rows = validate_data(self, X, reset=False, dtype=float)
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            chunk = self.config_.tasks.prepare(rows[start : start + ROWS_AT_A_TIME])
            room = min(_room(len(chunk)), ROWS_AT_A_TIME)
            yield jnp.asarray(np.pad(chunk, [(0, room - len(chunk)), (0, 0)]), float), len(chunk)


class MetaFunRegressor(RegressorMixin, FewShot):
    """Few-shot regression: the points given to `fit` are the context of a task like those the model was trained on."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        self.X_, self.y_ = validate_data(self, X, y, dtype=float, y_numeric=True, multi_output=True)
        self._load("regression")
        outputs, expected = np.reshape(self.y_, (len(self.y_), -1)), self.config_.tasks.sizes[1]
        if outputs.shape[1] != expected:
            raise ValueError(f"y has {outputs.shape[1]} outputs, but the model in {self.checkpoint} has {expected}.")
        self._encode(self.X_, outputs)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> NDArray | tuple[NDArray, NDArray]:
        """The mean, and with `return_std` the standard deviation beside it."""
        predictions = [(_predict(self.model_, self.representation_, x), n) for x, n in self._chunks(X)]
        mean = self._shaped([np.asarray(p.mean)[:n] for p, n in predictions])
        if not return_std:
            return mean
        if not isinstance(self.model_.likelihood, Gaussian):
            raise ValueError(
                f"the model in {self.checkpoint} was trained on the squared error and knows no standard deviation; "
                "use one that was trained with model.loss.kind=gaussian."
            )
        return mean, self._shaped([np.asarray(p.std)[:n] for p, n in predictions])

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None) -> NDArray:
        """Outputs drawn at X, [rows, n_samples]; whole functions, where the representation is stochastic."""
        key = jax.random.key(check_random_state(random_state).randint(2**31 - 1))
        drawn = []
        for x, n in self._chunks(X):
            if isinstance(self.model_, StochasticMetaFun):
                # The same key in every chunk: its z, and so the function, is the same.
                values = _functions(self.model_, self.representation_, x, key, n_samples).mean
            else:
                key, now = jax.random.split(key)
                values = _predict(self.model_, self.representation_, x).sample(now, n_samples)
            drawn.append(np.moveaxis(np.asarray(values)[:, :n], 0, -1))
        return np.concatenate(drawn)[:, 0] if self.y_.ndim == 1 else np.concatenate(drawn)

    def _shaped(self, chunks: list[NDArray]) -> NDArray:
        """As y was given: a column, or a matrix."""
        values = np.concatenate(chunks) if chunks else np.zeros((0, self.config_.tasks.sizes[1]))
        return values[:, 0] if self.y_.ndim == 1 else values


class MetaFunClassifier(ClassifierMixin, FewShot):
    """Few-shot classification: any labels, any number of classes, a few rows of each."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        self.X_, self.y_ = validate_data(self, X, y, dtype=float)
        check_classification_targets(self.y_)
        self.classes_, codes = np.unique(self.y_, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only, {self.classes_[0]!r}; a classifier needs rows of two or more.")
        self._load("classification")
        # Room for a few classes more: the model knows from the context which are there, and little is compiled anew.
        self._encode(self.X_, np.eye(_room(len(self.classes_)))[codes])
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray:
        """[rows, classes], in the order of `classes_`."""
        chunks = [
            np.asarray(_predict(self.model_, self.representation_, x).probabilities)[:n] for x, n in self._chunks(X)
        ]
        return np.concatenate(chunks)[:, : len(self.classes_)] if chunks else np.zeros((0, len(self.classes_)))

    def predict(self, X: ArrayLike) -> NDArray:
        return self.classes_[self.predict_proba(X).argmax(1)]


def _room(n: int) -> int:
    """The next power of two, from 8 on: few sizes, so that little is compiled."""
    return max(8, 1 << (n - 1).bit_length())
