"""Rows from outside in the few sizes, and in the precision, that programs are compiled for."""

import numpy as np
from numpy.typing import NDArray


def padded_size(n: int) -> int:
    """A multiple of 8, of which there are four at most for each doubling: little is compiled or computed in vain.

    Processors take rows in blocks; in what is left over the last digit may differ, and would tell where a row stood.
    """
    step = max(8, 1 << max(0, n.bit_length() - 3))
    return max(step, -(-n // step) * step)


def to_float32(values: NDArray, name: str) -> NDArray:
    """In the precision of the model."""
    with np.errstate(over="ignore"):
        rounded = np.asarray(values, np.float32)
    if np.isinf(rounded).any():
        raise ValueError(f"{name} has numbers beyond the range of float32; scale it.")
    return rounded


def pad_rows(rows: NDArray, size: int) -> NDArray:
    """With rows of zeros behind them."""
    found = np.zeros((size, rows.shape[1]), np.float32)
    found[: len(rows)] = rows
    return found
