"""`python -m metafun.cli` is the `metafun` command."""

from . import main

main()
