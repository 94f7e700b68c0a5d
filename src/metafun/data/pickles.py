"""Pickles read without trust: they can become NumPy arrays, strings, numbers and plain containers, and nothing else.

A pickle is a program. This reader runs it with a handful of harmless stand-ins where it asks for NumPy, and
refuses it where it asks for anything else, so that no code from outside is ever called. Pickles of Python 2 too.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InvalidData

# Booleans, integers, floats, bytes and text: what a table is made of. No objects, no structures.
KINDS = "biufSU"


def read_pickle(path: Path) -> Any:
    """The content of a pickle of plain data; InvalidData, and nothing executed, for any other."""
    try:
        with open(path, "rb") as file:
            # Python 2 wrote text and raw bytes alike; latin1 keeps every byte of both.
            return _unwrap(_Reader(file, encoding="latin1").load(), {})
    except OSError:
        raise
    except Exception as error:  # a hostile program may fail in any way there is
        raise InvalidData(
            f"{path} is refused: it is not a pickle of plain data ({error or type(error).__name__})."
        ) from None


class _Array:
    """An array in the making: NumPy's pickles build one empty and then give it its state."""

    __slots__ = ("value",)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if isinstance(data, list):  # an array of objects: of text, or refused
            if not all(isinstance(entry, str | bytes) for entry in data):
                raise ValueError("an array holds objects that are not text")
            self.value = np.array(data).reshape(shape)
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
        return text.encode("latin1")


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
    raw = data.encode("latin1") if isinstance(data, str) else bytes(data)
    # reshape refuses a shape that the bytes do not fill, so that a file cannot ask for more memory than it brings.
    return np.frombuffer(raw, dtype.value).reshape(shape, order="F" if order == "F" else "C").copy()


def _unwrap(value: Any, seen: dict[int, Any]) -> Any:
    """Arrays out of their wrappers. Each container once: a small pickle can nest itself into billions of paths."""
    if id(value) in seen:
        return seen[id(value)]
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, list | tuple):
        result: Any = type(value)(_unwrap(entry, seen) for entry in value)
    elif isinstance(value, dict):
        result = {_unwrap(key, seen): _unwrap(entry, seen) for key, entry in value.items()}
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes | bytearray | np.generic):
        return value
    else:
        raise ValueError(f"it holds a {type(value).__name__}")
    seen[id(value)] = result
    return result
