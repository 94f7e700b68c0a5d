"""Recorded runs, and the commands that made them."""

import json
import tomllib
from pathlib import Path
from typing import Any, get_args, get_type_hints

from metafun.config import load_config
from metafun.schema import UNSET, flatten, to_table

# Settings that do not belong into a command: options of their own, or filled in from the data.
_NOT_IN_COMMANDS = {"training.seeds", "training.stop", "training.validate_every", "training.patience", "training.chunk"}
_NOT_IN_COMMANDS |= {"tasks.data", "tasks.features", "tasks.fingerprint", "tasks.train_on"}


def read_records(path: Path) -> list[dict[str, Any]]:
    """The lines of a .jsonl file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def published_cell(value: tuple[float, ...] | None, digits: int) -> str:
    """A published mean ± standard deviation, or an empty cell."""
    return "" if value is None else f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


def train_command(record: dict[str, Any]) -> str:
    """The `metafun train` command of a recorded run, as Markdown code."""
    return f"`metafun train {arguments(record, record['run'])}`"


def arguments(record: dict[str, Any], preset: str) -> str:
    """The preset, the number of seeds, and the recorded settings that differ from the preset's current ones.

    Args:
        record: a recorded run, with its configuration as TOML in `config`.
        preset: the preset that the run started from.
    """
    config = load_config(preset)
    recorded, current = flatten(tomllib.loads(record["config"])), flatten(to_table(config))
    found = {key: value for key, value in recorded.items() if key in current}
    found |= {key: _value_if_missing(config, key) for key in current if key not in recorded}
    changed = {
        key: value
        for key, value in found.items()
        if value is not None and _tuple(value) != current[key] and key not in _NOT_IN_COMMANDS
    }
    settings = (f" --set {key}={value}" for key, value in changed.items())
    return f"{preset} --seeds {len(recorded['training.seeds'])}{''.join(settings)}"


def _value_if_missing(config: Any, key: str) -> Any:
    """What a record without the setting `key` had: unset, or the value before the setting existed; None if unknown."""
    *above, name = key.split(".")
    for part in above:
        config = getattr(config, part)
    if name in getattr(config, "added", {}):
        return config.added[name]
    return UNSET if type(None) in get_args(get_type_hints(type(config))[name]) else None


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
