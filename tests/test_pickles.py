"""Untrusted pickles: plain data is read, anything else is refused and nothing is executed."""

import os
import pickle
import subprocess
import sys
import time
import tracemalloc

import numpy as np
import pytest

from metafun.data import pickle_bounds
from metafun.data.checks import to_names
from metafun.data.pickles import read_pickle
from metafun.errors import InvalidData

CONTENT = {
    "embeddings": np.arange(12, dtype=np.float32).reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big_endian": np.arange(3, dtype=">i4"),
    "keys": np.array(["val-n01-a.jpg", "val-n02-é.jpg"]),
    "bytes": np.array([b"ab", b"c"]),
    "objects": np.array(["one", "three"], dtype=object),
    "empty": np.zeros((0, 5)),
    "scalar": np.float32(2.5),
    "plain": [1, 2.5, "text", b"raw", None, True, ("a", {"b": 3})],
}


def write(path, content: bytes):
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("protocol", range(6))
def test_plain_data_is_read(tmp_path, protocol):
    read = read_pickle(write(tmp_path / "data.pkl", pickle.dumps(CONTENT, protocol)))
    assert set(read) == set(CONTENT) and read["plain"] == CONTENT["plain"]
    for name in set(CONTENT) - {"plain"}:
        np.testing.assert_array_equal(read[name], CONTENT[name], strict=name not in ("objects", "big_endian"))


def test_a_pickle_of_python_2_is_read(tmp_path):
    """Protocol 2 as Python 2 and an old NumPy wrote it: raw bytes and keys are `str`, opcode U."""
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR"
        b"(I1\n(I2\ntcnumpy\ndtype\n(U\x02f4I0\nI1\ntR(I3\nU\x01<NNNI-1\nI-1\nI0\ntbI00\n"
        b"U\x08" + np.array([1.5, -2.0], "<f4").tobytes() + b"tb"
    )
    content = b"\x80\x02}(U\x0aembeddings" + array + b"U\x04keys](U\x03abce" + b"u."
    read = read_pickle(write(tmp_path / "old.pkl", content))
    np.testing.assert_array_equal(read["embeddings"], np.array([1.5, -2.0], np.float32), strict=True)
    assert read["keys"] == ["abc"]


class Evil:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "attack",
    [
        lambda mark: Evil(os.system, f"touch {mark}"),
        lambda mark: Evil(eval, f"open({mark!r}, 'w')"),
        lambda mark: Evil(subprocess.Popen, ["touch", mark]),
        lambda mark: Evil(np.fromfile, mark),
        lambda mark: {"embeddings": np.array([Evil(os.system, f"touch {mark}")], dtype=object)},
        lambda mark: {"embeddings": np.array([{}], dtype=object)},
        lambda mark: np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
        lambda mark: np.array(["2020-01-01"], "datetime64[D]"),
        lambda mark: pickle.Unpickler,
        lambda mark: InvalidData("an object of some class"),
    ],
)
def test_anything_else_is_refused_and_nothing_is_executed(tmp_path, attack, protocol):
    mark = tmp_path / "executed"
    path = write(tmp_path / "evil.pkl", pickle.dumps(attack(str(mark)), protocol))
    with pytest.raises(InvalidData, match=r"is refused: .*; expected a pickle of plain data"):
        read_pickle(path)
    assert not mark.exists()


RECONSTRUCT = b"cnumpy._core.multiarray\n_reconstruct\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>404</html>",
        pickle.dumps(CONTENT)[:-50],
        b"\x80\x04\x8c\x08builtins\x8c\x0bobject.eval\x93.",
        b"cnumpy\nndarray\n(I99999999999\ntR.",  # calls the class
        RECONSTRUCT + b"(cnumpy\nndarray\n(I0\ntS'b'\ntR.",  # an array without content
        RECONSTRUCT + b"}S'__call__'\nS'x'\nsb.",  # sets the state of a stand-in
        RECONSTRUCT + b"(N}S'__call__'\nS'x'\nstb.",  # the same through slots
        b"P1\n.",  # a persistent id
        b"\x82\x01.",  # the extension registry
        b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O8'\nI0\nI1\ntRS'aaaaaaaa'\ntR.",  # a forged pointer
        b"c_codecs\nencode\n(S'a'\nS'rot13'\ntR.",
        b"c__builtin__\nbytes\n(I99999999999\ntR.",  # more memory than the file has
        b"]r\xff\xff\xff\x07.",  # a memo index far beyond the file
        b"]p134217727\n.",
        b"\x80\x04\x95\x00\x00\x00\x00\x01\x00\x00\x00].",  # a frame of 4 GiB
        b"\x80\x05\x96\x00\x00\x00\x00\x01\x00\x00\x00.",  # 4 GiB of raw bytes
        b"\x80\x02X\xff\xff\xff\x7fabc.",  # 2 GiB of text
        b"\x80\x02cnumpy._core.multiarray\nscalar\n\x8a\x00\x86R.",
        b"cnumpy\n" + b"a" * 100_000 + b"\n.",  # a name that an error repeats
    ],
)
def test_forged_and_damaged_pickles_are_refused(tmp_path, content):
    tracemalloc.start()
    with pytest.raises(InvalidData, match="is refused") as error:
        read_pickle(write(tmp_path / "forged.pkl", content))
    assert len(str(error.value)) < 2000
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_an_array_takes_no_more_memory_than_its_file(tmp_path):
    """A number as the content of an array; and one text used as the content of many."""
    dtype = b"cnumpy\ndtype\n(S'u1'\nI0\nI1\ntR(I3\nS'|'\nNNNI-1\nI-1\nI0\ntb"
    number = RECONSTRUCT + b"(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I268435456\nt" + dtype + b"I00\nI268435456\ntb."
    with pytest.raises(InvalidData, match="the content of an array is a int"):
        read_pickle(write(tmp_path / "number.pkl", number))
    encoded = b"c_codecs\nencode\nX\x40\x42\x0f\x00" + b"x" * 1_000_000 + b"X\x06\x00\x00\x00latin1\x86q\x01R"
    again = b"c_codecs\nencode\nh\x01R" * 1000
    tracemalloc.start()
    assert len(read_pickle(write(tmp_path / "many.pkl", b"\x80\x02](" + encoded + again + b"e."))) == 1001
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


def test_text_of_protocol_0_may_be_raw_bytes(tmp_path):
    assert read_pickle(write(tmp_path / "old.pkl", b"S'\\xff\xfe\\n'\np0\n.")) == "\xff\xfe\n"


def test_the_refused_import_is_printed_without_control_characters(tmp_path):
    with pytest.raises(InvalidData, match=r"it asks for os\.\?\[2J"):
        read_pickle(write(tmp_path / "escape.pkl", b"cos\n\x1b[2J\n."))


def test_a_shape_larger_than_its_data_is_refused(tmp_path):
    array = pickle.dumps(np.zeros((3, 4), np.float32), 2).replace(b"K\x03K\x04\x86", b"J\xff\xff\xff\x7fK\x04\x86")
    with pytest.raises(InvalidData, match="cannot reshape"):
        read_pickle(write(tmp_path / "bomb.pkl", array))


def test_nesting_does_not_explode(tmp_path):
    nested = ["x"]
    for _ in range(60):
        nested = [nested, nested]
    began = time.monotonic()
    content = read_pickle(write(tmp_path / "laughs.pkl", pickle.dumps(nested)))
    with pytest.raises(InvalidData, match="labels must be text or whole numbers, not list"):
        to_names(content, tmp_path / "laughs.pkl", "labels")
    assert time.monotonic() - began < 5


def test_a_missing_file_is_not_called_hostile(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_pickle(tmp_path / "nothing.pkl")


# Under a limit on memory, because the interpreter once crashed, hung or took gigabytes.
READ = """
import resource, sys
from pathlib import Path
from metafun.data.pickles import read_pickle
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))
from metafun.errors import InvalidData
try:
    read_pickle(Path(sys.argv[1]))
except InvalidData as error:
    print(error)
"""
MODULUS = sys.hash_info.modulus


def colliding(step) -> bytes:
    """A dictionary whose keys have few hashes; Python would take minutes to build it."""
    items = (pickle.dumps(i * step, 2)[2:-1] for i in range(1, 100_000))
    return b"\x80\x02}(" + b"".join(item + b"K\x00" for item in items) + b"u."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x80\x02}N" + b"\x85" * 150_000 + b"Ns.", "more than 100 deep"),
        (b"\x80\x02}N" + b"N\x86" * 150_000 + b"Ns.", "more than 100 deep"),
        (b"\x80\x02}N" + b"q\x00h\x00\x85" * 150_000 + b"Ns.", "more than 100 deep"),
        (b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b".", "more than 100 deep"),
        (
            b"\x80\x02"
            + b"".join(b"]r%b" % i.to_bytes(4, "little") for i in range(150))
            + b"".join(b"j%ba0" % i.to_bytes(4, "little") for i in range(149))
            + b".",
            "after it has used it elsewhere",
        ),
        (b"\x80\x02" + b"]q\x00]q\x01h\x00ah\x00h\x01ae.", "after it has used it elsewhere"),
        (colliding(MODULUS), "10,000 keys that are not text"),
        (colliding(float(2**61)), "10,000 keys that are not text"),
        (b"\x80\x02(" + b"}" * 2_000_000 + b"t.", "more containers than a file of its size"),
        (pickle.dumps({1, 2, 3}, 4), "it holds a set"),
        (b"\x80\x02\x85.", "an empty stack"),
        (b"\x80\x02t.", "has not opened"),
    ],
    ids=[
        "tuples",
        "pairs",
        "memo",
        "lists",
        "filled later",
        "cycle",
        "integers",
        "floats",
        "dictionaries",
        "set",
        "underflow",
        "mark",
    ],
)
def test_small_pickles_cannot_exhaust_the_machine(tmp_path, content, message):
    path = write(tmp_path / "hostile.pkl", content)
    done = subprocess.run([sys.executable, "-c", READ, path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and message in done.stdout, (done.returncode, done.stdout, done.stderr[-500:])


def test_the_operations_of_a_pickle_are_bounded(tmp_path, monkeypatch):
    """Each is followed in Python: 100 MB of whole numbers would take minutes."""
    path = write(tmp_path / "numbers.pkl", b"\x80\x02(" + b"K\x01" * 2000 + b"l.")
    assert read_pickle(path) == [1] * 2000
    monkeypatch.setattr(pickle_bounds, "FREE_OPERATIONS", 1000)
    with pytest.raises(InvalidData, match="more operations than a file of its size should have"):
        read_pickle(path)
