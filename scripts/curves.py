"""`MetaFunRegressor("curves")` beside scikit-learn's tuned Gaussian process, on collections of one-dimensional series.

The process has the squared-exponential kernel, or that of three kernels with the largest marginal likelihood. Each
file has arrays x [points, 1], y and task (.npz), or columns of these names (.csv). Random points of a series are the
context, and its other points are predicted. Scores are means over the series; y is standardised by the file.

    python scripts/curves.py FILE … --beside 0 >> results/curves.jsonl
    python scripts/curves.py FILE … --model runs/curves --series 20
"""

import json
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from provenance import parser, provenance
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Kernel, Matern, WhiteKernel

from metafun import MetaFunRegressor
from metafun.bench.collection_data import Collection, open_collection

Predicted = tuple[NDArray, NDArray]
Predict = Callable[[NDArray, NDArray, NDArray], Predicted]
POINTS = (5, 10, 20)
# Of a deviation, relative to that of all y in a file.
SMALLEST = 1e-3
SHAPES = tuple(each(0.3, (1e-2, 1e2)) for each in (RBF, partial(Matern, nu=1.5), partial(Matern, nu=2.5)))
METAFUN = "MetaFun"


def fitted_process(shape: Kernel, x: NDArray, y: NDArray) -> GaussianProcessRegressor:
    """Amplitude, length and noise by the marginal likelihood, from three starting points."""
    kernel = ConstantKernel() * shape + WhiteKernel(0.1, (1e-6, 1e1))
    model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0)
    with warnings.catch_warnings(action="ignore"):  # optimisers that do not converge are measured as they are
        return model.fit(x, y)


def gaussian_process(x: NDArray, y: NDArray, at: NDArray, shapes: Sequence[Kernel] = SHAPES[:1]) -> Predicted:
    """The process with the largest marginal likelihood, x in units of its range."""
    low, reach = x.min(), np.ptp(x) or 1.0
    models = [fitted_process(shape, (x - low) / reach, y) for shape in shapes]
    best = max(models, key=lambda model: model.log_marginal_likelihood_value_)
    return best.predict((at - low) / reach, return_std=True)


def metafun(model: MetaFunRegressor) -> Predict:
    """The model's predictions.

    Args:
        model: for one input.
    """

    def predict(x: NDArray, y: NDArray, at: NDArray) -> Predicted:
        mean, std = model.fit(x, y).predict(at, return_std=True)
        return mean, std

    return predict


def measure(
    collection: Collection, methods: dict[str, Predict], points: int, most: int, seed: int
) -> dict[str, dict[str, float]]:
    """RMSE, log-likelihood and coverage of each method on the same points; its processor time over that of MetaFun.

    Args:
        collection: series with one input.
        methods: by name.
        points: size of the context.
        most: number of series.
        seed: of the choice of series and points.
    """
    rng, deviation = np.random.default_rng(seed), float(np.concatenate([y for _, y in collection.tasks]).std())
    series = [task for task in collection.tasks if len(task[1]) > points]
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in methods}
    for i in rng.permutation(len(series))[:most]:
        x, y = series[i]
        order = rng.permutation(len(y))
        known, new = order[:points], order[points:]
        for name, predict in methods.items():
            start = time.process_time()
            mean, std = predict(x[known], y[known], x[new])
            seconds = time.process_time() - start
            std = np.maximum(std, SMALLEST * deviation)
            error = y[new] - mean
            likelihood = (norm.logpdf(error, 0, std) + np.log(deviation)).mean()
            covered = (abs(error) <= norm.ppf(0.975) * std).mean()
            found[name].append((np.square(error / deviation).mean(), likelihood, covered, seconds))
    scores = {name: np.array(values) for name, values in found.items() if values}
    seconds = {name: float(np.median(each[:, 3])) for name, each in scores.items()}
    return {
        name: {
            "rmse": float(np.sqrt(each[:, 0].mean())),
            "log_likelihood": float(each[:, 1].mean()),
            "median_log_likelihood": float(np.median(each[:, 1])),
            "coverage": float(each[:, 2].mean()),
            "time_over_metafun": seconds[name] / seconds[METAFUN],
            "series": len(each),
        }
        for name, each in scores.items()
    }


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("files", nargs="+", metavar="FILE")
    options.add_argument("--model", default="curves", help="a shipped model, a run folder or a file")
    options.add_argument("--series", type=int, default=60, help="most series of a file")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    methods = {
        METAFUN: metafun(MetaFunRegressor(given.model)),
        "Gaussian process": gaussian_process,
        "Gaussian process, kernel chosen": partial(gaussian_process, shapes=SHAPES),
    }
    for file in given.files:
        collection = open_collection(file, "y", "task")
        words = f"python scripts/curves.py {Path(file).name} --model {given.model} --series {given.series}"
        for points in POINTS:
            if scores := measure(collection, methods, points, given.series, given.seed):
                facts = {"data": collection.name, "points": points, "scores": scores}
                origin = provenance([given.seed], given.beside, {collection.name: collection.fingerprint}, words)
                print(json.dumps(facts | origin), flush=True)
