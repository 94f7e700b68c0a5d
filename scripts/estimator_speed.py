"""Speed of the estimators relative to scikit-learn and JAX, and their memory; all ratios are measured in one run.

python scripts/estimator_speed.py --beside 0 >> results/estimators.jsonl
"""

import dataclasses
import json
import resource
import subprocess
import sys
import time

import jax
import numpy as np
from provenance import parser, provenance
from sklearn.linear_model import LogisticRegression
from timing import median_seconds

from metafun import MetaFunClassifier, MetaFunRegressor, load_config
from metafun.config import Experiment
from metafun.estimators.trained import Trained


def few_shot() -> dict[str, float]:
    """5-way 5-shot, 75 queries of 640 features, with the model that `meta_fit` trains for such rows."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 640))
    x = np.repeat(centres, 20, axis=0) + rng.normal(size=(100, 640))
    labels = np.repeat(np.arange(5), 20)
    chosen = np.arange(100) % 20 < 5
    config = load_config("own-features")
    experiment = Experiment(dataclasses.replace(config, tasks=config.tasks.with_assumed_inputs(640)))
    models = {
        "metafun": MetaFunClassifier(Trained(experiment, experiment.build_model(jax.random.key(0)))),
        "logistic": LogisticRegression(),
    }
    median = median_seconds(models, x[chosen], labels[chosen], x[~chosen], repetitions=200)
    return {"fit_and_predict_over_logistic_regression": median["metafun"] / median["logistic"]}


def a_million_targets() -> dict[str, float]:
    """From 100 context points: growth of the peak memory in megabytes (Linux), and number of compiled programs."""
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
    """Time of `import metafun`, without and with a first model, over that of `import jax`; the best of five each."""

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
    beside = parser(__doc__).parse_args().beside
    print(json.dumps({**few_shot(), **a_million_targets(), **imports(), **provenance([0], beside)}))
