"""Predictions as a StableHLO program that needs only JAX to run."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from ..files import write_atomically


def export_program(path: Path, predict: Callable[[jax.Array], Any], features: int) -> None:
    """Writes `predict` as a program for CPU and CUDA.

    Args:
        path: the file to write.
        predict: a traceable function of float32 rows [m, features], for any m.
        features: number of columns of a row.
    """
    rows = jax.ShapeDtypeStruct((*export.symbolic_shape("rows"), features), jnp.float32)
    program = export.export(jax.jit(predict), platforms=("cpu", "cuda"))(rows)
    write_atomically(path, bytes(program.serialize()))
