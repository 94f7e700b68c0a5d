"""The paper's published values, to show beside measured ones."""

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from .items import load_item


def published(results: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """The paper's mean and standard deviation for each metric of a run on sinusoids; empty for other runs.

    Args:
        results: what an evaluation measured, with its configuration as TOML in `config` and its name in `run`.
    """
    config = tomllib.loads(results["config"])
    if config["tasks"]["kind"] != "sinusoid":
        return {}
    # Table 1 has MetaFun with attention only.
    is_metafun = config["model"].get("pooling", {}).get("kind") == "attention"
    preset = "sinusoid-paper" if is_metafun else results["run"]
    return {metric: value for (name, metric), value in paper_values().items() if name == preset}


@cache
def paper_values() -> dict[tuple[str, str], tuple[float, ...]]:
    """Published mean and standard deviation over 5 runs, by preset and metric."""
    rows = [row for name in ("table1", "table2") for row in load_item(name).rows if row.cells and row.published]
    # A preset may serve several data sets; its first row counts.
    pairs = [(cell, value) for row in reversed(rows) for cell, value in zip(row.cells, row.published, strict=True)]
    return {(cell.preset, cell.metric): value for cell, value in pairs}


def format_mean_std(value: Mapping[str, Any], digits: int = 5, scale: float = 1) -> str:
    """Mean ± standard deviation over the seeds, or the mean alone for a single seed.

    Args:
        value: a metric with `mean` and `std`; `std` is None for a single seed.
        digits: digits after the decimal point.
        scale: factor for both numbers, 100 for per cent.
    """
    std = "" if value["std"] is None else f" ± {scale * value['std']:.{digits}f}"
    return f"{scale * value['mean']:.{digits}f}{std}"
