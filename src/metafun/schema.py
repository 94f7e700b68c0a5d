"""Frozen dataclasses from and to plain tables (TOML), checked key by key and type by type."""

import dataclasses
import types
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import InvalidConfig, UnknownKind, nearest, suggest

T = TypeVar("T")

# The value that unsets an optional setting: TOML has no word of its own for it.
UNSET = "none"


@dataclasses.dataclass(frozen=True)
class Between:
    """Bounds of a number, both included: `Annotated[int, Between(1, 10)]`."""

    least: int | float
    most: int | float


def parse(cls: type[T], table: Mapping[str, Any], where: str = "") -> T:
    """An instance of a dataclass from a table; an unknown key or a value of the wrong type fails with its path.

    Args:
        cls: the dataclass. Its class attribute `renamed`, if any, maps former names of fields to current ones.
        table: values by key.
        where: the path of the table, for error messages: "" or "model.pooling.".
    """
    hints, table = _hints(cls), _renamed([cls], table, where)  # type: ignore[arg-type]
    for key in table:
        if key not in hints:
            raise InvalidConfig(f"unknown key '{where}{key}'; {_suggest_key(cls, key, where)}")
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        is_optional = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if not is_optional and field.name not in table:
            raise InvalidConfig(f"the key '{where}{field.name}' is missing.")
    return cls(**{key: _value(hints[key], value, where + key) for key, value in table.items()})


def to_table(config: Any, original: bool = False) -> dict[str, Any]:
    """The inverse of `parse`, without fields that are None.

    Args:
        config: an instance of a dataclass. Its class attribute `added`, if any, names the fields that its first
            version lacked, each with the value that stands for the behaviour of that version.
        original: whether to write the table as that first version would, for hashes that must outlast changes: a
            renamed field under its former name, and no added field that has the value in `added`.
    """
    former = {new: old for old, new in getattr(config, "renamed", {}).items()} if original else {}
    added = getattr(config, "added", {}) if original else {}
    return {
        former.get(name, name): to_table(value, original) if dataclasses.is_dataclass(value) else value
        for name in (field.name for field in dataclasses.fields(config))
        if (value := getattr(config, name)) is not None and not (name in added and value == added[name])
    }


def current_names(cls: type, table: Mapping[str, Any]) -> dict[str, Any]:
    """A table for the dataclass `cls` with the current names of renamed settings, and a warning for each former name.

    Tables must be renamed before they are merged: a former name would not replace the current one below it.

    Args:
        cls: the dataclass that the table, which may be partial, is for.
        table: values by key, nested.
    """
    return _current_names([cls], table, "")


def expand_kinds(cls: type, table: Mapping[str, Any]) -> dict[str, Any]:
    """A table for the dataclass `cls` where `pooling = "mean"` has become `pooling = {kind = "mean"}`.

    Like names, kinds must be expanded before tables are merged.

    Args:
        cls: the dataclass that the table, which may be partial, is for.
        table: values by key, nested.
    """
    return _expand_kinds([cls], table)


def current_name(cls: type, key: str) -> str:
    """The current name of a setting, `"model.old"` as `"model.new"`, with a warning if it was renamed.

    Args:
        cls: the dataclass that has the setting.
        key: path of the setting.
    """
    return next(iter(flatten(current_names(cls, nested(key, 0)))))


def flatten(table: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= flatten(value, f"{where}{key}.") if isinstance(value, Mapping) else {where + key: value}
    return flat


# No setting is deeper; tables are read by recursion.
MOST_DEPTH = 20


def check_depth(table: Any) -> None:
    """InvalidConfig if tables and lists are nested more deeply than any setting is."""
    level = [table]
    for _ in range(MOST_DEPTH):
        level = [
            v for t in level for v in (t.values() if isinstance(t, Mapping) else t) if isinstance(v, Mapping | list)
        ]
        if not level:
            return
    raise InvalidConfig(f"tables are nested more than {MOST_DEPTH} deep; no setting is.")


def nested(key: str, value: Any) -> dict[str, Any]:
    """`("a.b", 1)` as `{"a": {"b": 1}}`; InvalidConfig if no setting can be so deep."""
    if key.count(".") > MOST_DEPTH:
        raise InvalidConfig(f"'{key[:60]}…' has {key.count('.') + 1:,} parts; no setting has more than {MOST_DEPTH}.")
    for part in reversed(key.strip().split(".")):
        value = {part: value}
    return value


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` updated with `over`, table by table. A table that names another `kind` replaces the one below it.

    Args:
        base: a nested table.
        over: a nested table whose values win.
    """
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping) and _same_kind(old, value):
            merged[key] = merge(old, value)
        else:
            merged[key] = value
    return merged


def _current_names(classes: Sequence[Any], table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """`current_names` where the dataclass is one of several; a table without `kind` may be for any of them."""
    classes = _of_kind(classes, table)
    renamed = dict(_renamed(classes, table, where))
    for key, value in renamed.items():
        inner = _inner(classes, key)
        if isinstance(value, Mapping) and inner:
            renamed[key] = _current_names(inner, value, f"{where}{key}.")
    return renamed


def _expand_kinds(classes: Sequence[Any], table: Mapping[str, Any]) -> dict[str, Any]:
    classes, expanded = _of_kind(classes, table), dict(table)
    for key, value in table.items():
        inner = _inner(classes, key)
        if isinstance(value, str) and value in _kinds(inner):
            expanded[key] = {"kind": value}
        elif isinstance(value, Mapping) and inner:
            expanded[key] = _expand_kinds(inner, value)
    return expanded


def _of_kind(classes: Sequence[Any], table: Mapping[str, Any]) -> list[Any]:
    """Those of the dataclasses that the table may be for."""
    return [c for c in classes if "kind" not in table or get_args(_hints(c).get("kind")) == (table["kind"],)]


def _inner(classes: Sequence[Any], key: str) -> list[Any]:
    """The dataclasses that the field `key` may hold."""
    hints = [_hints(c)[key] for c in classes if key in _hints(c)]
    return [variant for hint in hints for variant in _members(hint) if dataclasses.is_dataclass(variant)]


def _kinds(variants: Sequence[Any]) -> dict[str, Any]:
    """Dataclasses by their kind."""
    return {kind: variant for variant in variants if (kind := kind_of(variant)) is not None}


def _paths(cls: Any) -> set[str]:
    """The paths of all settings below a dataclass, in any of its variants."""
    below = {f"{key}.{path}" for key in _hints(cls) for inner in _inner([cls], key) for path in _paths(inner)}
    return {*_hints(cls), *below}


def _suggest_key(cls: Any, key: str, where: str) -> str:
    """A hint for an unknown key: the same name further inside, else a similar one."""
    deeper: dict[str, list[str]] = {}
    for path in sorted(_paths(cls) - set(_hints(cls))):
        deeper.setdefault(path.rpartition(".")[2], []).append(where + path)
    names = [key] if key in deeper else [] if nearest(key, _hints(cls)) else nearest(key, deeper)
    paths = [path for name in names for path in deeper[name]]
    return f"did you mean {' or '.join(map(repr, paths))}?" if paths else suggest(key, _hints(cls))


def _members(hint: Any) -> tuple[Any, ...]:
    """The types in a union, or the one type."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _renamed(classes: Sequence[Any], table: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """One table, for one of `classes`, with the current names of its keys."""
    names = {old: new for c in classes for old, new in getattr(c, "renamed", {}).items()}
    for old in [key for key in table if key in names and not any(key in _hints(c) for c in classes)]:
        new = names[old]
        if new in table:
            raise InvalidConfig(f"{where}{old} is the former name of {where}{new}, but both are given; drop '{old}'.")
        warnings.warn(f"{where}{old} is now {where}{new}; please use the new name.", FutureWarning, stacklevel=2)
        table = {new if key == old else key: value for key, value in table.items()}
    return table


# Variants beside those in the type of a field, by their kind.
_added: dict[tuple[type, str], dict[str, Any]] = {}


def add_variant(cls: type, key: str, variant: Any) -> None:
    """Lets a field hold another dataclass, which replaces one of the same kind that was added before.

    Args:
        cls: the dataclass that has the field.
        key: name of the field.
        variant: a dataclass with a `kind`.
    """
    _added.setdefault((cls, key), {})[kind_of(variant)] = variant
    _hints.cache_clear()


def kinds_of(cls: type, key: str) -> dict[str, Any]:
    """The dataclasses that the field `key` of a dataclass may hold, by their kind."""
    return _kinds(_inner([cls], key))


def kind_of(variant: Any) -> Any:
    """The kind of a dataclass; None if it has none."""
    return next(iter(get_args(_hints(variant).get("kind"))), None)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """The type of each field."""
    hints = get_type_hints(cls, include_extras=True)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    for key, hint in fields.items():
        for variant in _added.get((cls, key), {}).values():
            hint = hint | variant
        fields[key] = hint
    return fields


def _same_kind(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return "kind" not in a or "kind" not in b or a["kind"] == b["kind"]


def _value(hint: Any, value: Any, path: str) -> Any:
    if hint is Any:
        return value
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        checked, bounds = _value(arguments[0], value, path), arguments[1]
        if not bounds.least <= checked <= bounds.most:
            raise InvalidConfig(
                f"{path} = {value}, but it must be between {_shown(bounds.least)} and {_shown(bounds.most)}."
            )
        return checked
    if value == UNSET and hint is not str and origin is not Literal and type(None) not in arguments:
        raise InvalidConfig(f"{path} = {UNSET!r} unsets a setting, but this one is not optional; give it a value.")
    if origin in (Union, types.UnionType):
        if type(None) in arguments and (value is None or value == UNSET):
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
    if hint is int and type(value) is float and value.is_integer() and abs(value) < 2**53:
        return int(value)  # 1e3 is a float in TOML
    if type(value) is not hint:
        raise InvalidConfig(f"{path} = {value!r}, but it must be of type {hint.__name__}.")
    return value


def _shown(bound: int | float) -> str:
    return f"{bound:,}" if isinstance(bound, int) else f"{bound:g}"


def _variant(variants: list[Any], value: Any, path: str) -> Any:
    """An instance of the variant that `kind` names."""
    kinds = _kinds(variants)
    kind = value.get("kind") if isinstance(value, Mapping) else value
    if not isinstance(kind, str) or kind not in kinds:
        error = UnknownKind if isinstance(kind, str) else InvalidConfig
        raise error(f"{path}.kind = {kind!r} is not known; {suggest(str(kind), kinds)}")
    return parse(kinds[kind], value, path + ".")


def _tuple(arguments: tuple[Any, ...], value: Any, path: str) -> tuple:
    if not isinstance(value, (list, tuple)):
        raise InvalidConfig(f"{path} = {value!r}, but it must be a list, like [1, 2].")
    hints = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
    if len(hints) != len(value):
        raise InvalidConfig(f"{path} = {value!r}, but it must have {len(hints)} entries.")
    return tuple(_value(hint, v, f"{path}[{i}]") for i, (hint, v) in enumerate(zip(hints, value, strict=True)))
