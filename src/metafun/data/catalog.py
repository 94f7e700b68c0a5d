"""Tables by name: NAME/{features.npy,table.json} or NAME.npz, in the folders of $METAFUN_DATA or the user's cache."""

import dataclasses
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import platformdirs

from ..errors import InvalidData, suggest
from .arrays import npz_headers, read_npz
from .readers import FEATURES, LEO_TABLES, Division, existing, read_features
from .table import Table, fingerprint
from .table_folder import (
    check_table_name,
    finish_interrupted_save,
    is_table_name,
    is_writable,
    open_table_folder,
    read_description,
    save_table,
)

BUILT_IN = "glyphs"


@dataclass(frozen=True)
class CatalogEntry:
    """A table that has a name, and its header; its rows are not read.

    Args:
        name: the name to open it by.
        path: its folder or .npz file; None for the built-in table.
        shape: rows and columns, or None if unknown.
        dtype: the dtype of the rows, or None if unknown.
        classes: the number of classes in each split, or None if unknown.
        problem: why it cannot be opened.
    """

    name: str
    path: Path | None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    classes: dict[str, int] | None = None
    problem: str | None = None


def is_path(name_or_path: str) -> bool:
    """Whether a string is a path and not the name of a table: it has a separator or a drive, or ends in .npz.

    Separators and drives of Windows count on every system, since a name cannot contain them.
    """
    return (
        any(separator in name_or_path for separator in "/\\")
        or name_or_path.endswith(".npz")
        or bool(PureWindowsPath(name_or_path).drive)
    )


def absolute(name_or_path: str) -> str:
    """A path that is valid from any working directory; a name is not changed."""
    return str(_expand_user(name_or_path).resolve()) if is_path(name_or_path) else name_or_path


def cache_folder() -> Path:
    """The user's folder of tables, which is searched last."""
    return platformdirs.user_cache_path("metafun", appauthor=False) / "data"


def data_folders() -> list[Path]:
    """The folders in which tables are searched, in this order."""
    named = os.environ.get("METAFUN_DATA", "").split(os.pathsep)
    return [*(_expand_user(folder) for folder in named if folder), cache_folder()]


def destination(name: str) -> Path:
    """The folder for a new table `name`; InvalidData if another table of this name would be found first."""
    check_table_name(name)
    searched = data_folders()
    folder = next(filter(_can_be_written, (searched[0], cache_folder())), None)
    if folder is None:
        tried = " and ".join(map(str, dict.fromkeys((searched[0], cache_folder()))))
        raise InvalidData(f"{tried} cannot be written; name a writable folder in METAFUN_DATA.")
    for earlier in searched[: searched.index(folder) + 1]:
        found = _find_in(earlier, name)
        if name == BUILT_IN or (found is not None and found != folder / name):
            raise InvalidData(
                f"the name '{name}' is taken by {found or 'a built-in table'}; choose another with --name."
            )
    return folder


def locate(name_or_path: str) -> Path:
    """The folder or .npz file of a table."""
    if is_path(name_or_path):
        path = existing(_expand_user(name_or_path))
        if not (path / "table.json").is_file() and not (path.suffix == ".npz" and path.is_file()):
            raise InvalidData(f"{path} is not a stored table; store it with: metafun data import {path}")
        return path
    if is_table_name(name_or_path):
        for folder in data_folders():
            if (found := _find_in(folder, name_or_path)) is not None:
                return found
    check_table_name(name_or_path)
    raise _unknown(name_or_path)


def open_table(name_or_path: str) -> Table:
    """A table by its name, or by the path of its folder or .npz file."""
    if name_or_path == BUILT_IN:
        return _open_built_in()
    path = locate(name_or_path)
    if not path.is_file():
        return open_table_folder(path)
    about = path.stat()
    return _read_file(path, (about.st_mtime_ns, about.st_size))


@lru_cache(maxsize=1)
def _read_file(path: Path, version: tuple[int, int]) -> Table:
    """The table in an .npz file. Reading one takes seconds, and a protocol or a search opens the same one many times.

    Args:
        path: the file.
        version: its time and size, so that a changed file is read again.
    """
    return read_source(path, path.stem)


def read_source(path: Path, name: str, division: Division | None = None) -> Table:
    """Reads features in one of the forms of `readers`, or the drawings of Omniglot in an .npz file.

    Args:
        path: a file or folder.
        name: the name of the table.
        division: how to divide the classes if the source defines no splits.
    """
    drawings = path.suffix == ".npz" and path.is_file() and npz_headers(path, ("images",))
    if not drawings or npz_headers(path, FEATURES):
        return read_features(path, name, division)
    from .omniglot import omniglot_from_arrays  # needs Pillow, which features do not

    arrays = read_npz(path, ("images", "labels", "classes"))
    if len(arrays) < 3:
        raise InvalidData(f"{path} has images; it needs labels [rows] and the names of the classes too.")
    return omniglot_from_arrays(arrays["images"], arrays["labels"], arrays["classes"], name)


def verify(name_or_path: str) -> Table:
    """Reads a table in full; InvalidData if a row is not finite or the content differs from what was imported."""
    table = open_table(name_or_path)
    for rows in table.classes:
        if not np.isfinite(table.features[rows.start : rows.start + rows.count]).all():
            raise InvalidData(f"'{table.name}': class '{rows.name}' has rows that are not finite; import it again.")
    found = fingerprint(table.features, table.classes)
    if found != table.fingerprint:
        raise InvalidData(
            f"'{table.name}' differs from what was imported: SHA-256 {found[:12]}…, "
            f"expected {table.fingerprint[:12]}…; import it again with --overwrite."
        )
    return table


def table_facts(name_or_path: str) -> dict[str, Any]:
    """Size, classes and origin of a table, ready for JSON."""
    table = open_table(name_or_path)
    path = None if name_or_path == BUILT_IN else locate(name_or_path)
    described = read_description(path) if path is not None and path.is_dir() else None
    least, most = (choose(table.classes, key=lambda rows: rows.count) for choose in (min, max))
    rows = table.row_counts()
    return {
        "name": table.name,
        "rows": len(table.features),
        "columns": table.features.shape[1],
        "dtype": table.features.dtype.name,
        **{split: {"classes": n, "rows": rows[split]} for split, n in table.class_counts().items()},
        "smallest": {"rows": least.count, "class": least.name},
        "largest": {"rows": most.count, "class": most.name},
        "source": described.source if described else "built in" if path is None else str(path),
        "imported": described.imported if described else None,
        "where": str(path.resolve()) if path else None,
        "fingerprint": table.fingerprint,
    }


def list_tables() -> list[CatalogEntry]:
    """Every table that has a name, in the order of the search."""
    made = _find_in(cache_folder(), _built_in_name())
    built_in = (
        CatalogEntry(BUILT_IN, None) if made is None else dataclasses.replace(_inspect(BUILT_IN, made), path=None)
    )
    entries = {BUILT_IN: built_in}
    for folder in data_folders():
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            name = path.name.removesuffix(".npz")
            is_built_in = folder == cache_folder() and name.startswith(f"{BUILT_IN}-")
            if is_table_name(name) and name not in entries and not is_built_in and _find_in(folder, name) == path:
                entries[name] = _inspect(name, path)
    return list(entries.values())


def _inspect(name: str, path: Path) -> CatalogEntry:
    try:
        if path.is_file():
            headers = npz_headers(path, (*FEATURES, "images"))
            shape, dtype = next(headers[key] for key in (*FEATURES, "images") if key in headers)
            return CatalogEntry(name, path, shape, dtype.name)
        table = open_table_folder(path)
        return CatalogEntry(name, path, table.features.shape, table.features.dtype.name, table.class_counts())
    except StopIteration:
        return CatalogEntry(name, path, problem=f"no features under {', '.join(FEATURES)}")
    except (InvalidData, OSError) as error:
        return CatalogEntry(name, path, problem=str(error))


def _find_in(folder: Path, name: str) -> Path | None:
    finish_interrupted_save(folder, name)
    if (folder / name / "table.json").is_file():
        return folder / name
    return folder / f"{name}.npz" if (folder / f"{name}.npz").is_file() else None


def _can_be_written(folder: Path) -> bool:
    """Whether `folder` is writable or, if missing, can be created."""
    return is_writable(next(path for path in (folder, *folder.absolute().parents) if path.exists()))


def _expand_user(path: str) -> Path:
    return Path(os.path.expanduser(path))  # keeps the ~ of an unknown user, for which Path.expanduser fails


def _built_in_name() -> str:
    from . import glyphs  # imported late: drawing needs libraries that nothing else here needs

    return f"{BUILT_IN}-{glyphs.VERSION}"


def _open_built_in() -> Table:
    from . import glyphs

    name, folder = _built_in_name(), cache_folder()
    if _find_in(folder, name) is None:
        table = glyphs.make()
        try:
            save_table(dataclasses.replace(table, name=name), folder, "built in")
        except (OSError, InvalidData):  # the disk is full, or another process stored the same table first
            return table
    return dataclasses.replace(open_table_folder(folder / name), name=BUILT_IN)


def _unknown(name: str) -> InvalidData:
    remedy = f"metafun data import FILE --name {name}"
    if name in LEO_TABLES:
        remedy = f"metafun data fetch leo --only {name}"
    if name == "omniglot":
        remedy = "metafun data fetch omniglot"
    known = [entry.name for entry in list_tables()]
    searched = ", ".join(map(str, data_folders()))
    return InvalidData(f"no data called '{name}' in {searched}; {suggest(name, known)} To get it: {remedy}")
