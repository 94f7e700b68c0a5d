"""NumPy's own files read without trust: what a header promises is checked before memory is taken for it."""

import contextlib
import math
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from ..errors import InvalidData
from .pickles import KINDS

# A table has to fit into memory; 1.3 million rows of 2048 columns in full precision do.
LARGEST = 16 * 2**30
# Deflate reaches 1000:1 on zeros; features stay below 10:1, drawings below 50:1.
RATIO = 200


def map_npy(path: Path) -> np.ndarray:
    """The array of an .npy file, read from disk as it is used."""
    with refused(path):
        with open(path, "rb") as file:
            _header(file)
        return np.lib.format.open_memmap(path, mode="r")


def read_npz(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Those arrays of an .npz file that are called one of `names`."""
    with refused(path), zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        return {name: _read(archive, info) for name in names if (info := members.get(f"{name}.npy")) is not None}


def npz_headers(path: Path, names: Sequence[str]) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """Shape and dtype of those arrays."""
    headers = {}
    with refused(path), zipfile.ZipFile(path) as archive:
        for name in {f"{name}.npy" for name in names} & set(archive.namelist()):
            with archive.open(name) as file:
                headers[name.removesuffix(".npy")] = _header(file)
    return headers


@contextlib.contextmanager
def refused(path: Path) -> Iterator[None]:
    """Says which file it was. A damaged or hostile one may fail in any way there is."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise InvalidData(f"{path} is refused: {error or type(error).__name__}") from None


def check_member(info: zipfile.ZipInfo) -> None:
    """Refuses a member of a zip file that would unpack to far more than a table can be."""
    if info.file_size > LARGEST or info.file_size > RATIO * info.compress_size + 2**20:
        raise InvalidData(
            f"'{info.filename}' would unpack from {info.compress_size:,} to {info.file_size:,} bytes; "
            f"at most {LARGEST // 2**30} GiB and {RATIO}:1 are accepted."
        )


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    check_member(info)
    with archive.open(info) as file:
        shape, dtype = _header(file)
        size, brought = math.prod(shape) * dtype.itemsize, info.file_size - file.tell()
    if size != brought:
        raise InvalidData(f"'{info.filename}' promises {size:,} bytes and brings {brought:,}.")
    with archive.open(info) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise InvalidData(f"version {version} of the .npy format is not for plain arrays.")
    if dtype.kind not in KINDS or dtype.names is not None or dtype.subdtype is not None:
        raise InvalidData(f"an array of dtype {dtype}; save numbers, and text as array.astype(str).")
    if min(shape, default=0) < 0:
        raise InvalidData(f"shape {shape}.")
    return shape, dtype
