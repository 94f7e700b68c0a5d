"""Pickles read without trust: they can become NumPy arrays, strings, numbers and plain containers, and nothing else.

A pickle is a program. This reader runs it with a handful of harmless stand-ins where it asks for NumPy, and
refuses it where it asks for anything else, so that no code from outside is ever called. Pickles of Python 2 too.
"""

import functools
import mmap
import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np

from .arrays import KINDS, refused

_OPCODES = {opcode.code: opcode for opcode in pickletools.opcodes}


def read_pickle(path: Path) -> Any:
    """The content of a pickle of plain data; InvalidData, and nothing executed, for any other."""
    with open(path, "rb") as file, refused(path, "a pickle of plain data"):
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                _check_sizes(content)
            # Python 2 wrote text and raw bytes alike; latin1 keeps every byte of both.
            return _unwrap(_Reader(file, encoding="latin1").load(), {})
        finally:
            _encoded.cache_clear()


def _check_sizes(content: Any) -> None:
    """Refuses texts, frames and places of the memo beyond the file: memory is taken for them before they are read."""
    opcode = None
    while opcode is None or opcode.name != "STOP":
        code = content.read(1).decode("latin1")
        opcode = _OPCODES.get(code)
        if opcode is None:
            raise ValueError(f"{code!r} is not an opcode" if code else "it ends early")
        if opcode.name == "STRING":
            content.readline()  # that of Python 2 is not ASCII, and pickletools would fail
        elif opcode.arg is not None:
            size = opcode.arg.reader(content)
            if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT", "FRAME") and size > len(content):
                raise ValueError(f"{opcode.name} of {size:,} in a file of {len(content):,} bytes")


class _Array:
    """An array in the making: NumPy's pickles build one empty and then give it its state."""

    __slots__ = ("value",)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if isinstance(data, list):  # an array of objects: of text, or refused
            if not all(isinstance(entry, str | bytes) for entry in data) or shape != (len(data),):
                raise ValueError("an array holds objects that are not text, one a row")
            self.value: Any = data  # in an array of text each would take the room of the longest
            return
        self.value = _from_bytes(data, dtype, shape, "F" if fortran else "C")


class _DType:
    """A plain dtype in the making; its state is the byte order."""

    __slots__ = ("value",)

    def __init__(self, value: np.dtype):
        self.value = value

    def __setstate__(self, state: Any) -> None:
        if state[1] not in ("<", ">", "=", "|") or state[2] is not None or state[3] is not None:
            raise ValueError("a dtype is not a plain one")
        self.value = self.value.newbyteorder(state[1])


class _StandIn:
    """What a pickle gets when it asks for a function of NumPy. It has no state that a pickle could change."""

    __slots__ = ()


class _Reconstruct(_StandIn):
    def __call__(self, subtype: Any, shape: Any, typecode: Any) -> _Array:
        return _Array()


class _MakeDType(_StandIn):
    def __call__(self, name: str, align: Any = False, copy: Any = False) -> _DType:
        dtype = np.dtype(name if isinstance(name, str) else "V")
        if dtype.kind not in KINDS + "O" or dtype.names is not None or dtype.subdtype is not None:
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
    """bytes(), which is how the protocols of Python 2 write the empty bytes; it takes no argument."""

    def __call__(self) -> bytes:
        return b""


class _Subtype(_StandIn):
    """Stands where a pickle names the class ndarray; it cannot be called."""


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
    if dtype.value.kind not in KINDS:
        raise ValueError(f"dtype {dtype.value} is not plain")
    if not isinstance(data, str | bytes | bytearray):
        raise ValueError(f"the content of an array is a {type(data).__name__}")
    raw = _encoded(data) if isinstance(data, str) else data
    # reshape refuses a shape that the bytes do not fill, so that a file cannot ask for more memory than it brings;
    # nor by many arrays of the same bytes, which are not copied.
    return np.frombuffer(raw, dtype.value).reshape(shape, order="F" if order == "F" else "C")


@functools.cache
def _encoded(text: str) -> bytes:
    """Once for each text, however often a pickle asks for it."""
    return text.encode("latin1")


_PLAIN = bool | int | float | str | bytes | bytearray | np.generic | np.ndarray


def _unwrap(value: Any, seen: dict[int, Any]) -> Any:
    """Arrays out of their wrappers. Each container once: a small pickle can nest itself into billions of paths."""
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
