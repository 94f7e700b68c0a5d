"""python -m tools.settings_reference: every setting with its type, bounds, default and description, as Markdown.

It is generated from the configuration's dataclasses: the description of a field is its line in the `Args:` section of
the class's docstring.
"""

import argparse
import dataclasses
import inspect
import json
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from metafun.config import Config

from .report.markdown import table

HEAD = """# Settings

Every setting of a configuration, for a TOML file or `--set KEY=VALUE`. Where a table has several kinds, `kind` selects
one, and the settings of that kind apply. The value `none` unsets an optional setting.
`python -m tools.settings_reference` generates this page.
"""


class Setting(NamedTuple):
    """One setting.

    Args:
        path: its name in TOML, such as `model.pooling.heads`.
        type: its type, with bounds or choices.
        default: its default as TOML, "none", or the default kind of a table.
        description: its line in the docstring of its class; empty if there is none.
    """

    path: str
    type: str
    default: str
    description: str


class Section(NamedTuple):
    """One dataclass of the configuration.

    Args:
        path: the table's name in TOML; empty for the whole configuration.
        cls: the dataclass.
        settings: its settings.
    """

    path: str
    cls: type
    settings: list[Setting]


def sections(cls: type = Config, path: str = "") -> Iterator[Section]:
    """The sections of a dataclass and of all tables inside it, each once.

    Args:
        cls: the dataclass.
        path: its name in TOML.
    """
    seen = set()
    for section in _all_sections(cls, path):
        if (section.path, section.cls) not in seen:  # models of several kinds have the same losses
            seen.add((section.path, section.cls))
            yield section


def _all_sections(cls: type, path: str) -> Iterator[Section]:
    hints, described = get_type_hints(cls, include_extras=True), descriptions(cls)
    fields = {field.name: field for field in dataclasses.fields(cls) if field.name != "kind"}
    paths = {name: f"{path}.{name}" if path else name for name in fields}
    yield Section(
        path,
        cls,
        [
            Setting(paths[name], describe_type(hints[name]), _default(field), described.get(name, ""))
            for name, field in fields.items()
        ],
    )
    for name in fields:
        for table_class in _tables(hints[name]):
            yield from _all_sections(table_class, paths[name])


def descriptions(cls: type) -> dict[str, str]:
    """The description of each field in the `Args:` section of a class's docstring, or of a base class's."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        _, _, text = inspect.cleandoc(base.__doc__ or "").partition("Args:\n")
        names: list[str] = []
        for line in text.splitlines():
            if line and not line.startswith(" "):
                break  # the next section
            if start := re.match(r" {4}(\w+(?:, \w+)*): (.*)", line):
                names = start[1].split(", ")
                found |= dict.fromkeys(names, start[2])
            elif line.strip():
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found


def describe_type(hint: Any) -> str:
    """A type hint in words, with its bounds or choices: `int, 1 to 100`.

    Args:
        hint: a type that `metafun.schema` can parse.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if tables := _tables(hint):
        kinds = " or ".join(f"`{kind}`" for kind in map(_kind, tables) if kind)
        return "table" + f" of kind {kinds}" * bool(kinds) + "; optional" * (type(None) in arguments)
    if origin is Annotated:
        bounds = arguments[1]
        return f"{describe_type(arguments[0])}, {_number(bounds.least)} to {_number(bounds.most)}"
    if origin in (Union, types.UnionType):
        (value,) = (argument for argument in arguments if argument is not type(None))
        return f"{describe_type(value)}; optional"
    if origin is Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of ({describe_type(arguments[0])})"
        return f"list of {len(arguments)} ({describe_type(arguments[0])})"
    if origin is dict:
        return f"table of ({describe_type(arguments[1])})"
    return {"str": "text", "bool": "`true` or `false`", "int": "integer", "float": "number"}[hint.__name__]


def render() -> str:
    """The whole reference as Markdown."""
    parts = [HEAD]
    for section in sections():
        kind = _kind(section.cls)
        title = f"`{section.path}`" if section.path else "The whole configuration"
        parts.append(f"## {title}{f', kind `{kind}`' if kind else ''}\n")
        if summary := _summary(section.cls):
            parts.append(f"{summary}\n")
        rows = [(f"`{s.path}`", s.type, s.default, s.description.replace("|", "\\|")) for s in section.settings]
        parts.append(table(("setting", "type", "default", "description"), rows) if rows else "No settings.\n")
    return "\n".join(parts)


def _summary(cls: type) -> str:
    """The docstring up to its arguments; empty for the one that `dataclass` generates."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("Args:\n")[0].strip()
    return "" if text.startswith(f"{cls.__name__}(") else text


def _tables(hint: Any) -> list[type]:
    """The dataclasses that a setting can be."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return [option for option in options if isinstance(option, type) and dataclasses.is_dataclass(option)]


def _kind(cls: type) -> str:
    """The value of `kind` that selects a dataclass; empty if it is the only one of its table."""
    hints = get_type_hints(cls)
    return get_args(hints["kind"])[0] if "kind" in hints else ""


def _default(field: dataclasses.Field) -> str:
    value = field.default
    if value is None or value is dataclasses.MISSING:
        return "none"
    if dataclasses.is_dataclass(value):
        kind = _kind(type(value))
        return f"kind `{kind}`" if kind else "see below"
    return f"`{json.dumps(value)}`"


def _number(value: int | float) -> str:
    """Short, with the largest 32-bit integers as powers of two."""
    if isinstance(value, int) and value > 10**6 and (value + 1).bit_count() == 1:
        return f"2^{(value + 1).bit_length() - 1} − 1"
    return f"{value:g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.settings_reference", description=render.__doc__)
    parser.add_argument("--out", type=Path, help="file to write; standard output by default")
    out = parser.parse_args().out
    if out is None:
        print(render(), end="")
    else:
        out.write_text(render(), "utf-8", newline="\n")
