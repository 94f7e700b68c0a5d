"""The command line: a command parses options, calls the library and prints."""

import sys

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
    app(prog_name="metafun")
