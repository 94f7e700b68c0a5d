"""The methods of the benchmark on collections of tasks: five that a practitioner would try, GPBoost, and MetaFun."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GroupKFold

from ..estimators import MetaFunRegressor
from ..model.task import Points, Task, stack
from .collection_data import Learn, Predict, TaskRows
from .collection_gpboost import GPBOOST, boosted_trees_and_gp

FOREST_GP = "pooled forest + residual GP"
META_FIT = "meta_fit"
# Tasks and points of a task that the residual process is fitted on: its four parameters need no more.
MAX_TASKS, MAX_POINTS = 200, 40


def _task_mean(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """The mean of the context; the deviation is that within the training tasks."""
    within = np.sqrt(np.mean(np.concatenate([np.square(y - y.mean()) for _, y in tasks])))

    def predict(x: NDArray, y: NDArray, at: NDArray) -> tuple[NDArray, NDArray]:
        spread = within * np.sqrt(1 + 1 / len(y))
        return np.full(len(at), y.mean()), np.full(len(at), spread)

    return predict


def _task_ridge(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """Ridge regression on the context, its strengths by the marginal likelihood."""
    return _fitted_alone(BayesianRidge)


def _task_gp(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """A Gaussian process on the context, its parameters by the marginal likelihood."""
    kernel = ConstantKernel() * RBF() + WhiteKernel(0.1)
    return _fitted_alone(lambda: GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed))


def _fitted_alone(make: Callable[[], Any]) -> Predict:
    def predict(x: NDArray, y: NDArray, at: NDArray) -> tuple[NDArray, NDArray]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # optimisers that do not converge are measured as they are
            return make().fit(x, y).predict(at, return_std=True)

    return predict


def _forest(seed: int) -> Any:
    return RandomForestRegressor(200, min_samples_leaf=3, max_features=0.7, random_state=seed)


def _pooled_forest(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """A random forest on the rows of all tasks; the context is not used. The deviation is that of the residuals."""
    forest, residuals = _forest_and_residuals(tasks, seed)
    spread = np.sqrt(np.mean(np.square(np.concatenate(residuals))))
    return lambda x, y, at: (forest.predict(at), np.full(len(at), spread))


def _forest_and_residuals(tasks: Sequence[TaskRows], seed: int) -> tuple[Any, list[NDArray]]:
    """A forest on all tasks, and the residuals of each task from forests that have not seen it."""
    x, y = (np.concatenate(arrays) for arrays in zip(*tasks, strict=True))
    groups = np.repeat(np.arange(len(tasks)), [len(y) for _, y in tasks])
    residuals = np.empty(len(y))
    for train, test in GroupKFold(min(5, len(tasks))).split(x, y, groups):
        residuals[test] = y[test] - _forest(seed).fit(x[train], y[train]).predict(x[test])
    return _forest(seed).fit(x, y), [residuals[groups == i] for i in range(len(tasks))]


def _forest_and_gp(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """A pooled forest, and a Gaussian process on the residuals whose parameters are fitted on the training tasks."""
    forest, residuals = _forest_and_residuals(tasks, seed)
    process = _fit_process([(x, r) for (x, _), r in zip(tasks, residuals, strict=True)], seed)

    def predict(x: NDArray, y: NDArray, at: NDArray) -> tuple[NDArray, NDArray]:
        mean, std = process(x, y - forest.predict(x), at)
        return forest.predict(at) + mean, std

    return predict


def _fit_process(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """A zero-mean process with constant, amplitude, length and noise of the largest likelihood over all tasks."""
    rng = np.random.default_rng(seed)
    chosen = [tasks[i] for i in rng.permutation(len(tasks))[:MAX_TASKS]]
    rows = [(x[keep], y[keep]) for x, y in chosen for keep in [rng.permutation(len(y))[:MAX_POINTS]]]
    points = stack([Task.of(x, y[:, None], x[:1], y[:1, None]) for x, y in rows]).context
    start, unravel = ravel_pytree({"constant": 0.0, "amplitude": 0.0, "length": 0.0, "noise": -2.0})
    total = jax.jit(jax.value_and_grad(lambda p: jax.vmap(lambda t: _negative_log_prob(unravel(p), t))(points).mean()))

    def objective(p: NDArray) -> tuple[float, NDArray]:
        value, gradient = total(jnp.asarray(p, jnp.float32))
        return float(value), np.asarray(gradient, float)

    found = minimize(objective, np.asarray(start, float), jac=True, method="L-BFGS-B", bounds=[(-7, 5)] * 4)
    log = unravel(jnp.asarray(found.x, jnp.float32))

    def predict(x: NDArray, y: NDArray, at: NDArray) -> tuple[NDArray, NDArray]:
        across, among = (np.asarray(_covariance(log, jnp.asarray(a), jnp.asarray(x)), float) for a in (at, x))
        among += np.exp(float(log["noise"])) * np.eye(len(x))
        prior = np.exp(float(log["constant"])) + np.exp(float(log["amplitude"])) + np.exp(float(log["noise"]))
        solved = np.linalg.solve(among, across.T)
        variance = prior - np.einsum("mn,nm->m", across, solved)
        return solved.T @ y, np.sqrt(np.maximum(variance, 1e-12))

    return predict


def _covariance(log: dict[str, Array], a: Float[Array, "m dx"], b: Float[Array, "n dx"]) -> Float[Array, "m n"]:
    square = jnp.square(a[:, None] - b[None]).sum(-1)
    return jnp.exp(log["constant"]) + jnp.exp(log["amplitude"]) * jnp.exp(-square / (2 * jnp.exp(2 * log["length"])))


def _negative_log_prob(log: dict[str, Array], points: Points) -> Float[Array, ""]:
    """Padding is independent noise of variance 1 and value 0, which adds a constant."""
    there = points.mask[:, None] & points.mask[None]
    noise = jnp.where(points.mask, jnp.exp(log["noise"]), 1.0)
    factor = jnp.linalg.cholesky(jnp.where(there, _covariance(log, points.x, points.x), 0.0) + jnp.diag(noise + 1e-5))
    z = jax.scipy.linalg.solve_triangular(factor, jnp.where(points.mask, points.y[:, 0], 0.0), lower=True)
    return jnp.square(z).sum() / 2 + jnp.log(jnp.diag(factor)).sum()


def _meta_fit(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """MetaFun, meta-trained on the training tasks with the default settings."""
    return _few_shot(MetaFunRegressor().meta_fit(tasks, seed=seed, progress=False))


def _any_table(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """The shipped model for any small table, which sees the context alone."""
    return _few_shot(MetaFunRegressor())


def _few_shot(model: MetaFunRegressor) -> Predict:
    def predict(x: NDArray, y: NDArray, at: NDArray) -> tuple[NDArray, NDArray]:
        mean, std = model.fit(x, y).predict(at, return_std=True)
        return mean, std

    return predict


SIMPLE: dict[str, Learn] = {
    "per-task mean": _task_mean,
    "per-task ridge": _task_ridge,
    "per-task GP": _task_gp,
    "pooled forest": _pooled_forest,
    FOREST_GP: _forest_and_gp,
}
METHODS: dict[str, Learn] = {
    **SIMPLE,
    GPBOOST: boosted_trees_and_gp,
    META_FIT: _meta_fit,
    "MetaFunRegressor()": _any_table,
}
