"""The models of the benchmark: MetaFun, and scikit-learn's estimators with defaults and tuned on a small grid."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..estimators import MetaFunClassifier, MetaFunRegressor

METAFUN = "MetaFun"
_NOISY = ConstantKernel() * RBF() + WhiteKernel()
# Each estimator with its grid; inputs are standardised for all of them.
SKLEARN_MODELS: dict[str, dict[str, tuple[Any, dict[str, list[Any]]]]] = {
    "classification": {
        "k-nearest neighbours": (KNeighborsClassifier(), {"n_neighbors": [1, 3, 5]}),
        "logistic regression": (LogisticRegression(max_iter=1000), {"C": [0.01, 0.1, 1.0, 10.0]}),
        "random forest": (
            RandomForestClassifier(random_state=0),
            {"max_features": ["sqrt", None], "max_depth": [2, None]},
        ),
        "Gaussian process": (
            GaussianProcessClassifier(random_state=0),
            # Cross-validation chooses the length scale: the marginal likelihood lets it diverge on digits.
            {"kernel": [10.0 * RBF(s) for s in (1, 2, 4, 8)], "optimizer": [None]},
        ),
    },
    "regression": {
        "k-nearest neighbours": (KNeighborsRegressor(), {"n_neighbors": [1, 3, 5, 10]}),
        "ridge": (Ridge(), {"alpha": [0.1, 1.0, 10.0, 100.0]}),
        "random forest": (RandomForestRegressor(random_state=0), {"max_features": [0.33, 1.0], "max_depth": [2, None]}),
        "Gaussian process": (
            GaussianProcessRegressor(random_state=0),
            {"kernel": [_NOISY], "alpha": [1e-10, 1e-2], "normalize_y": [True]},
        ),
    },
}
PROBLEMS = tuple(SKLEARN_MODELS)


def models(problem: str) -> dict[str, Callable[[NDArray], Any]]:
    """The models for a problem by name; each is a function of the training labels (or values) that makes it.

    Args:
        problem: "classification" or "regression".
    """
    makers: dict[str, Callable[[NDArray], Any]] = {
        METAFUN: lambda y: MetaFunClassifier() if problem == "classification" else MetaFunRegressor()
    }
    for name, (estimator, grid) in SKLEARN_MODELS[problem].items():
        makers[name] = partial(_with_defaults, estimator)
        makers[f"{name}, tuned"] = partial(_tuned, estimator, grid, problem)
    return makers


def _with_defaults(estimator: Any, y: NDArray) -> Any:
    if "n_neighbors" in estimator.get_params():  # at most the number of rows
        estimator = clone(estimator).set_params(n_neighbors=min(5, len(y)))
    return make_pipeline(StandardScaler(), estimator)


def _tuned(estimator: Any, grid: dict[str, list[Any]], problem: str, y: NDArray) -> Any:
    """A grid search by cross-validation in three folds, or fewer where a class has fewer rows."""
    if problem == "classification":
        folds: Any = StratifiedKFold(min(3, np.unique(y, return_counts=True)[1].min()))
    else:
        folds = KFold(3)
    if "n_neighbors" in grid:
        rows_per_fit = len(y) * (folds.n_splits - 1) // folds.n_splits
        grid = {"n_neighbors": [k for k in grid["n_neighbors"] if k <= rows_per_fit]}
    return make_pipeline(StandardScaler(), GridSearchCV(estimator, grid, cv=folds))
