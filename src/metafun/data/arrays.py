"""Untrusted .npy and .npz files: a header is checked before memory is allocated for its array."""

import contextlib
import io
import math
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import InvalidData
from ..files import require_file
from .table import printable, shortened

# A table must fit into memory; 1.3 million rows of 2048 columns in float32 do.
MAX_BYTES = 16 * 2**30
# Deflate reaches 1000:1 on zeros; features stay below 10:1, drawings below 50:1.
MAX_RATIO = 200
# NumPy's own headers have a few hundred bytes.
MAX_HEADER_BYTES = 2**16
# Booleans, integers, floats, bytes and text. No objects, no structures.
PLAIN_KINDS = "biufSU"


def map_npy(path: Path) -> np.ndarray:
    """The array of an .npy file, memory-mapped read-only."""
    if not path.is_file():  # opening a pipe would block
        raise InvalidData(f"{path} does not exist or is not a file.")
    with parsing(path, "an .npy file as np.save writes it"):
        with open(path, "rb") as file:
            _read_header(file)
        return np.lib.format.open_memmap(path, mode="r")


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; a name that the file lacks is absent."""
    with _open_npz(path, names) as (archive, members):
        return {name: _read_array(archive, info) for name, info in members.items()}


def npz_headers(path: Path, names: Sequence[str]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of the arrays that `read_npz` would read."""
    headers = {}
    with _open_npz(path, names) as (archive, members):
        for name, info in members.items():
            with archive.open(info) as file:
                headers[name] = _read_header(file)[:2]
    return headers


@contextlib.contextmanager
def parsing(path: Path, expected: str) -> Iterator[None]:
    """Turns every error into InvalidData: a damaged or hostile file can make a parser fail in any way.

    Args:
        path: the file; the message begins with it.
        expected: the form the file should have; the message ends with it.
    """
    try:
        yield
    except OSError:
        raise
    except MemoryError:
        raise InvalidData(printable(f"{path} does not fit into memory.")) from None
    except Exception as error:
        reason = shortened(str(error).rstrip(".") or type(error).__name__)
        raise InvalidData(printable(f"{path} is refused: {reason}; expected {expected}.")) from None


def check_unpacked_size(info: zipfile.ZipInfo, path: Path) -> None:
    """Refuses a member of the zip file `path` that would unpack to far more than a table can have."""
    packed = min(info.compress_size, path.stat().st_size)  # the zip directory may overstate it
    if info.file_size > MAX_BYTES or info.file_size > MAX_RATIO * packed + 2**20:
        raise InvalidData(
            f"'{info.filename}' would unpack from {packed:,} to {info.file_size:,} bytes; "
            f"at most {MAX_BYTES // 2**30} GiB and {MAX_RATIO}:1 are accepted"
        )


@contextlib.contextmanager
def _open_npz(path: Path, names: Sequence[str]) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    require_file(path)
    with parsing(path, "an .npz file as np.savez writes it"), zipfile.ZipFile(path) as archive:
        found = {info.filename: info for info in archive.infolist()}
        members = {name: found[f"{name}.npy"] for name in names if f"{name}.npy" in found}
        for info in members.values():
            check_unpacked_size(info, path)
        yield archive, members


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        shape, dtype, end = _read_header(file)
        promised, present = math.prod(shape) * dtype.itemsize, info.file_size - end
    if promised != present:
        raise InvalidData(f"'{info.filename}' promises {promised:,} bytes but has {present:,}")
    with archive.open(info) as file:
        return with_known_characters(np.lib.format.read_array(file, allow_pickle=False))


def with_known_characters(array: np.ndarray) -> np.ndarray:
    """The array; an error if it holds text beyond the last character of Unicode, which Python cannot represent."""
    if array.dtype.kind == "U":
        codes = np.ascontiguousarray(array).reshape(-1).view(np.dtype(np.uint32).newbyteorder(array.dtype.byteorder))
        if codes.max(initial=0) > sys.maxunicode:
            raise InvalidData("an array of text has characters that do not exist")
    return array


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape and dtype of an array, and the offset of its data."""
    start = io.BytesIO(file.read(MAX_HEADER_BYTES))
    version = np.lib.format.read_magic(start)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(start)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(start)
    else:
        raise InvalidData(f"version {version} of the .npy format is not for plain arrays")
    if dtype.kind not in PLAIN_KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise InvalidData(f"an array of dtype {dtype}; save numbers, and text as array.astype(str)")
    if min(shape, default=0) < 0 or dtype.itemsize == 0:
        raise InvalidData(f"an array of shape {shape} with {dtype.itemsize} bytes per entry")
    return shape, dtype, start.tell()
