"""The models of the benchmark: MetaFun, and scikit-learn's estimators with defaults and tuned on a small grid."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR

from ..estimators import MetaFunClassifier, MetaFunRegressor

METAFUN = "MetaFun"
_NOISY = ConstantKernel() * RBF() + WhiteKernel()
# Makes a model of the training labels (or values), and of which columns are categorical.
Maker = Callable[[NDArray, Sequence[bool]], Any]
# Each estimator with its grid.
SKLEARN_MODELS: dict[str, dict[str, tuple[Any, dict[str, list[Any]]]]] = {
    "classification": {
        "k-nearest neighbours": (KNeighborsClassifier(), {"n_neighbors": [1, 3, 5]}),
        "logistic regression": (LogisticRegression(max_iter=1000), {"C": [0.01, 0.1, 1.0, 10.0]}),
        "random forest": (
            RandomForestClassifier(random_state=0),
            {"max_features": ["sqrt", None], "max_depth": [2, None]},
        ),
        "gradient boosting": (
            HistGradientBoostingClassifier(random_state=0),
            {"min_samples_leaf": [2, 20], "max_leaf_nodes": [4, 31]},
        ),
        "SVM": (SVC(), {"C": [0.1, 1.0, 10.0, 100.0], "gamma": ["scale", 0.01]}),
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
        "gradient boosting": (
            HistGradientBoostingRegressor(random_state=0),
            {"min_samples_leaf": [2, 20], "max_leaf_nodes": [4, 31]},
        ),
        "SVM": (SVR(), {"C": [0.1, 1.0, 10.0, 100.0], "gamma": ["scale", 0.01]}),
        "Gaussian process": (
            GaussianProcessRegressor(random_state=0),
            {"kernel": [_NOISY], "alpha": [1e-10, 1e-2], "normalize_y": [True]},
        ),
    },
}
PROBLEMS = tuple(SKLEARN_MODELS)


def models(problem: str) -> dict[str, Maker]:
    """The models for a problem by name.

    Args:
        problem: "classification" or "regression".
    """
    estimator = MetaFunClassifier if problem == "classification" else MetaFunRegressor
    makers: dict[str, Maker] = {METAFUN: lambda y, categorical: estimator()}
    for name, (model, grid) in SKLEARN_MODELS[problem].items():
        makers[name] = partial(_with_defaults, model)
        makers[f"{name}, tuned"] = partial(_tuned, model, grid, problem)
    return makers


def _with_defaults(estimator: Any, y: NDArray, categorical: Sequence[bool]) -> Any:
    estimator = clone(estimator)
    if "n_neighbors" in estimator.get_params():  # at most the number of rows
        estimator.set_params(n_neighbors=min(5, len(y)))
    if isinstance(estimator, SVC):
        estimator = SVCWithProbabilities(estimator, {})
    return make_pipeline(*_preparation(categorical), estimator)


def _tuned(estimator: Any, grid: dict[str, list[Any]], problem: str, y: NDArray, categorical: Sequence[bool]) -> Any:
    """A grid search by cross-validation in three folds, or fewer where a class has fewer rows."""
    folds: Any = _folds(y, 3) if problem == "classification" else KFold(3)
    if "n_neighbors" in grid:
        rows_per_fit = len(y) * (folds.n_splits - 1) // folds.n_splits
        grid = {"n_neighbors": [k for k in grid["n_neighbors"] if k <= rows_per_fit]}
    is_svc = isinstance(estimator, SVC)
    search = SVCWithProbabilities(estimator, grid) if is_svc else GridSearchCV(estimator, grid, cv=folds)
    return make_pipeline(*_preparation(categorical), search)


class SVCWithProbabilities(ClassifierMixin, BaseEstimator):
    """A support vector classifier, tuned if there is a grid, whose probabilities are calibrated on held-out rows.

    Args:
        svc: the classifier.
        grid: the values to try of its parameters.
    """

    def __init__(self, svc: SVC, grid: dict[str, list[Any]]):
        self.svc, self.grid = svc, grid

    def fit(self, X: NDArray, y: NDArray) -> "SVCWithProbabilities":
        folds = _folds(y, 3)
        chosen = GridSearchCV(self.svc, self.grid, cv=folds).fit(X, y).best_estimator_ if self.grid else self.svc
        # One model of all rows: with two rows of a class, a model of a fold would have learned from one.
        self.calibrated_ = CalibratedClassifierCV(chosen, ensemble=False, cv=folds).fit(X, y)
        self.classes_ = self.calibrated_.classes_
        return self

    def predict_proba(self, X: NDArray) -> NDArray:
        return self.calibrated_.predict_proba(X)


def _folds(y: NDArray, most: int) -> StratifiedKFold:
    """At most `most` folds; not more than rows of a class."""
    return StratifiedKFold(min(most, np.unique(y, return_counts=True)[1].min()))


def _preparation(categorical: Sequence[bool]) -> tuple[Any, StandardScaler]:
    """Missing numbers become the median, categories a column each, and all columns are standardised."""
    filled = SimpleImputer(strategy="median", keep_empty_features=True)
    if not any(categorical):
        return filled, StandardScaler()
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("categories", one_hot, np.flatnonzero(categorical))], remainder=filled), StandardScaler()
