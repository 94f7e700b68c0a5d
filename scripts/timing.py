"""Times of models measured in turns, so that all of them see the same machine."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDS = 5


def median_seconds(
    models: Mapping[str, Any],
    x: NDArray,
    y: NDArray,
    x_test: NDArray,
    repetitions: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The median time of `fit` and `predict_proba` for each classifier.

    Models alternate after `repetitions` calls each, of which the second half counts: right after another model, a model
    finds the cores still spinning.

    Args:
        models: scikit-learn classifiers by name.
        x: training inputs, [rows, columns].
        y: training labels, [rows].
        x_test: test inputs, [rows, columns].
        repetitions: calls of each model in each round.
        clock: says the time in seconds.
    """
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            for i in range(repetitions):
                start = clock()
                model.fit(x, y).predict_proba(x_test)
                if i >= repetitions // 2:
                    seconds[name].append(clock() - start)
    return {name: float(np.median(values)) for name, values in seconds.items()}
