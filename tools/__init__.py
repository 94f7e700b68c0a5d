"""Tools for this repository, run from its root; not part of the installed package."""
