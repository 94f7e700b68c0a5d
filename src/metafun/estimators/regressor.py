"""Few-shot regression with the conventions of scikit-learn."""

import warnings
from collections.abc import Sequence
from typing import Any, ClassVar, Self, Unpack

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_random_state, column_or_1d

from ..errors import InvalidTask
from ..model.autoregressive import Plan, sample_paths
from ..model.likelihoods import Gaussian
from ..model.stochastic import StochasticMetaFun
from ..model.task import Points
from ..tasks.scaling import OUTPUT_CLIP
from ..training.memory import enough_memory
from .base import FEWER_ROWS, FewShotEstimator, finite, in_range, padded_context, warn_out_of_range
from .meta_fit import MetaFitOptions, TrainingData, regression_data
from .padding import LEAST_DRAWN, map_chunks, pad_rows, padded_size, to_float32
from .saving import SavedContext
from .task_rows import tasks_of_groups, tasks_of_pairs
from .trained import Trained

_sample_paths = eqx.filter_jit(sample_paths)
_sample_functions = eqx.filter_jit(lambda model, representation, x, key, n: model.functions(representation, x, key, n))


class MetaFunRegressor(RegressorMixin, FewShotEstimator):
    """Few-shot regression: the rows given to `fit` are the context of a task like those the model was trained on.

    After `fit`, `X_` [n, dx] and `y_` [n] or [n, dy] hold the context.
    """

    problem: ClassVar[str] = "regression"
    _y_checks: ClassVar[dict[str, bool]] = {"y_numeric": True, "multi_output": True}

    def meta_fit(
        self,
        X: ArrayLike | Sequence[tuple[ArrayLike, ArrayLike]],
        y: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        **options: Unpack[MetaFitOptions],
    ) -> Self:
        """Trains a model on many tasks; it becomes this estimator's `checkpoint`.

        Some of the tasks are held out, and validation on them decides when to stop. Ctrl-C ends the training; the best
        parameters so far are kept. `meta_fit(tasks)` takes pairs, `meta_fit(X, y, groups=...)` the rows of all tasks.

        Args:
            X: at least 3 pairs (X [n, dx], y [n] or [n, dy]), where n may differ between tasks; or, with `groups`, the
                inputs [n, dx] of all tasks. Inputs are arrays of numbers or data frames; NaN is a missing entry.
            y: with `groups`, the outputs [n] or [n, dy].
            groups: the task of each row, [n].
            **options: `steps`, `settings`, `folder`, `seed` and `progress`, see `MetaFitOptions`.
        """
        if (y is None) != (groups is None):
            raise InvalidTask(
                "meta_fit takes a list of pairs (X, y), or X, y and groups, the task of each row. A single task needs "
                "no training: use fit(X, y)."
            )

        def make_data(seed: int) -> TrainingData:
            return regression_data(tasks_of_pairs(X) if y is None else tasks_of_groups(X, y, groups), seed)

        return self._meta_train(make_data, options)

    def predict(self, X: ArrayLike, return_std: bool = False) -> NDArray | tuple[NDArray, NDArray]:
        """The predictive mean, in the shape of y: [m] or [m, dy].

        Before `fit`, a model that `meta_fit` trained predicts a task of which nothing is known: the population's mean,
        with the deviation over tasks.

        Args:
            X: inputs, [m, dx].
            return_std: return (mean, standard deviation), both in the shape of y.
        """
        if (population := self._without_context()) is not None:
            return population.predict(X, return_std)
        if return_std:
            self._require_std()
        with enough_memory(FEWER_ROWS):
            means, stds = zip(*map_chunks(self._predict_chunk, self._chunks(X)), strict=True)
            mean = self._in_shape_of_y(list(means))
            return (mean, self._in_shape_of_y(list(stds))) if return_std else mean

    def _predict_chunk(self, x: NDArray, n: int) -> tuple[NDArray, NDArray]:
        """Mean and standard deviation in the units of y."""
        prediction, scale = self.trained_.predict(self.representation_, x), self.scaling_.outputs
        mean, std = np.asarray(prediction.mean, float)[:n], np.asarray(prediction.std, float)[:n]
        return scale.inverse(mean), std * scale.deviation

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = None, joint: bool = False) -> NDArray:
        """Samples of the outputs, [m, n_samples] or [m, dy, n_samples]; a stochastic model samples whole functions.

        Args:
            X: inputs, [m, dx].
            n_samples: number of samples.
            random_state: a seed, a NumPy RandomState, or None for NumPy's global one.
            joint: draw the rows in turn, in a random order, each given those before it, so that a sample is a curve of
                outputs that belong together; by default rows are drawn independently. It takes m times as long as a
                prediction.
        """
        if (population := self._without_context()) is not None:
            return population.sample_y(X, n_samples, random_state, joint)
        self._require_std()
        if n_samples < 0:
            raise ValueError(f"n_samples = {n_samples} must not be negative.")
        key = jax.random.key(check_random_state(random_state).randint(2**31 - 1))
        if joint:
            return self._in_shape_of_y([self._sample_in_turn(X, n_samples, key)])
        chunks = []
        for x, n in self._chunks(X):
            model = self.trained_.model
            if isinstance(model, StochasticMetaFun):
                # The same key, so the same z and the same functions, in every chunk.
                values = _sample_functions(model, self.representation_, x, key, n_samples).mean
            else:
                key, key_chunk = jax.random.split(key)
                values = self.trained_.predict(self.representation_, x).sample(key_chunk, n_samples)
            values = self.scaling_.outputs.inverse(np.asarray(values, float)[:, :n])
            chunks.append(np.moveaxis(values, 0, -1))
        return self._in_shape_of_y(chunks)

    def predict_quantiles(self, X: ArrayLike, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> NDArray:
        """Quantiles of the outputs, which are normal given X: [m, q], or [m, dy, q] where y has several outputs.

        Args:
            X: inputs, [m, dx].
            quantiles: q numbers between 0 and 1.
        """
        mean, std = self.predict(X, return_std=True)
        return np.moveaxis(normal_quantiles(mean, std, quantiles), 0, -1)

    @property
    def predicts_std(self) -> bool:
        """Whether the model predicts a standard deviation."""
        self._ensure_encoded()
        return isinstance(self.trained_.model.likelihood, Gaussian)

    @property
    def is_sure(self) -> bool:
        """The former name of `predicts_std`."""
        warnings.warn("is_sure is now predicts_std; please use the new name.", FutureWarning, stacklevel=2)
        return self.predicts_std

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = not self._accepts_any_table()
        return tags

    def _without_context(self) -> "MetaFunRegressor | None":
        """A copy with an empty context if there is none; None after `fit`, and for models that need one."""
        if hasattr(self, "X_") or self.checkpoint is None:
            return None
        trained = self._open_model()
        if not trained.tasks.predicts_without_context:
            return None
        empty, (dx, dy) = MetaFunRegressor(trained), trained.tasks.sizes
        empty.n_features_in_, empty.encoding_ = dx, trained.encoding
        if trained.encoding is not None:
            empty.n_features_in_ = len(trained.encoding.columns)
            if trained.encoding.named:
                empty.feature_names_in_ = np.array(trained.encoding.names, object)
        return empty._fit_context(trained, np.empty((0, dx)), np.empty((0, dy) if dy > 1 else 0))

    def _fit_context(self, trained: Trained, X: NDArray, y: NDArray) -> Self:
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y must be numbers, not {y.dtype}.")
        outputs, tasks = (y if y.ndim > 1 else y[:, None]).astype(float), trained.tasks
        if tasks.accepts_any_table and outputs.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if outputs.shape[1] != tasks.sizes[1]:
            raise ValueError(
                f"y has {outputs.shape[1]} outputs, but the model has {tasks.sizes[1]}; scikit-learn's "
                "MultiOutputRegressor fits one model for each."
            )
        warn_out_of_range("y", outputs, tasks.output_bounds, "TransformedTargetRegressor and StandardScaler")
        with np.errstate(over="ignore", invalid="ignore"):
            scaling = trained.scaling(X, outputs)
            scaled = to_float32(scaling.outputs(outputs), "y")
        in_range(outputs, "y")  # also where they were scaled: predictions are scaled back
        if tasks.accepts_any_table and (far := int((abs(scaled) >= OUTPUT_CLIP).sum())):
            warnings.warn(
                f"{far} of {len(scaled)} y are more than {OUTPUT_CLIP:g} robust deviations from the median and are "
                "clipped; if they are not errors, predict log y or the like with TransformedTargetRegressor.",
                stacklevel=3,
            )
        self._encode_context(trained, scaling, X, y, scaled)
        return self

    def _sample_in_turn(self, X: ArrayLike, n_samples: int, key: jax.Array) -> NDArray:
        """Outputs [m, dy, n_samples], each drawn given those drawn before it."""
        rows, scale = self._validated(self.trained_, self._encoding, X, reset=False), self.scaling_.outputs
        targets = scale(self.y_.reshape(len(self.y_), -1).astype(float))
        # Of a mixture, the model alone: it need not begin anew after each draw.
        columns = self.trained_.tasks.sizes[0]
        context_x, y, exists = padded_context(self.scaling_, self.X_, targets, LEAST_DRAWN)
        context = Points(*map(jnp.asarray, (context_x[:, :columns], y, exists)))
        scaled = to_float32(self.scaling_.scale_inputs(rows)[:, :columns], "X")
        x = pad_rows(scaled, padded_size(len(rows), LEAST_DRAWN))
        mask = jnp.arange(len(x)) < len(rows)
        with enough_memory(FEWER_ROWS):
            most = self.trained_.tasks.most_context
            values = _sample_paths(self.trained_.model, context, jnp.asarray(x), key, n_samples, Plan(), mask, most)
        return np.moveaxis(scale.inverse(np.asarray(values, float)[:, : len(rows)]), 0, -1)

    def _require_std(self) -> None:
        if not self.predicts_std:
            raise ValueError(
                "the model was trained on the squared error and predicts no standard deviation; use one trained with "
                "model.loss.kind=gaussian."
            )

    def _in_shape_of_y(self, chunks: list[NDArray]) -> NDArray:
        """Chunks [m, dy, ...] as one array; without the axis dy if y had none."""
        values = finite(np.concatenate(chunks))
        return values[:, 0] if self.y_.ndim == 1 else values

    def _predict_traceable(self, x: jax.Array) -> Any:
        prediction, scale = (
            self.trained_.predict(self.representation_, self.scaling_.scale_inputs(x)),
            self.scaling_.outputs,
        )
        mean, std = scale.inverse(prediction.mean), prediction.std * np.array(scale.deviation)
        return (mean, std) if self.predicts_std else mean

    def _saved_y(self) -> tuple[NDArray, list[Any]]:
        return self.y_, []

    def _restored_y(self, context: SavedContext) -> NDArray:
        return context.y


def normal_quantiles(mean: NDArray, std: NDArray, quantiles: Sequence[float]) -> NDArray:
    """Quantiles of normal distributions, [q, ...] for `mean` and `std` [...]; ValueError unless all are in (0, 1)."""
    levels = np.asarray(quantiles, float)
    if levels.ndim != 1 or not ((levels > 0) & (levels < 1)).all():
        raise ValueError(f"quantiles = {list(quantiles)} must be numbers between 0 and 1, such as [0.05, 0.5, 0.95].")
    return mean + norm.ppf(levels).reshape(-1, *[1] * np.ndim(mean)) * std
