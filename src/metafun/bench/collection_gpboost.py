"""GPBoost beside MetaFun: boosted trees, and a Gaussian process in each task. It is optional to install."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidConfig
from .collection_data import Predict, TaskRows

GPBOOST = "GPBoost"
# Points of a task that it learns from: its steps take the cube of this number.
MAX_POINTS = 40
# Every so many tasks, one is held out to choose the number of trees.
HELD_OUT = 5
# One thread: several wait for each other actively, and take minutes where other work runs.
TREES = {
    "objective": "regression_l2",
    "learning_rate": 0.2,
    "max_depth": 4,
    "min_data_in_leaf": 10,
    "leaves_newton_update": True,
    "num_threads": 1,
    "verbose": -1,
}
MOST_TREES, PATIENCE = 300, 30


def is_installed() -> bool:
    """Whether the package can be imported."""
    return importlib.util.find_spec("gpboost") is not None


def check_installed() -> None:
    """InvalidConfig if the package cannot be imported."""
    if not is_installed():
        raise InvalidConfig(f"{GPBOOST} is not installed; run pip install gpboost, or leave out --only {GPBOOST}.")


def boosted_trees_and_gp(tasks: Sequence[TaskRows], seed: int) -> Predict:
    """Boosted trees, and intercept, amplitude, length and noise of a Matérn process in each task, learned together.

    Args:
        tasks: the training tasks.
        seed: seed of the choice of points.
    """
    check_installed()
    rng = np.random.default_rng(seed)
    kept = [(x[keep], y[keep]) for x, y in tasks for keep in [rng.permutation(len(y))[:MAX_POINTS]]]
    x, y = (np.concatenate(arrays) for arrays in zip(*kept, strict=True))
    codes = np.repeat(np.arange(len(kept)), [len(y) for _, y in kept])
    held_out = codes % HELD_OUT == 0
    learned, validation = ((x[chosen], y[chosen], codes[chosen]) for chosen in (~held_out, held_out))
    trees = max(1, _grow(learned, MOST_TREES, seed, validation)[0].best_iteration)
    forest, process = _grow((x, y, codes), trees, seed)
    parameters = np.asarray(process.get_cov_pars(), float).ravel()

    def predict(x: NDArray, y: NDArray, at: NDArray) -> tuple[NDArray, NDArray]:
        mean, mean_at = (np.asarray(forest.predict(rows, ignore_gp_model=True)) for rows in (x, at))
        places = _places(at, np.zeros(len(at), int))
        new = _process(x, np.zeros(len(x), int), seed)
        found = new.predict(y=y - mean, cov_pars=parameters, predict_var=True, **places)
        return mean_at + found["mu"], np.sqrt(found["var"])

    return predict


def _process(x: NDArray, codes: NDArray, seed: int) -> Any:
    """A random intercept and an independent Matérn process for each task."""
    import gpboost

    return gpboost.GPModel(
        group_data=codes, gp_coords=x, cluster_ids=codes, cov_function="matern", num_parallel_threads=1, seed=seed
    )


def _places(x: NDArray, codes: NDArray) -> dict[str, NDArray]:
    """The arguments that say where to predict."""
    return {"gp_coords_pred": x, "cluster_ids_pred": codes, "group_data_pred": codes}


def _grow(
    rows: tuple[NDArray, NDArray, NDArray],
    trees: int,
    seed: int,
    validation: tuple[NDArray, NDArray, NDArray] | None = None,
) -> tuple[Any, Any]:
    """The trees and the process that are learned from rows (x, y, task); rows of other tasks decide when to stop."""
    import gpboost

    (x, y, codes), options = rows, {}
    process, data = _process(x, codes, seed), gpboost.Dataset(x, y)
    if validation is not None:
        x, y, codes = validation
        process.set_prediction_data(**_places(x, codes))
        options = {"valid_sets": [gpboost.Dataset(x, y, reference=data)], "early_stopping_rounds": PATIENCE}
    grown = gpboost.train({**TREES, "seed": seed}, data, trees, gp_model=process, verbose_eval=False, **options)
    return grown, process
