"""How models do on scikit-learn's own small tables with few rows, beside its own estimators."""

import hashlib
import inspect
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from ..errors import InvalidResults
from ..estimators import MetaFunClassifier, MetaFunRegressor
from ..estimators.trained import locate
from ..files import write_atomically
from ..model.likelihoods import BINS, calibration_error

OURS = "MetaFun"
# Rows that a model is judged on in each split.
JUDGED = 200
# A probability that is said to be none would cost infinitely much.
LEAST = 1e-6


@dataclass(frozen=True)
class TableSet:
    """Where a set comes from, and how many rows of it (of each class) models are given."""

    load: Callable[[], tuple[NDArray, NDArray]]
    problem: str
    sizes: tuple[int, ...]


def _digits() -> tuple[NDArray, NDArray]:
    x, y = datasets.load_digits(return_X_y=True)
    return PCA(16, random_state=0).fit_transform(x), y


def _bundled(load: Callable[..., Any]) -> Callable[[], tuple[NDArray, NDArray]]:
    return lambda: load(return_X_y=True)


CLASSIFICATION, REGRESSION = (2, 5, 10, 20), (8, 16, 32, 64, 128)
SETS = {
    "iris": TableSet(_bundled(datasets.load_iris), "classification", CLASSIFICATION),
    "wine": TableSet(_bundled(datasets.load_wine), "classification", CLASSIFICATION),
    "breast_cancer": TableSet(_bundled(datasets.load_breast_cancer), "classification", CLASSIFICATION),
    "digits": TableSet(_digits, "classification", CLASSIFICATION),
    "diabetes": TableSet(_bundled(datasets.load_diabetes), "regression", REGRESSION),
}

_NOISY = ConstantKernel() * RBF() + WhiteKernel()
# Each with what a small grid offers it; a scaler comes before all of them.
OTHERS: dict[str, dict[str, tuple[Any, dict[str, list[Any]]]]] = {
    "classification": {
        "k-nearest neighbours": (KNeighborsClassifier(), {"n_neighbors": [1, 3, 5]}),
        "logistic regression": (LogisticRegression(max_iter=1000), {"C": [0.01, 0.1, 1.0, 10.0]}),
        "random forest": (
            RandomForestClassifier(random_state=0),
            {"max_features": ["sqrt", None], "max_depth": [2, None]},
        ),
        "Gaussian process": (
            GaussianProcessClassifier(random_state=0),
            # Lengths are chosen by cross-validation: left to the likelihood, they run away on digits.
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


@dataclass(frozen=True)
class Cell:
    """One model on one set with one number of rows: a number for each split."""

    data: str
    size: int
    model: str
    metrics: dict[str, list[float]]
    reliability: list[list[float]] | None
    seconds: float
    checkpoint: str = ""


def models(problem: str) -> dict[str, Callable[[NDArray], Any]]:
    """By name; each is made for the labels (or values) of the rows that it will be given."""
    found: dict[str, Callable[[NDArray], Any]] = {
        OURS: lambda y: MetaFunClassifier() if problem == "classification" else MetaFunRegressor()
    }
    for name, (estimator, grid) in OTHERS[problem].items():
        found[name] = partial(_with_defaults, estimator)
        found[f"{name}, tuned"] = partial(_tuned, estimator, grid, problem)
    return found


def measure(data: str, size: int, model: str, splits: int) -> Cell:
    """A model on `splits` random splits, the same for all models."""
    chosen = SETS[data]
    x, y = chosen.load()
    make = models(chosen.problem)[model]
    rows: list[dict[str, float]] = []
    reliability, seconds = np.zeros((BINS, 3)), 0.0
    for split in range(splits):
        given, judged = _split(y, size, chosen.problem, np.random.default_rng(split))
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of optimisers that have not converged; what they found is judged
            fitted = make(y[given]).fit(x[given], y[given])
            said = _said(fitted, x[judged], chosen.problem)
        seconds += time.perf_counter() - start
        if chosen.problem == "classification":
            row, bins = _judge_classes(said, fitted.classes_, y[judged])
            reliability += bins / splits
        else:
            row = _judge_numbers(said, y[judged])
        rows.append(row)
    metrics = {name: [row[name] for row in rows] for name in rows[0]}
    found = reliability.tolist() if chosen.problem == "classification" else None
    checkpoint = _fingerprint(chosen.problem) if model == OURS else ""
    return Cell(data, size, model, metrics, found, seconds / splits, checkpoint)


def missing(path: Path, splits: int, only: Sequence[str], sets: Sequence[str] = ()) -> Iterator[tuple[str, int, str]]:
    """The cells that a file of results does not have yet, of some models and sets, or of all."""
    now = {problem: _fingerprint(problem) for problem in OTHERS}
    there = {
        (cell.data, cell.size, cell.model)
        for cell in read(path)
        if _count(cell) >= splits and (cell.model != OURS or cell.checkpoint == now[SETS[cell.data].problem])
    }
    for data, chosen in SETS.items():
        if sets and data not in sets:
            continue
        for size in chosen.sizes:
            for model in models(chosen.problem):
                if (data, size, model) not in there and (not only or model in only):
                    yield data, size, model


def read(path: Path) -> list[Cell]:
    if not path.exists():
        return []
    try:
        return [Cell(**json.loads(line)) for line in path.read_text("utf-8").splitlines()]
    except (ValueError, TypeError) as error:
        raise InvalidResults(f"{path} has a line that no benchmark wrote: {error}; mend it, or use another.") from None


def add(path: Path, cell: Cell) -> None:
    """One more cell, in the place of an older one of the same model, set and size."""
    there = [
        other for other in read(path) if (other.data, other.size, other.model) != (cell.data, cell.size, cell.model)
    ]
    write_atomically(path, "".join(json.dumps(asdict(c)) + "\n" for c in (*there, cell)).encode())


def summary(cells: Sequence[Cell], sets: Sequence[str] = tuple(SETS)) -> dict[str, dict[str, dict[str, float]]]:
    """For each problem and model: the means over the sets of each metric, with each number of rows."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for problem in OTHERS:
        for model in models(problem):
            own = [c for c in cells if c.model == model and c.data in sets and SETS[c.data].problem == problem]
            values: dict[str, list[float]] = {}
            for cell in sorted(own, key=lambda cell: cell.size):
                for name, each in worth(cell).items():
                    values.setdefault(f"{name}_{cell.size}", []).append(each)
            # Means over some of them would compare with nothing.
            count = sum(SETS[name].problem == problem for name in sets)
            means = {name: float(np.mean(each)) for name, each in sorted(values.items()) if len(each) == count}
            if means:
                found.setdefault(problem, {})[model] = means
    return found


def worth(cell: Cell) -> dict[str, float]:
    """Means over the splits, and the calibration error over all of them."""
    found = {name: float(np.mean(values)) for name, values in cell.metrics.items()}
    if cell.reliability is not None:
        found["ece"] = float(calibration_error(np.array(cell.reliability)))
    return found


def _fingerprint(problem: str) -> str:
    """Of the shipped model: with another one, what was measured is measured again."""
    return hashlib.sha256(locate(f"tables-{problem}").read_bytes()).hexdigest()[:12]


def _count(cell: Cell) -> int:
    return len(next(iter(cell.metrics.values())))


def _with_defaults(estimator: Any, y: NDArray) -> Any:
    if "n_neighbors" in estimator.get_params():  # cannot be more than there are rows
        estimator = clone(estimator).set_params(n_neighbors=min(5, len(y)))
    return make_pipeline(StandardScaler(), estimator)


def _tuned(estimator: Any, grid: dict[str, list[Any]], problem: str, y: NDArray) -> Any:
    """The best of a grid by cross-validation, in as many folds as a class has rows, and no more than three."""
    if problem == "classification":
        folds: Any = StratifiedKFold(min(3, np.unique(y, return_counts=True)[1].min()))
    else:
        folds = KFold(3)
    if "n_neighbors" in grid:
        kept = len(y) * (folds.n_splits - 1) // folds.n_splits
        grid = {"n_neighbors": [k for k in grid["n_neighbors"] if k <= kept]}
    return make_pipeline(StandardScaler(), GridSearchCV(estimator, grid, cv=folds))


def _split(y: NDArray, size: int, problem: str, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Rows that are given, `size` (of each class), and others that are judged."""
    order = rng.permutation(len(y))
    if problem == "classification":
        given = np.concatenate([order[y[order] == label][:size] for label in np.unique(y)])
    else:
        given = order[:size]
    return given, order[~np.isin(order, given)][:JUDGED]


def _said(fitted: Any, x: NDArray, problem: str) -> Any:
    if problem == "classification":
        return fitted.predict_proba(x)
    if isinstance(fitted, Pipeline):  # a scaler, and what may have been found by a grid
        x, fitted = fitted[:-1].transform(x), getattr(fitted[-1], "best_estimator_", fitted[-1])
    if "return_std" in inspect.signature(fitted.predict).parameters:
        return fitted.predict(x, return_std=True)
    return fitted.predict(x), None  # it does not say how sure it is


def _judge_classes(said: NDArray, classes: NDArray, y: NDArray) -> tuple[dict[str, float], NDArray]:
    codes = np.searchsorted(classes, y)
    right = said.argmax(1) == codes
    confidence = said.max(1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    entries = np.stack([np.ones(len(y)), confidence, right], -1)
    table = np.stack([entries[bins == b].sum(0) for b in range(BINS)]) / len(y)
    likely = np.log(np.maximum(said[np.arange(len(y)), codes], LEAST))
    return {"accuracy": float(right.mean()), "log_likelihood": float(likely.mean())}, table


def _judge_numbers(said: tuple[NDArray, NDArray | None], y: NDArray) -> dict[str, float]:
    mean, std = said
    r2 = 1 - np.square(y - mean).mean() / y.var()
    found = {"r2": float(r2)}
    if std is not None:
        std = np.maximum(std, LEAST)
        z = (y - mean) / std
        found["log_likelihood"] = float((-(z**2) / 2 - np.log(std) - np.log(2 * np.pi) / 2).mean())
    return found
