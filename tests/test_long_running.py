"""Many calls in one process, and several threads: memory stays bounded, and answers stay the same."""

import concurrent.futures
import subprocess
import sys

import numpy as np
import pytest

from examples import quick
from metafun import MetaFunClassifier, MetaFunRegressor

# The sizes repeat: programs are compiled in the first round, and after that memory must not grow.
CYCLES = """
import resource, sys
import numpy as np
from metafun import MetaFunRegressor

def used():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

rng, sizes = np.random.default_rng(0), [3, 9, 20, 33]
def cycles(count):
    for i in range(count):
        n = sizes[i % len(sizes)]
        x = rng.uniform(-2, 2, (n, 1))
        MetaFunRegressor("gp-rbf").fit(x, np.sin(x[:, 0])).predict(rng.uniform(-2, 2, (sizes[i // 4 % 4], 1)))

cycles(100)
before = used()
cycles(int(sys.argv[1]))
print(used() / before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in /proc")
def test_a_thousand_cycles_take_no_more_memory():
    done = subprocess.run([sys.executable, "-c", CYCLES, "1000"], env=quick(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 1.1


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
