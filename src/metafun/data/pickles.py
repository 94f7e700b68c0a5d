"""Untrusted pickles: NumPy arrays, strings, numbers and plain containers are read, anything else is refused.

A pickle is a program. This reader runs it with a few harmless stand-ins for NumPy's functions and refuses every other
import, so that no foreign code is called. It reads the pickles of Python 2 as well.
"""

import functools
import mmap
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import PLAIN_KINDS, parsing
from .pickle_bounds import check_bounds


def read_pickle(path: Path) -> Any:
    """The content of a pickle of plain data; any other raises InvalidData before foreign code runs."""
    with open(path, "rb") as file, parsing(path, "a pickle of plain data"):
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                check_bounds(content)
            # Python 2 wrote text and raw bytes with the same opcode; latin1 keeps every byte of both.
            return _unwrap(_Reader(file, encoding="latin1").load(), {})
        finally:
            _encoded.cache_clear()


class _Array:
    """An array under construction: NumPy's pickles create an empty one and then set its state."""

    __slots__ = ("value",)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if isinstance(data, list):  # an array of objects
            if not all(isinstance(entry, str | bytes) for entry in data) or shape != (len(data),):
                raise ValueError("an array holds objects that are not text, one per row")
            self.value: Any = data  # not an array of text, in which each entry takes the memory of the longest
            return
        self.value = _from_bytes(data, dtype, shape, "F" if fortran else "C")


class _DType:
    """A plain dtype under construction; its state is the byte order."""

    __slots__ = ("value",)

    def __init__(self, value: np.dtype):
        self.value = value

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", ">", "=", "|") or state[2] is not None or state[3] is not None:
            raise ValueError("a dtype is not plain")
        self.value = self.value.newbyteorder(state[1])


class _StandIn:
    """Replaces a function that a pickle imports. It has no state that a pickle could change."""

    __slots__ = ()


class _Reconstruct(_StandIn):
    def __call__(self, subtype: Any, shape: Any, typecode: Any) -> _Array:
        return _Array()


class _MakeDType(_StandIn):
    def __call__(self, name: str, align: Any = False, copy: Any = False) -> _DType:
        dtype = np.dtype(name if isinstance(name, str) else "V")
        if dtype.kind not in PLAIN_KINDS + "O" or dtype.names is not None or dtype.subdtype is not None:
            raise ValueError(f"dtype {name!r} is not plain")
        return _DType(dtype)


class _Scalar(_StandIn):
    def __call__(self, dtype: _DType, data: Any) -> Any:
        return _from_bytes(data, dtype, (), "C")[()]


class _FromBuffer(_StandIn):
    def __call__(self, data: Any, dtype: _DType, shape: Any, order: str) -> _Array:
        array = _Array()
        array.value = _from_bytes(data, dtype, shape, order)
        return array


class _Encode(_StandIn):
    def __call__(self, text: str, encoding: str) -> bytes:
        if encoding != "latin1":
            raise ValueError(f"encoding {encoding!r} is not used for arrays")
        return _encoded(text)


class _NoBytes(_StandIn):
    """bytes() without arguments: the protocols of Python 2 write empty bytes this way."""

    def __call__(self) -> bytes:
        return b""


class _Subtype(_StandIn):
    """Replaces the class ndarray as an argument; it cannot be called."""


_ALLOWED: dict[tuple[str, str], _StandIn] = {
    ("numpy", "ndarray"): _Subtype(),
    ("numpy", "dtype"): _MakeDType(),
    ("_codecs", "encode"): _Encode(),
    ("__builtin__", "bytes"): _NoBytes(),
    **{
        (f"numpy.{core}.{module}", name): stand_in
        for core in ("core", "_core")
        for module, name, stand_in in (
            ("multiarray", "_reconstruct", _Reconstruct()),
            ("multiarray", "scalar", _Scalar()),
            ("numeric", "_frombuffer", _FromBuffer()),
        )
    },
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def _from_bytes(data: Any, dtype: _DType, shape: Any, order: str) -> np.ndarray:
    if dtype.value.kind not in PLAIN_KINDS:
        raise ValueError(f"dtype {dtype.value} is not plain")
    if not isinstance(data, str | bytes | bytearray):
        raise ValueError(f"the content of an array is a {type(data).__name__}")
    raw = _encoded(data) if isinstance(data, str) else data
    # reshape refuses a shape that the bytes do not fill, and frombuffer does not copy: neither a large shape nor many
    # arrays of the same bytes take more memory than the file has.
    return np.frombuffer(raw, dtype.value).reshape(shape, order="F" if order == "F" else "C")


@functools.cache
def _encoded(text: str) -> bytes:
    """Cached, so that a pickle cannot take memory by encoding one text many times."""
    return text.encode("latin1")


_PLAIN = bool | int | float | str | bytes | bytearray | np.generic | np.ndarray


def _unwrap(value: Any, seen: dict[int, Any]) -> Any:
    """Takes arrays out of their wrappers, each container once: a small pickle can nest into billions of paths."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, _Array):
        value = value.value
    if isinstance(value, list | tuple):
        result: Any = type(value)(_unwrap(entry, seen) for entry in value)
    elif isinstance(value, dict):
        result = {_unwrap(key, seen): _unwrap(entry, seen) for key, entry in value.items()}
    elif value is None or isinstance(value, _PLAIN):
        return value
    else:
        raise ValueError(f"it holds a {type(value).__name__}")
    seen[id(value)] = result
    return result
