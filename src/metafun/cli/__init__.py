"""The command line: a command parses options, calls the library and prints."""

import os
import sys

import jax
import platformdirs

from ..training.devices import use_all_cores
from . import bench, data, demos, experiments, fitting, play, reproduce, search
from .console import app

app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")


def main() -> None:
    """The entry point of the `metafun` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character still gets the table
    use_all_cores()
    cache = platformdirs.user_cache_path("metafun", appauthor=False) / "compiled"
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR", str(cache)))
    app(prog_name="metafun")
