"""Configurations from presets, TOML files and single settings."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import InvalidConfig, nearest, suggest
from ..files import read_text
from ..schema import check_depth, current_names, expand_kinds, merge, nested, to_table
from .config import Config
from .experiment import parse_config

# Files that build on one another.
MOST_BASES = 20


def presets() -> list[str]:
    """The names of the configurations shipped with the package."""
    return sorted(f.name.removesuffix(".toml") for f in _preset_folder().iterdir() if f.name.endswith(".toml"))


def load_config(source: str, settings: Sequence[str] = (), changes: Mapping[str, Any] | None = None) -> Config:
    """A checked configuration.

    Args:
        source: the name of a preset or the path of a TOML file.
        settings: changes as text, `key.path=value` with the value in TOML.
        changes: changes as values, by dotted key.
    """
    return parse_config(_changed(_table(source), [*map(parse_setting, settings), *(changes or {}).items()]))


def says_no_tasks(source: str) -> bool:
    """Whether `source` is a file that names neither a base nor tasks: it trains the defaults, which may surprise."""
    if source in presets() or not source.endswith(".toml"):
        return False
    table = parse_toml(read_text(Path(source)), source)
    return "base" not in table and "tasks" not in table


def with_changes(config: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with `changes` by dotted key, checked again."""
    return parse_config(_changed(to_table(config), changes.items()))


def has_setting(config: Config, key: str) -> bool:
    """Whether a configuration has a setting; everything inside an optional part that is not given counts as had.

    Args:
        config: the configuration.
        key: dotted path of the setting.
    """
    value: Any = config
    for part in key.split("."):
        if value is None:
            return True
        if not is_dataclass(value) or part not in (field.name for field in fields(value)):
            return False
        value = getattr(value, part)
    return True


def _changed(table: Mapping[str, Any], changes: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    # Joined first: a change of `kind` must not discard another change, whatever their order.
    joined: dict[str, Any] = {}
    for key, value in changes:
        joined = merge(joined, expand_kinds(Config, nested(key, value)))
    return merge(table, current_names(Config, joined))


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """TOML as a table; `name` is the source in the error message."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{name} is not valid TOML: {error}.") from None
    check_depth(table)
    return table


def _table(source: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """A preset or file as a table, merged over its `base` (a preset or file), or over the defaults."""
    if source in above:
        raise InvalidConfig(f"'{source}' builds on itself: {' → '.join((*above, source))}.")
    if len(above) > MOST_BASES:
        raise InvalidConfig(f"'{above[0]}' builds on a chain of more than {MOST_BASES} files; join some of them.")
    if source in presets():
        table = parse_toml((_preset_folder() / f"{source}.toml").read_text("utf-8"), source)
    elif source.endswith(".toml"):
        path = Path(source)
        if not path.exists():
            hint = f" The preset is called {path.stem}." if path.stem in presets() else ""
            raise InvalidConfig(f"there is no file {source}.{hint}")
        try:
            table = parse_toml(read_text(path), source)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(f"cannot read {source}: {error}.") from None
    else:
        hint = suggest(source, presets()) if nearest(source, presets()) else "`metafun info` lists all of them."
        raise InvalidConfig(f"unknown preset '{source}'; {hint} A TOML file ends in .toml.")
    base = table.pop("base", None)
    table = expand_kinds(Config, current_names(Config, table))
    if base is None:
        # The defaults supply `kind`, so that a file or setting may change a part without naming it.
        return merge(to_table(Config()), table)
    if not isinstance(base, str):
        raise InvalidConfig(f"{source}: base = {base!r}, but it must be the name of a preset or TOML file.")
    if base.endswith(".toml"):
        base = str(Path(source).parent / base)  # relative to the file that names it
    return merge(_table(base, (*above, source)), table)


def parse_setting(setting: str) -> tuple[str, Any]:
    """`key=value` with the value in TOML; a bare word is a string: model.activation=gelu, training.clip=none."""
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise InvalidConfig(f"'{setting}' must have the form key=value, for example training.steps=1000.")
    try:
        parsed: Any = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        parsed = {}
    return key.strip(), parsed["value"] if list(parsed) == ["value"] else value


def describe_preset(name: str) -> str:
    """The first comment line of a preset, or without one the name of its base and data."""
    text = (_preset_folder() / f"{name}.toml").read_text("utf-8")
    first = text.splitlines()[0]
    if first.startswith("# "):
        return first.removeprefix("# ")
    table = parse_toml(text, name)
    data = table.get("tasks", {}).get("data")
    return f"{table['base']}" + (f" on {data}" if data else "")


def _preset_folder() -> Any:
    return resources.files("metafun") / "presets"
