"""Shapes and types of computations are checked in every test; compiled programs are kept between runs of the suite."""

import gc
import itertools
import os
from pathlib import Path

# By the environment, so that processes which tests start have the same settings, and share the compiled programs.
# Most programs here run once, on a handful of points: compile time dominates, and XLA's newer fusion doubles it.
os.environ |= {
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false",
    "JAX_COMPILATION_CACHE_DIR": str(Path(__file__).parent.parent / ".cache" / "compiled"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
    "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    # For products of such sizes, more threads only wait for each other.
    "OPENBLAS_NUM_THREADS": "1",
}

from jaxtyping import install_import_hook

# Before the first import of metafun. The other rooms check what users pass, and say so in their own words.
ROOMS = ("model", "embeddings", "baselines", "tasks", "training")
install_import_hook([f"metafun.{room}" for room in ROOMS], "typechecking.typechecked")

import jax  # noqa: E402
import pytest  # noqa: E402

from metafun.training.devices import forget_programs, use_all_cores  # noqa: E402

use_all_cores()
# Tracing makes many short-lived objects and few cycles; collecting as often as by default takes a tenth of the time.
gc.set_threshold(200_000, 20, 20)
jax.config.update("jax_traceback_in_locations_limit", 0)

TESTS_BETWEEN_CLEARINGS = 100
_finished = itertools.count(1)


def pytest_runtest_teardown():
    if next(_finished) % TESTS_BETWEEN_CLEARINGS == 0:
        forget_programs()


def pytest_collection_modifyitems(items):
    """Slow tests come first, so that no process is idle at the end; then tests of one variant, which share programs."""

    def order(item):
        is_quick = item.get_closest_marker("slow") is None
        values = item.callspec.params if hasattr(item, "callspec") else {}
        return is_quick, item.fspath if is_quick else "", str(values.get("variant", ""))

    items.sort(key=order)


@pytest.fixture
def optimised(monkeypatch):
    """For a test that runs longer than it compiles, and for the processes that it starts."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield
