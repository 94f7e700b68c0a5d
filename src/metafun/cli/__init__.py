"""The command line. A file for each few commands that belong together."""

import os
import sys
from pathlib import Path

import jax

from ..training.devices import use_all_cores
from . import bench, data, demos, experiments, fitting, protocol, reproduce, search
from .console import app

app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")

__all__ = [
    "app",
    "bench",
    "data",
    "demos",
    "experiments",
    "fitting",
    "main",
    "protocol",
    "reproduce",
    "search",
]


def main() -> None:
    """The entry point of the `metafun` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character still gets the table
    use_all_cores()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "metafun" / "compiled"
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(cache)))
    app()
