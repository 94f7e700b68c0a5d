"""Tables by name: NAME/{features.npy,table.json} or NAME.npz, in the folders of $METAFUN_DATA and in the cache."""

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InvalidData, suggest
from .arrays import npz_headers, read_npz
from .readers import FEATURES, LEO_TABLES, Division, existing, read
from .table import SPLITS, Table, fingerprint
from .table_folder import check_name, is_name, open_stored, recover, save

BUILT_IN = "glyphs"


@dataclass(frozen=True)
class Entry:
    """A table that can be opened by its name, as far as a glance shows; `problem` says why it cannot after all."""

    name: str
    path: Path | None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    classes: dict[str, int] | None = None
    problem: str | None = None


def cache() -> Path:
    """The user's own folder, which is looked in last."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "metafun" / "data"


def folders() -> list[Path]:
    """Where tables are looked for, in this order."""
    named = os.environ.get("METAFUN_DATA", "").split(os.pathsep)
    return [*(_expanded(folder) for folder in named if folder), cache()]


def destination(name: str) -> Path:
    """The folder that a new table `name` goes into; refuses a name that another folder would answer to first."""
    check_name(name)
    folder = next(filter(_writable, (folders()[0], cache())), None)
    if folder is None:
        tried = " and ".join(map(str, dict.fromkeys((folders()[0], cache()))))
        raise InvalidData(f"{tried} cannot be written; name a folder that can in METAFUN_DATA.")
    for earlier in folders()[: folders().index(folder) + 1]:
        found = _lookup(earlier, name)
        if name == BUILT_IN or (found is not None and found != folder / name):
            raise InvalidData(
                f"the name '{name}' is taken by {found or 'a built-in table'}; choose another with --name."
            )
    return folder


def locate(name_or_path: str) -> Path:
    """The stored folder or .npz file of a table."""
    if os.sep in name_or_path or name_or_path.endswith(".npz"):
        path = existing(_expanded(name_or_path))
        if not (path / "table.json").is_file() and not (path.suffix == ".npz" and path.is_file()):
            raise InvalidData(f"{path} is not a stored table; make it one with: metafun data import {path}")
        return path
    check_name(name_or_path)
    for folder in folders():
        if (found := _lookup(folder, name_or_path)) is not None:
            return found
    raise _unknown(name_or_path)


def open_table(name_or_path: str) -> Table:
    """A table by its name, or by the path of its folder or .npz file."""
    if name_or_path == BUILT_IN:
        return _built_in()
    path = locate(name_or_path)
    return read_source(path, path.stem) if path.is_file() else open_stored(path)


def read_source(path: Path, name: str, division: Division | None = None) -> Table:
    """What people have: features in one of the forms of `readers`, or the drawings of Omniglot in an .npz file."""
    drawings = path.suffix == ".npz" and path.is_file() and npz_headers(path, ("images",))
    if not drawings or npz_headers(path, FEATURES):
        return read(path, name, division)
    from .omniglot import omniglot_from_arrays  # needs Pillow, which features do not

    arrays = read_npz(path, ("images", "labels", "classes"))
    if len(arrays) < 3:
        raise InvalidData(f"{path} has images; it needs labels [rows] and the names of the classes too.")
    return omniglot_from_arrays(arrays["images"], arrays["labels"], arrays["classes"], name)


def verify(name_or_path: str) -> Table:
    """The table, if all rows are finite and, where it is a stored one, the content is what was imported."""
    table = open_table(name_or_path)
    for rows in table.classes:
        if not np.isfinite(table.features[rows.start : rows.start + rows.count]).all():
            raise InvalidData(f"'{table.name}': class '{rows.name}' has rows that are not finite; import it again.")
    found = fingerprint(table.features, table.classes)
    if found != table.fingerprint:
        raise InvalidData(
            f"'{table.name}' is not what was imported: SHA-256 {found[:12]}…, expected {table.fingerprint[:12]}…; "
            "import it again with --overwrite."
        )
    return table


def list_tables() -> list[Entry]:
    """Every table that has a name, in the order in which folders are looked in."""
    made = _lookup(cache(), _built_in_name())
    built_in = Entry(BUILT_IN, None) if made is None else dataclasses.replace(_entry(BUILT_IN, made), path=None)
    entries = {BUILT_IN: built_in}
    for folder in folders():
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            name = path.name.removesuffix(".npz")
            versioned = folder == cache() and name.startswith(f"{BUILT_IN}-")
            if is_name(name) and name not in entries and not versioned and _lookup(folder, name) == path:
                entries[name] = _entry(name, path)
    return list(entries.values())


def _entry(name: str, path: Path) -> Entry:
    try:
        if path.is_file():
            headers = npz_headers(path, (*FEATURES, "images"))
            shape, dtype = next(headers[key] for key in (*FEATURES, "images") if key in headers)
            return Entry(name, path, shape, dtype.name)
        table = open_stored(path)
        counts = {split: sum(rows.split == split for rows in table.classes) for split in SPLITS}
        return Entry(name, path, table.features.shape, table.features.dtype.name, counts)
    except StopIteration:
        return Entry(name, path, problem=f"no features under {', '.join(FEATURES)}")
    except (InvalidData, OSError) as error:
        return Entry(name, path, problem=str(error))


def _lookup(folder: Path, name: str) -> Path | None:
    recover(folder, name)
    if (folder / name / "table.json").is_file():
        return folder / name
    return folder / f"{name}.npz" if (folder / f"{name}.npz").is_file() else None


def _writable(folder: Path) -> bool:
    """Whether `folder` can be written, or made in the nearest folder above that is there."""
    return os.access(next(path for path in (folder, *folder.absolute().parents) if path.exists()), os.W_OK)


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # of an unknown user it leaves the ~ in place, and Path's own fails


def _built_in_name() -> str:
    from . import glyphs  # not before they are asked for: drawing needs libraries that nothing else here needs

    return f"{BUILT_IN}-{glyphs.VERSION}"


def _built_in() -> Table:
    from . import glyphs

    name, folder = _built_in_name(), cache()
    if _lookup(folder, name) is None:
        table = glyphs.make()
        try:
            save(dataclasses.replace(table, name=name), folder, "built in")
        except (OSError, InvalidData):  # no room, or another process was first: this one is as good
            return table
    return dataclasses.replace(open_stored(folder / name), name=BUILT_IN)


def _unknown(name: str) -> InvalidData:
    remedy = f"metafun data import FILE --name {name}"
    if name in LEO_TABLES:
        remedy = f"metafun data fetch leo --only {name}"
    if name == "omniglot":
        remedy = "metafun data fetch omniglot"
    known = [entry.name for entry in list_tables()]
    looked = ", ".join(map(str, folders()))
    return InvalidData(f"no data called '{name}' in {looked}; {suggest(name, known)} To get it: {remedy}")
