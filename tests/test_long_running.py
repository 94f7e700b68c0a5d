"""Many calls in one process, and several threads: memory stays bounded, and answers stay the same."""

import concurrent.futures
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metafun import MetaFunClassifier, MetaFunRegressor

SCRIPT = Path(__file__).parent.parent / "scripts" / "fit_memory.py"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in /proc")
def test_a_thousand_cycles_take_no_more_memory():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["growth"] < 0.1


def test_ten_threads_give_the_same_answers_as_one():
    rng = np.random.default_rng(0)
    curves = [(x := rng.uniform(-2, 2, (n, 1)), np.sin(x[:, 0])) for n in range(3, 8)]
    blobs = [(rng.normal(size=(n, 2)), np.arange(n) % 2) for n in range(4, 9)]

    def answer(task):
        x, y = task
        if y.dtype.kind == "f":
            return MetaFunRegressor("gp-rbf").fit(x, y).predict(x)
        return MetaFunClassifier().fit(x, y).predict_proba(x)

    tasks = [*curves, *blobs]
    expected = list(map(answer, tasks))
    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        for found, known in zip(pool.map(answer, 3 * tasks), 3 * expected, strict=True):
            np.testing.assert_array_equal(found, known)
