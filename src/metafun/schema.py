"""Frozen dataclasses from and to plain tables (TOML), checked key by key and type by type."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import InvalidConfig, suggest

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Between:
    """Bounds of a number, both included: `Annotated[int, Between(1, 10)]`."""

    least: int | float
    most: int | float


def parse(cls: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """An instance of the dataclass `cls`; an unknown key or a value of the wrong type fails with its path."""
    hints = get_type_hints(cls, include_extras=True)
    for key in table:
        if key not in hints:
            raise InvalidConfig(f"unknown key '{where}{key}'; {suggest(key, hints)}")
    return cls(**{key: _value(hints[key], value, where + key) for key, value in table.items()})


def to_table(config: Any) -> dict[str, Any]:
    """The inverse of `parse`; what is None is left out, since TOML has no word for it."""
    return {
        field.name: to_table(value) if dataclasses.is_dataclass(value) else value
        for field in dataclasses.fields(config)
        if (value := getattr(config, field.name)) is not None
    }


def flatten(table: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{where}{key}.") if isinstance(value, Mapping) else {where + key: value}
    return flat


def nested(key: str, value: Any) -> dict[str, Any]:
    """`("a.b", 1)` as `{"a": {"b": 1}}`."""
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `over` laid on top. A table that names another kind brings its own defaults."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and _same_kind(old, value):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def _same_kind(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return "kind" not in a or "kind" not in b or a["kind"] == b["kind"]


def _value(hint: Any, value: Any, path: str) -> Any:
    if hint is Any:
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        checked, bounds = _value(arguments[0], value, path), arguments[1]
        if not bounds.least <= checked <= bounds.most:
            raise InvalidConfig(f"{path} = {value}, but it must be between {bounds.least:g} and {bounds.most:g}.")
        return checked
    if origin in (Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        variants = [a for a in arguments if a is not type(None)]
        if len(variants) == 1:
            return _value(variants[0], value, path)
        return _variant(variants, value, path)
    if origin is Literal:
        if value not in arguments:
            raise InvalidConfig(f"{path} = {value!r} is not known; {suggest(str(value), arguments)}")
        return value
    if origin is tuple:
        return _tuple(arguments, value, path)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InvalidConfig(f"{path} = {value!r}, but it must be a table of keys.")
        return {key: _value(arguments[1], v, f"{path}.{key}") for key, v in value.items()}
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise InvalidConfig(f"{path} = {value!r}, but it must be a table of keys.")
        return parse(hint, value, path + ".")  # type: ignore[arg-type]
    if hint is float and type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not hint:
        raise InvalidConfig(f"{path} = {value!r}, but it must be of type {hint.__name__}.")
    return value


def _variant(variants: list[Any], value: Any, path: str) -> Any:
    """The one of several dataclasses that `kind` names."""
    kinds = {get_args(get_type_hints(variant)["kind"])[0]: variant for variant in variants}
    kind = value.get("kind") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidConfig(f"{path}.kind = {kind!r} is not known; {suggest(str(kind), kinds)}")
    return parse(kinds[kind], value, path + ".")


def _tuple(arguments: tuple[Any, ...], value: Any, path: str) -> tuple:
    if not isinstance(value, (list, tuple)):
        raise InvalidConfig(f"{path} = {value!r}, but it must be a list.")
    hints = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
    if len(hints) != len(value):
        raise InvalidConfig(f"{path} = {value!r}, but it must have {len(hints)} entries.")
    return tuple(_value(hint, v, f"{path}[{i}]") for i, (hint, v) in enumerate(zip(hints, value, strict=True)))
