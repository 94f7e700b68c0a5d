"""Recorded runs, the commands that made them, and whether a line says all that is needed to repeat it."""

import itertools
import json
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from metafun.config import Config, load_config
from metafun.config.config import TrainingConfig
from metafun.errors import InvalidResults
from metafun.schema import flatten, to_table

# What every line has. `beside`: other processes that shared the device.
FIELDS = ("command", "device", "date", "version", "beside")
# Those that may be null: lines of version 0.1.0 did not always record them.
NULLABLE = {"device", "beside"}
# Settings that do not belong into a command: options of their own, or filled in from the data.
_NOT_IN_COMMANDS = {"training.seeds", "training.stop", "training.validate_every", "training.patience", "training.chunk"}
_NOT_IN_COMMANDS |= {"tasks.data", "tasks.features", "tasks.fingerprint", "tasks.train_on"}
_SHA256 = re.compile(r"[0-9a-f]{64}")


def read_records(path: Path) -> list[dict[str, Any]]:
    """The lines of a .jsonl file; none if there is no file."""
    if not path.exists():
        return []
    try:
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    except ValueError as error:
        raise InvalidResults(f"{path} has a line that is not JSON: {error}; remove it.") from None


def missing_fields(record: Mapping[str, Any]) -> list[str]:
    """What a line lacks: a field of `FIELDS`, its seeds, or the fingerprint of its data.

    The fingerprint is in `fingerprint` where `data` is the name of a table, otherwise in `data`; it is empty where
    tasks are generated. Of several tables, it is a fingerprint for each name.

    Args:
        record: a line of results.
    """
    missing = [name for name in FIELDS if record.get(name) in (None, "") and not _is_null(record, name)]
    if not any(_is_given(record.get(name)) for name in ("seeds", "seed")):
        missing.append("seeds")
    fingerprint = record.get("fingerprint", record.get("data"))
    each = list(fingerprint.values()) if isinstance(fingerprint, dict) else [fingerprint]
    if not all(isinstance(found, str) and (not found or _SHA256.fullmatch(found)) for found in each):
        missing.append("data")
    return missing


def incomplete_lines(results: Path) -> list[str]:
    """Where lines of a folder of results lack something, and what.

    Args:
        results: the folder of the .jsonl files.
    """
    return [
        f"{path.name}, line {number}: {', '.join(missing)}"
        for path in sorted(results.glob("*.jsonl"))
        for number, record in enumerate(read_records(path), 1)
        if (missing := missing_fields(record))
    ]


def published_cell(value: tuple[float, ...] | None, digits: int) -> str:
    """A published mean ± standard deviation, or an empty cell."""
    return " ± ".join(f"{number:.{digits}f}" for number in value or ())


def current_command(record: Mapping[str, Any]) -> str:
    """The command that repeats a recorded run, as Markdown code.

    It is the recorded one, with the settings that its preset has changed since.

    Args:
        record: a recorded run, with its configuration as TOML in `config`.
    """
    command = record["command"]
    words = shlex.split("metafun demo" if command == "make demo" else command)
    changed = changed_settings(record["config"], _configuration(words))
    return f"`{shlex.join(words)}{changed}`" if changed else f"`{command}`"


def changed_settings(recorded: str, current: Config) -> str:
    """The options `--set` that turn a configuration into a recorded one.

    Args:
        recorded: a configuration as TOML.
        current: the configuration to change.
    """
    before, now = flatten(tomllib.loads(recorded)), flatten(to_table(current))
    # A setting of the training that a file lacks has its default; None is not written.
    default = flatten({"training": to_table(TrainingConfig())})
    before |= {key: default.get(key) for key in now if key.startswith("training.") and key not in before}
    keys = [key for key in before if key in now and key not in _NOT_IN_COMMANDS]
    return "".join(f" --set {key}={_toml(before[key])}" for key in keys if _tuple(before[key]) != now[key])


def _configuration(words: list[str]) -> Config:
    """The configuration of a `metafun train`, `protocol` or `demo` command, without its data."""
    settings = [setting for option, setting in itertools.pairwise(words) if option == "--set"]
    preset = words[2] if len(words) > 2 and not words[2].startswith("-") else ""
    if words[1] == "demo":
        preset = f"demo-{preset}" if preset else "demo"
    return load_config(preset, settings)


def _is_null(record: Mapping[str, Any], name: str) -> bool:
    return name in NULLABLE and name in record and record[name] is None


def _is_given(seeds: Any) -> bool:
    return isinstance(seeds, int) or (isinstance(seeds, Iterable) and bool(seeds))


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _toml(value: Any) -> str:
    return "none" if value is None else str(value)
