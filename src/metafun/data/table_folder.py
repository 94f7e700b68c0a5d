"""A stored table: a folder with features.npy, which is memory-mapped, and table.json."""

import dataclasses
import glob
import json
import math
import os
import re
import shutil
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Literal

import numpy as np

from ..errors import InvalidData
from ..files import locked
from ..schema import parse
from .arrays import map_npy
from .table import CONTROL, SPLITS, ClassRows, Table, printable

# Windows refuses these file names, with any suffix.
WINDOWS_DEVICES = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}


@dataclass(frozen=True)
class TableDescription:
    """The content of table.json; `source` is the file or address of the original, `imported` a date."""

    format: Literal["metafun-table-1"]
    name: str
    dtype: Literal["uint8", "float16", "float32"]
    shape: tuple[int, int]
    classes: tuple[ClassRows, ...]
    fingerprint: str
    source: str
    imported: str
    image: tuple[int, int] | None = None


# No import takes longer.
SECONDS_OF_AN_IMPORT = 24 * 3600
# Of table.json; one of a million classes has fewer.
MAX_DESCRIPTION_BYTES = 2**28


def is_table_name(name: str) -> bool:
    """Whether `name` is a visible file name that cannot lead out of its folder."""
    return re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name) is not None and not name.endswith(".npz")


def check_table_name(name: str) -> None:
    """Refuses a name that is not a file name on Linux, macOS and Windows alike."""
    if not is_table_name(name):
        near = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-").removesuffix(".npz")[:100]
        raise InvalidData(
            f"{name!r} cannot be a name; use up to 100 of A-Z a-z 0-9 . _ - with no dot first and no .npz last"
            + (f", as in --name {near}" if is_table_name(near) else ".")
        )
    if name.endswith(".") or name.partition(".")[0].lower() in WINDOWS_DEVICES:
        raise InvalidData(f"{name!r} cannot be a name on Windows; choose another, as in --name data-{name.rstrip('.')}")


def save_table(table: Table, folder: Path, source: str, *, overwrite: bool = False) -> None:
    """Writes `folder`/NAME atomically: an old table stays until the new one is complete.

    Args:
        table: the table; its name becomes the name of the folder.
        folder: the folder to write into; it is created if missing.
        source: where the table came from, for `metafun data info`.
        overwrite: replace a table of the same name instead of raising InvalidData.
    """
    check_table_name(table.name)
    target = folder / table.name
    _check_absent(target, overwrite)
    temporary = folder / f".{table.name}.{uuid.uuid4().hex}"  # not tempfile: its folders are private to the user
    temporary.mkdir(parents=True)
    try:
        _write_files(table, source, temporary)
        with locked(folder, wait=True):
            _finish_replacement(folder, table.name)
            _remove_leftovers(folder, table.name, temporary)
            _check_absent(target, overwrite)  # another process may have written it meanwhile
            try:
                if os.path.lexists(target):
                    os.rename(target, _backup_path(folder, table.name))
                os.rename(temporary, target)
            finally:
                _finish_replacement(folder, table.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def finish_interrupted_save(folder: Path, name: str) -> None:
    """Completes or undoes a `save_table` that was killed; waits for one that is running.

    Args:
        folder: the folder of the table.
        name: the name of the table.
    """
    if os.path.lexists(_backup_path(folder, name)) and is_writable(folder):
        with locked(folder, wait=True):
            _finish_replacement(folder, name)


def is_writable(folder: Path) -> bool:
    """Whether files can be created in `folder`, found by creating one: on Windows os.access ignores permissions."""
    probe = folder / f".{uuid.uuid4().hex}"
    try:
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def read_description(folder: Path) -> TableDescription:
    """The checked content of the table.json in `folder`, which is not trusted."""
    path = folder / "table.json"
    try:
        if (size := path.stat().st_size) > MAX_DESCRIPTION_BYTES:
            raise ValueError(f"it has {size:,} bytes")
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        found = parse(TableDescription, content)
        if any(map(CONTROL.search, (found.source, found.imported, *(rows.name for rows in found.classes)))):
            raise ValueError("it has control characters")
        return found
    except (ValueError, TypeError, RecursionError) as error:
        message = f"{path} does not describe a table ({error}); import the table again."
        raise InvalidData(printable(message)) from None


def open_table_folder(folder: Path) -> Table:
    """The table in `folder`, if its two files agree; the rows are not read."""
    described, features = read_description(folder), map_npy(folder / "features.npy")
    if problem := _find_damage(described, features):
        raise InvalidData(f"{folder} is damaged: {problem}; import the table again.")
    return Table(folder.name, features, described.classes, described.fingerprint, described.image)


def _find_damage(described: TableDescription, features: np.ndarray) -> str | None:
    """The first disagreement between table.json and features.npy."""
    classes, image, (rows, columns) = described.classes, described.image, described.shape
    ends = list(accumulate((part.count for part in classes), initial=0))
    problems = {
        f"features.npy is {features.dtype} {features.shape}, not {described.dtype} {described.shape}": (
            (features.dtype.name, features.shape) != (described.dtype, described.shape)
        ),
        "its classes do not divide the rows": (
            [part.start for part in classes] != ends[:-1]
            or ends[-1] != rows
            or min((part.count for part in classes), default=0) < 1
        ),
        "it has no columns": columns < 1,
        "two classes have the same name": len({part.name for part in classes}) < len(classes),
        "a split is not train, val or test": any(part.split not in SPLITS for part in classes),
        "its fingerprint is not a SHA-256": not re.fullmatch("[0-9a-f]{64}", described.fingerprint),
        "a row does not have the size of its image": (
            image is not None and (min(image) < 1 or columns not in (math.prod(image), 3 * math.prod(image)))
        ),
    }
    return next((problem for problem, found in problems.items() if found), None)


def _backup_path(folder: Path, name: str) -> Path:
    """Where the old table is while the new one takes its place."""
    return folder / f".{name}.old"


def _finish_replacement(folder: Path, name: str) -> None:
    """Removes the old table if the new one is in place, and restores it if not."""
    target, backup = folder / name, _backup_path(folder, name)
    if not os.path.lexists(target):
        if os.path.lexists(backup):
            os.rename(backup, target)
    elif backup.is_dir() and not backup.is_symlink():
        shutil.rmtree(backup, ignore_errors=True)
    else:
        backup.unlink(missing_ok=True)


def _remove_leftovers(folder: Path, name: str, own: Path) -> None:
    """Removes the folders of imports that were killed; those of today may belong to imports that are running."""
    for path in folder.glob(f".{glob.escape(name)}.{'[0-9a-f]' * 32}"):
        if path != own and time.time() - path.stat().st_mtime > SECONDS_OF_AN_IMPORT:
            shutil.rmtree(path, ignore_errors=True)


def _check_absent(target: Path, overwrite: bool) -> None:
    if os.path.lexists(target) and not overwrite:
        raise InvalidData(f"{target} exists already; replace it with --overwrite, or choose another --name.")


def _write_files(table: Table, source: str, folder: Path) -> None:
    content = {
        "format": "metafun-table-1",
        "name": table.name,
        "dtype": table.features.dtype.name,
        "shape": table.features.shape,
        "image": table.image,
        "fingerprint": table.fingerprint,
        "source": printable(source),
        "imported": datetime.now(UTC).date().isoformat(),
        "classes": [dataclasses.asdict(rows) for rows in table.classes],
    }
    with open(folder / "features.npy", "wb") as features:
        np.save(features, np.ascontiguousarray(table.features), allow_pickle=False)
        os.fsync(features.fileno())
    with open(folder / "table.json", "w", encoding="utf-8") as text:
        json.dump({key: value for key, value in content.items() if value is not None}, text, indent=1)
        text.flush()
        os.fsync(text.fileno())
