"""Memory over many cycles of `fit` and `predict` with changing numbers of rows, on Linux.

The growth is relative to the memory after the first 100 cycles, which compile all programs.

    python scripts/fit_memory.py --beside 0 >> results/fit-memory.jsonl
"""

import json
import os
from pathlib import Path

import numpy as np
from provenance import parser, provenance

from metafun import MetaFunRegressor

CYCLES, BEFORE = 1000, 100
# Rows, which are padded to other sizes of programs.
SIZES = (3, 9, 20, 33)


def resident_megabytes() -> float:
    """The memory of this process, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def run(cycles: int, rng: np.random.Generator) -> None:
    """Fits and predicts with every pair of sizes in turn.

    Args:
        cycles: how often.
        rng: source of the rows.
    """
    for i in range(cycles):
        x = rng.uniform(-2, 2, (SIZES[i % 4], 1))
        MetaFunRegressor("gp-rbf").fit(x, np.sin(x[:, 0])).predict(rng.uniform(-2, 2, (SIZES[i // 4 % 4], 1)))


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--cycles", type=int, default=CYCLES)
    given, rng = options.parse_args(), np.random.default_rng(0)
    run(BEFORE, rng)
    first = resident_megabytes()
    run(given.cycles, rng)
    last = resident_megabytes()
    found = {"megabytes_first": first, "megabytes_last": last, "growth": last / first - 1}
    rounded = {name: round(value, 4) for name, value in found.items()}
    print(json.dumps({"cycles": given.cycles, **rounded, **provenance([0], given.beside)}))
