"""The models for small tables outside their training conditions, and their speed; all ratios from one run.

python scripts/table_limits.py --beside 0 >> results/table-limits.jsonl
"""

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from provenance import parser, provenance
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from timing import median_seconds

from metafun import MetaFunClassifier, MetaFunRegressor
from metafun.bench.datasets import SETS

SEEDS = 10


def order() -> dict[str, float]:
    """The largest change of a prediction, over the data sets, when their columns are reordered.

    The models sort columns by their relevance to y. Ties keep the given order: with two rows all columns tie, and
    binary columns often do.
    """
    return {
        **{f"columns_in_another_order_{name}": value for name, value in _largest_change(30, False).items()},
        **{f"columns_in_another_order_two_rows_{name}": value for name, value in _largest_change(2, False).items()},
        **{f"columns_in_another_order_two_values_{name}": value for name, value in _largest_change(30, True).items()},
    }


def _largest_change(n: int, binary: bool) -> dict[str, float]:
    rng, changes = np.random.default_rng(0), {"probability": 0.0, "deviations": 0.0}
    for chosen in SETS.values():
        x, y = chosen.load()
        x = (x > np.median(x, axis=0)).astype(float) if binary else x
        for _ in range(20):
            rows = rng.permutation(len(y))[: n + 100]
            train, test, columns = rows[:n], rows[n:], rng.permutation(x.shape[1])
            if chosen.problem == "classification" and len(set(y[train])) < 2:
                continue
            pairs = [(x[train], x[test]), (x[train][:, columns], x[test][:, columns])]
            if chosen.problem == "classification":
                predicted = [MetaFunClassifier().fit(a, y[train]).predict_proba(b) for a, b in pairs]
                changes["probability"] = max(changes["probability"], float(abs(predicted[0] - predicted[1]).max()))
            else:
                predicted = [MetaFunRegressor().fit(a, y[train]).predict(b) for a, b in pairs]
                changes["deviations"] = max(
                    changes["deviations"], float(abs(predicted[0] - predicted[1]).max() / y.std())
                )
    return changes


def rows() -> dict[str, dict[str, dict[str, float]]]:
    """Accuracy with more rows than the 256 of training: on digits, and where two of six columns interact."""
    digits = SETS["digits"].load()
    x = np.random.default_rng(0).normal(size=(4000, 6))
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
    return {
        "rows": _accuracies(*digits, (128, 256, 512, 1024), {"logistic regression": linear}),
        "rows_together": _accuracies(
            x, x[:, 0] * x[:, 1] > 0, (64, 256, 1024, 2048), {"random forest": RandomForestClassifier(random_state=0)}
        ),
    }


def _accuracies(x: NDArray, y: NDArray, sizes: Sequence[int], others: dict[str, Any]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for n in sizes:
        scores: dict[str, list[float]] = {}
        for seed in range(SEEDS):
            drawn = np.random.default_rng(seed).permutation(len(y))
            train, test = drawn[:n], drawn[n : n + 500]
            for name, model in {"MetaFun": MetaFunClassifier(), **others}.items():
                scores.setdefault(name, []).append(model.fit(x[train], y[train]).score(x[test], y[test]))
        found[str(n)] = {name: float(np.mean(values)) for name, values in scores.items()}
    return found


def speed() -> dict[str, float]:
    """fit + predict of 100 rows and two classes, with 10 columns, and with 20, where trees are fitted.

    Of processor time: the machine may do other things at the same time.
    """
    rng, found = np.random.default_rng(0), {}
    for columns, name in ((10, "fit_and_predict"), (20, "fit_and_predict_wide")):
        x, x_test = rng.normal(size=(100, columns)), rng.normal(size=(100, columns))
        y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)
        models = {"ours": MetaFunClassifier(), "forest": RandomForestClassifier(), "logistic": LogisticRegression()}
        median = median_seconds(models, x, y, x_test, repetitions=40, clock=time.process_time)
        found[f"{name}_over_random_forest"] = median["ours"] / median["forest"]
        found[f"{name}_over_logistic_regression"] = median["ours"] / median["logistic"]
    return found


if __name__ == "__main__":
    beside = parser(__doc__).parse_args().beside
    tables = {name: table.fingerprint for name, table in SETS.items()}
    print(json.dumps({**order(), **rows(), **speed(), **provenance(range(SEEDS), beside, tables)}))
