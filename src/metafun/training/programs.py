"""Compiled programs on disk: a later process reads them in a fraction of the time that compiling takes."""

import contextlib
import os
from functools import cache
from pathlib import Path

import filelock
import jax
import platformdirs

from ..errors import InvalidConfig

# 0 keeps no programs on disk.
SWITCH = "METAFUN_KEEP_PROGRAMS"
# In the folder of programs; those that were not used for the longest time are deleted first.
MOST_BYTES = 2**29
# Programs that compile faster are not kept.
LEAST_SECONDS = 0.1


@cache
def keep_programs() -> None:
    """Makes JAX keep what it compiles in `compiled` in the user's cache folder, unless the user has chosen a folder.

    A program is found again only by the same version of JAX for the same kind of device. Nothing happens if the folder
    cannot be written, or if the environment variable `SWITCH` is 0.
    """
    if (text := os.environ.get(SWITCH, "1")) not in ("0", "1"):
        raise InvalidConfig(f"{SWITCH} = {text!r}, but it must be 0 or 1.")
    chosen = jax.config.values
    if text == "0" or chosen["jax_compilation_cache_dir"] is not None or not chosen["jax_enable_compilation_cache"]:
        return
    folder = platformdirs.user_cache_path("metafun", appauthor=False) / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    if not os.access(folder, os.W_OK):
        return
    _remove_undated(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", MOST_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)


def _remove_undated(folder: Path) -> None:
    """Removes programs without a time of use: killed writers and unbounded caches leave them, and JAX fails on them.

    JAX writes a program and its time under the same lock; where another process holds it, that one looks after them.
    """
    with contextlib.suppress(filelock.Timeout, OSError), filelock.FileLock(folder / ".lockfile", timeout=1):
        dated = {path.name.removesuffix("-atime") for path in folder.glob("*-atime")}
        for path in folder.glob("*-cache"):
            if path.name.removesuffix("-cache") not in dated:
                path.unlink(missing_ok=True)
