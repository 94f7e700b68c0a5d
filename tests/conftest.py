"""Shapes and types are checked in every test; compiled programs are kept between runs of the suite."""

import itertools
import os
from pathlib import Path

# XLA's newer way to fuse operations doubles the time that a program takes to compile, and most here run once.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

from jaxtyping import install_import_hook

with install_import_hook("metafun", "beartype.beartype"):
    pass

import jax
import pytest

from metafun.training.devices import use_all_cores

use_all_cores()
jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".cache" / "compiled"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
# Most programs here run once, on a handful of points: what counts is how soon they are compiled.
jax.config.update("jax_disable_most_optimizations", True)


# A process can map so many pieces of memory, and each compiled program is some: they are let go before they run out.
TESTS_BETWEEN_CLEARINGS = 100
_finished = itertools.count(1)


def pytest_runtest_teardown():
    if next(_finished) % TESTS_BETWEEN_CLEARINGS == 0:
        jax.clear_caches()


def pytest_collection_modifyitems(items):
    """The slow ones first: begun last, they would leave the other processes with nothing to do.

    Then those of the same variant of the model one after the other: they share compiled programs.
    """

    def order(item):
        is_quick = item.get_closest_marker("slow") is None
        values = item.callspec.params if hasattr(item, "callspec") else {}
        return is_quick, item.fspath if is_quick else "", str(values.get("variant", ""))

    items.sort(key=order)


@pytest.fixture
def optimised():
    """For a test that runs longer than it compiles."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture
def float64():
    with jax.enable_x64(True):
        yield
