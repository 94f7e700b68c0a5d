"""Parts of one's own: dataclasses that become kinds of a setting, and the Python files that register them."""

import hashlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidConfig, MetaFunError, suggest
from ..schema import add_variant, kind_of, kinds_of
from .config import Config
from .model import MetaFunConfig

# The settings that a part of one's own can be a kind of.
SETTINGS: Mapping[str, tuple[type, str]] = {
    "model": (Config, "model"),
    "embedding": (Config, "embedding"),
    **{f"model.{name}": (MetaFunConfig, name) for name in ("initial", "pooling", "update", "decoder")},
}

_registered: dict[tuple[str, str], type] = {}
_loaded: list[Path] = []


def register_part(setting: str, part: type) -> None:
    """Makes a class a kind of a setting, in files, on the command line and in checkpoints.

    Args:
        setting: one of `SETTINGS`, such as "model.pooling".
        part: a frozen dataclass with the method `build` of the other kinds and the field `kind: Literal["name"] =
            "name"`.
    """
    if setting not in SETTINGS:
        raise InvalidConfig(f"no part can be registered for '{setting}'; {suggest(setting, SETTINGS)}")
    name = getattr(part, "__qualname__", repr(part))
    if not is_dataclass(part) or not part.__dataclass_params__.frozen or not hasattr(part, "build"):  # type: ignore[attr-defined]
        raise InvalidConfig(f"{name} is not a part: it must be a frozen dataclass with a method build.")
    if not isinstance(kind := kind_of(part), str):
        raise InvalidConfig(f'{name} has no kind; give it the field kind: Literal["…"] = "…".')
    there = kinds_of(*SETTINGS[setting]).get(kind)
    if there is not None and not _is_same(there, _registered.get((setting, kind)), part):
        raise InvalidConfig(f"{setting}.kind = '{kind}' exists already; choose another name for that of {name}.")
    _registered[setting, kind] = part
    add_variant(*SETTINGS[setting], part)


def loaded_plugins() -> Sequence[Path]:
    """The files that `load_plugin` has run in this process, which other processes need too."""
    return tuple(_loaded)


def _is_same(there: type, registered: type | None, part: type) -> bool:
    """Whether a registered class is defined again, as in a notebook."""
    return there is registered and (there.__module__, there.__qualname__) == (part.__module__, part.__qualname__)


def load_plugin(path: Path) -> None:
    """Runs a Python file that calls `register_part`.

    The file can do anything that Python can. Load only what the user has named.

    Args:
        path: the file.
    """
    if path.suffix != ".py" or not path.is_file():
        raise InvalidConfig(f"{path} is no plugin; expected a Python file, ending in .py, that calls register_part.")
    file, before = os.path.abspath(path), dict(_registered)
    # Plugins in two folders may have one file name.
    name = f"metafun_plugin_{path.stem}_{hashlib.sha256(os.fsencode(file)).hexdigest()[:16]}"
    spec: Any = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their types there
    try:
        spec.loader.exec_module(module)
    except MetaFunError as error:
        raise InvalidConfig(f"{path}: {error}") from error
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
        line = f", line {lines[-1]}" if lines else ""
        raise InvalidConfig(f"{path}{line}: {type(error).__name__}: {error}") from error
    if _registered == before:
        raise InvalidConfig(f'{path} registers no part; end it with register_part("model.pooling", …) or the like.')
    _loaded.append(Path(file))
