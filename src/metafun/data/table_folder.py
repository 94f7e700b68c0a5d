"""The stored form of a table: a folder with features.npy, read from disk as it is used, and table.json."""

import dataclasses
import json
import math
import os
import re
import shutil
import tempfile
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


@dataclass(frozen=True)
class Description:
    """table.json: what features.npy holds and where it came from."""

    format: Literal["metafun-table-1"]
    name: str
    dtype: Literal["uint8", "float16", "float32"]
    shape: tuple[int, int]
    classes: tuple[ClassRows, ...]
    fingerprint: str
    source: str
    imported: str
    image: tuple[int, int] | None = None


def is_name(name: str) -> bool:
    """Names are file names that cannot lead out of a folder."""
    return re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}", name) is not None and not name.endswith(".npz")


def check_name(name: str) -> None:
    if not is_name(name):
        near = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-").removesuffix(".npz")[:100]
        raise InvalidData(
            f"{name!r} cannot be a name; use up to 100 of A-Z a-z 0-9 . _ - with no dot first and no .npz last"
            + (f", as in --name {near}" if is_name(near) else ".")
        )


def save(table: Table, folder: Path, source: str, *, overwrite: bool = False) -> None:
    """Writes `folder`/NAME. It is whole or not there; an old one stays until the new one is complete."""
    check_name(table.name)
    target = folder / table.name
    _check_free(target, overwrite)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{table.name}.", dir=folder))
    try:
        _write(table, source, temporary)
        with locked(folder, wait=True):
            _settle(folder, table.name)
            _check_free(target, overwrite)  # another process may have been faster
            try:
                if os.path.lexists(target):
                    os.rename(target, _aside(folder, table.name))
                os.rename(temporary, target)
            finally:
                _settle(folder, table.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def recover(folder: Path, name: str) -> None:
    """Ends what a `save` that was killed had begun. One that is at work is waited for."""
    if os.path.lexists(_aside(folder, name)) and os.access(folder, os.W_OK):
        with locked(folder, wait=True):
            _settle(folder, name)


def _settle(folder: Path, name: str) -> None:
    """The old table goes if the new one is there, and comes back if not."""
    target, aside = folder / name, _aside(folder, name)
    if os.path.lexists(target):
        _remove(aside)
    elif os.path.lexists(aside):
        os.rename(aside, target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _check_free(target: Path, overwrite: bool) -> None:
    if os.path.lexists(target) and not overwrite:
        raise InvalidData(f"{target} exists already; replace it with --overwrite, or choose another --name.")


def describe(folder: Path) -> Description:
    """The table.json of a stored table, read without trust."""
    path = folder / "table.json"
    try:
        content = json.loads(path.read_bytes())
        if not isinstance(content, dict):
            raise TypeError("it is not a JSON object")
        found = parse(Description, content)
        if any(map(CONTROL.search, (found.source, found.imported, *(rows.name for rows in found.classes)))):
            raise ValueError("control characters in it")
        return found
    except (ValueError, TypeError, RecursionError) as error:  # a missing key is a TypeError
        message = f"{path} does not describe a table ({error}); import the table again."
        raise InvalidData(printable(message)) from None


def open_stored(folder: Path) -> Table:
    """The table in `folder`, if its two files agree; the rows themselves are not read."""
    described, features = describe(folder), map_npy(folder / "features.npy")
    classes, (rows, columns) = described.classes, described.shape
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
        "a class is named twice": len({part.name for part in classes}) < len(classes),
        "a split is not train, val or test": any(part.split not in SPLITS for part in classes),
        "its fingerprint is not a SHA-256": not re.fullmatch("[0-9a-f]{64}", described.fingerprint),
        "its image is not a row": (
            described.image is not None
            and (
                min(described.image) < 1 or columns not in (math.prod(described.image), 3 * math.prod(described.image))
            )
        ),
    }
    for problem, there in problems.items():
        if there:
            raise InvalidData(f"{folder} is damaged: {problem}; import the table again.")
    return Table(folder.name, features, classes, described.fingerprint, described.image)


def _aside(folder: Path, name: str) -> Path:
    return folder / f".{name}.old"


def _write(table: Table, source: str, folder: Path) -> None:
    folder.chmod(0o755)  # a temporary folder is private, and a shared folder of data is for others too
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
