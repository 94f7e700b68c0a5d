"""What the models of any table do where they were not trained to, and how long they take: ratios, in one run.

python scripts/table_limits.py >> results/table-limits.jsonl
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metafun import MetaFunClassifier, MetaFunRegressor, __version__
from metafun.bench.datasets import SETS

ROUNDS, REPETITIONS = 5, 40


def order() -> dict[str, float]:
    """The most that a prediction moves, over the sets, when their columns are given in another order.

    Columns that tell as much of y as each other have no order of their own: with two rows all of them do, and columns
    of two values often.
    """
    return {
        **{f"columns_in_another_order_{name}": value for name, value in _moved(30, False).items()},
        **{f"columns_in_another_order_two_rows_{name}": value for name, value in _moved(2, False).items()},
        **{f"columns_in_another_order_two_values_{name}": value for name, value in _moved(30, True).items()},
    }


def _moved(n: int, binary: bool) -> dict[str, float]:
    rng, moved = np.random.default_rng(0), {"probability": 0.0, "deviations": 0.0}
    for chosen in SETS.values():
        x, y = chosen.load()
        x = (x > np.median(x, axis=0)).astype(float) if binary else x
        for _ in range(20):
            rows = rng.permutation(len(y))[: n + 100]
            given, asked, columns = rows[:n], rows[n:], rng.permutation(x.shape[1])
            if chosen.problem == "classification" and len(set(y[given])) < 2:
                continue
            pairs = [(x[given], x[asked]), (x[given][:, columns], x[asked][:, columns])]
            if chosen.problem == "classification":
                said = [MetaFunClassifier().fit(a, y[given]).predict_proba(b) for a, b in pairs]
                moved["probability"] = max(moved["probability"], float(abs(said[0] - said[1]).max()))
            else:
                said = [MetaFunRegressor().fit(a, y[given]).predict(b) for a, b in pairs]
                moved["deviations"] = max(moved["deviations"], float(abs(said[0] - said[1]).max() / y.std()))
    return moved


def rows() -> dict[str, dict[str, dict[str, float]]]:
    """Accuracy with more rows than training had, 256: on digits, and where two of six columns act together."""
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
        for seed in range(10):
            drawn = np.random.default_rng(seed).permutation(len(y))
            given, asked = drawn[:n], drawn[n : n + 500]
            for name, model in {"MetaFun": MetaFunClassifier(), **others}.items():
                scores.setdefault(name, []).append(model.fit(x[given], y[given]).score(x[asked], y[asked]))
        found[str(n)] = {name: float(np.mean(values)) for name, values in scores.items()}
    return found


def speed() -> dict[str, float]:
    """fit + predict of 100 rows with 10 columns, two classes, warm; the models take turns."""
    rng = np.random.default_rng(0)
    x, x_ = rng.normal(size=(100, 10)), rng.normal(size=(100, 10))
    y = (x[:, 0] + x[:, 1] * x[:, 2] > 0).astype(int)
    models = {"ours": MetaFunClassifier(), "forest": RandomForestClassifier(), "logistic": LogisticRegression()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            for i in range(REPETITIONS):
                start = time.perf_counter()
                model.fit(x, y).predict_proba(x_)
                if i >= REPETITIONS // 2:  # after it is warm
                    seconds[name].append(time.perf_counter() - start)
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    return {
        "fit_and_predict_over_random_forest": median["ours"] / median["forest"],
        "fit_and_predict_over_logistic_regression": median["ours"] / median["logistic"],
    }


if __name__ == "__main__":
    about = {"device": jax.local_devices()[0].device_kind, "version": __version__}
    print(json.dumps({**order(), **rows(), **speed(), **about, "date": datetime.now(UTC).date().isoformat()}))
