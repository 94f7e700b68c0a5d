"""How fast the estimators are beside what they stand in for, and how much memory they take: ratios, in one run.

python scripts/estimator_speed.py >> results/estimators.jsonl
"""

import dataclasses
import json
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime

import jax
import numpy as np
from sklearn.linear_model import LogisticRegression

from metafun import MetaFunClassifier, MetaFunRegressor, __version__, load_config
from metafun.estimators.trained import Trained

ROUNDS, REPETITIONS = 5, 200


def few_shot() -> dict[str, float]:
    """5-way 5-shot, 75 queries of 640 features, with the model that `meta_fit` trains for such rows.

    The two take turns after some repetitions each: right after the other, each finds the cores still spinning.
    """
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 640))
    x = np.repeat(centres, 20, axis=0) + rng.normal(size=(100, 640))
    labels = np.repeat(np.arange(5), 20)
    chosen = np.arange(100) % 20 < 5
    config = load_config("own-features")
    config = dataclasses.replace(config, tasks=config.tasks.presumed(640))
    models = {
        "metafun": MetaFunClassifier(Trained(config, config.build_model(jax.random.key(0)))),
        "logistic": LogisticRegression(),
    }
    seconds = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            for i in range(REPETITIONS):
                start = time.perf_counter()
                model.fit(x[chosen], labels[chosen]).predict_proba(x[~chosen])
                if i >= REPETITIONS // 2:  # after it is warm
                    seconds[name].append(time.perf_counter() - start)
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    return {"fit_and_predict_over_logistic_regression": median["metafun"] / median["logistic"]}


def a_million_targets() -> dict[str, float]:
    """From 100 context points; what the largest memory grew by, and how many programs were compiled on the way."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (100, 1))
    model = MetaFunRegressor("gp-rbf").fit(x, np.sin(x[:, 0]))
    model.predict(x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many = rng.uniform(-2, 2, (1_000_000, 1))
    model.predict(many, return_std=True)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"million_targets_megabytes": grown, "programs": model.trained_.predict.func._cache_size()}


def imports() -> dict[str, float]:
    """`import metafun`, and with the first use of a model, over `import jax`; the best of five each."""

    def best(code: str) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - start)
        return min(times)

    bare, jax_alone = best("pass"), best("import jax")
    others = {"import_metafun": "import metafun", "import_and_use": "from metafun import MetaFun"}
    return {f"{name}_over_jax": (best(code) - bare) / (jax_alone - bare) for name, code in others.items()}


if __name__ == "__main__":
    facts = {"device": jax.devices()[0].device_kind, "version": __version__}
    facts["date"] = datetime.now(UTC).date().isoformat()
    print(json.dumps({**few_shot(), **a_million_targets(), **imports(), **facts}))
