"""Hostile files and kills, for hours if need be: `make soak`, or python -m tools.soak --minutes 10 --seed 0."""

import os

# Before JAX is imported: most programs here run once, and are compiled again after every kill.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", os.path.abspath(".cache/compiled"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
