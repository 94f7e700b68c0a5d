"""`python -m metafun` is the `metafun` command."""

import runpy

runpy.run_module("metafun.cli", run_name="__main__", alter_sys=True)
