"""Lines of results, and how their numbers are written."""

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from ..config import load_config
from ..paper import load_item
from ..schema import flatten, to_table

# What the seeds, the data and the protocol decide, and what is the same in words.
_UNSAID = {"training.seeds", "training.stop", "training.validate_every", "training.patience", "training.chunk"}
_UNSAID |= {"tasks.data", "tasks.features", "tasks.fingerprint", "tasks.train_on"}


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def number(value: dict[str, Any]) -> str:
    """Mean ± standard deviation over the seeds, if there are several."""
    spread = "" if value["std"] is None else f" ± {value['std']:.5f}"
    return f"{value['mean']:.5f}{spread}"


def percent(value: dict[str, Any]) -> str:
    return f"{100 * value['mean']:.2f}" + ("" if value["std"] is None else f" ± {100 * value['std']:.2f}")


def spread(value: dict[str, Any]) -> str:
    """As `number`, with three digits."""
    return f"{value['mean']:.3f}" + ("" if value["std"] is None else f" ± {value['std']:.3f}")


def published_cell(value: tuple[float, ...] | None, digits: int) -> str:
    return "" if value is None else f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def published(record: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """What the paper reports of the tasks and the model of a measured run on sinusoids."""
    config = tomllib.loads(record["config"])
    if config["tasks"]["kind"] != "sinusoid":
        return {}
    # Table 1 has MetaFun with attention.
    metafun = config["model"].get("pooling", {}).get("kind") == "attention"
    preset = "sinusoid-paper" if metafun else record["run"]
    return {metric: value for (name, metric), value in paper_values().items() if name == preset}


@cache
def paper_values() -> dict[tuple[str, str], tuple[float, ...]]:
    """Mean and standard deviation over 5 runs, as published, by preset and metric."""
    rows = [row for name in ("table1", "table2") for row in load_item(name).rows if row.cells and row.published]
    # A preset may serve other data too; it is known by where it comes first.
    pairs = [(cell, value) for row in reversed(rows) for cell, value in zip(row.cells, row.published, strict=True)]
    return {(cell.preset, cell.metric): value for cell, value in pairs}


def train_command(record: dict[str, Any]) -> str:
    return f"`metafun train {arguments(record, record['run'])}`"


def arguments(record: dict[str, Any], preset: str) -> str:
    """The preset, the number of seeds, and the settings that the run does not share with the preset as it is now."""
    there, now = (flatten(table) for table in (tomllib.loads(record["config"]), to_table(load_config(preset))))
    said = {key: value for key, value in there.items() if key in now and key not in _UNSAID}
    changed = [f" --set {key}={value}" for key, value in said.items() if now[key] != _tuple(value)]
    return f"{preset} --seeds {len(there['training.seeds'])}{''.join(changed)}"


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
