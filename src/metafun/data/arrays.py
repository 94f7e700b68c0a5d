"""NumPy's own files read without trust: what a header promises is checked before memory is taken for it."""

import contextlib
import io
import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import InvalidData
from .table import printable

# A table has to fit into memory; 1.3 million rows of 2048 columns in full precision do.
LARGEST = 16 * 2**30
# Deflate reaches 1000:1 on zeros; features stay below 10:1, drawings below 50:1.
RATIO = 200
# NumPy's own headers have some hundred bytes.
LONGEST_HEADER = 2**16
# Booleans, integers, floats, bytes and text: what a table is made of. No objects, no structures.
KINDS = "biufSU"


def map_npy(path: Path) -> np.ndarray:
    """The array of an .npy file, read from disk as it is used."""
    if not path.is_file():  # to open a pipe would wait for its other end
        raise InvalidData(f"{path} is not there or not a file.")
    with refused(path, "an .npy file as np.save writes it"):
        with open(path, "rb") as file:
            _header(file)
        return np.lib.format.open_memmap(path, mode="r")


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Those arrays of an .npz file that are called one of `names`."""
    with _open(path, names) as (archive, members):
        return {name: _read(archive, info) for name, info in members.items()}


def npz_headers(path: Path, names: Sequence[str]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of those arrays."""
    headers = {}
    with _open(path, names) as (archive, members):
        for name, info in members.items():
            with archive.open(info) as file:
                headers[name] = _header(file)[:2]
    return headers


@contextlib.contextmanager
def refused(path: Path, expected: str) -> Iterator[None]:
    """Around the parsing of a file, and nothing else: a damaged or hostile one may fail in any way there is."""
    try:
        yield
    except OSError:
        raise
    except MemoryError:
        raise InvalidData(printable(f"{path} does not fit into memory.")) from None
    except Exception as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise InvalidData(printable(f"{path} is refused: {reason}; expected {expected}.")) from None


def check_member(info: zipfile.ZipInfo, path: Path) -> None:
    """Refuses a member of the zip file `path` that would unpack to far more than a table can be."""
    packed = min(info.compress_size, path.stat().st_size)  # a directory may promise more than there is
    if info.file_size > LARGEST or info.file_size > RATIO * packed + 2**20:
        raise InvalidData(
            f"'{info.filename}' would unpack from {packed:,} to {info.file_size:,} bytes; "
            f"at most {LARGEST // 2**30} GiB and {RATIO}:1 are accepted"
        )


@contextlib.contextmanager
def _open(path: Path, names: Sequence[str]) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """An .npz file and those of its members that are called one of `names`."""
    with refused(path, "an .npz file as np.savez writes it"), zipfile.ZipFile(path) as archive:
        found = {info.filename: info for info in archive.infolist()}
        members = {name: found[f"{name}.npy"] for name in names if f"{name}.npy" in found}
        for info in members.values():
            check_member(info, path)
        yield archive, members


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as file:
        shape, dtype, end = _header(file)
        size, brought = math.prod(shape) * dtype.itemsize, info.file_size - end
    if size != brought:
        raise InvalidData(f"'{info.filename}' promises {size:,} bytes and brings {brought:,}")
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype, int]:
    """Shape and dtype of an array, and where its data begin."""
    start = io.BytesIO(file.read(LONGEST_HEADER))
    version = np.lib.format.read_magic(start)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(start)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(start)
    else:
        raise InvalidData(f"version {version} of the .npy format is not for plain arrays")
    if dtype.kind not in KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise InvalidData(f"an array of dtype {dtype}; save numbers, and text as array.astype(str)")
    if min(shape, default=0) < 0 or dtype.itemsize == 0:
        raise InvalidData(f"an array of shape {shape} and {dtype.itemsize} bytes an entry")
    return shape, dtype, start.tell()
