"""Tables of features: every form is read, every check fails when it should, and stored tables open unchanged."""

import contextlib
import dataclasses
import json
import os
import pickle
import shutil
import sys
import threading
import tracemalloc
import types
import zipfile

import numpy as np
import pytest

import metafun.data
from metafun.data import catalog, table_folder
from metafun.data.arrays import parsing
from metafun.data.catalog import destination, list_tables, locate, open_table, verify
from metafun.data.readers import Division, find_tables, read_features
from metafun.data.table import SPLITS
from metafun.data.table_folder import read_description, save_table
from metafun.errors import InvalidConfig, InvalidData
from metafun.files import LOCK
from tables import check_is_example, example, keys_of, write_leo, write_npy, write_npz


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("METAFUN_DATA", raising=False)
    return tmp_path / "cache" / "metafun" / "data"


def content(folder):
    """The names in a folder, but for the lock file."""
    return sorted(set(os.listdir(folder)) - {LOCK})


@pytest.mark.parametrize(
    "form",
    {
        "leo": lambda path: write_leo(path / "leo"),
        "leo, keys": lambda path: write_leo(path / "leo", ("embeddings", "keys")),
        "leo, labels": lambda path: write_leo(path / "leo", ("embeddings", "labels")),
        "leo, bytes": lambda path: write_leo(path / "leo", text=np.char.encode),
        "leo, lists": lambda path: write_leo(path / "leo", text=np.ndarray.tolist),
        "leo, a list of bytes": lambda path: write_leo(path / "leo", text=lambda a: np.char.encode(a).tolist()),
        "leo, objects": lambda path: write_leo(path / "leo", text=lambda a: a.astype(object)),
        "npy": lambda path: write_npy(path / "npy", divided=True),
        "npz": lambda path: write_npz(path / "t.npz"),
        "npz, bytes": lambda path: write_npz(path / "t.npz", labels=np.char.encode(example()[1])),
        "npz, keys": lambda path: write_npz(path / "t.npz", labels=None, splits=None, keys=keys_of(*example()[1:])),
        "npz, X y": lambda path: write_npz(
            path / "t.npz", embeddings=None, labels=None, X=example()[0], y=example()[1]
        ),
        "npz, foreign keys": lambda path: write_npz(path / "t.npz", keys=np.arange(24)),
        "npz, big-endian": lambda path: write_npz(path / "t.npz", embeddings=example()[0].astype(">f4")),
        "npz, by columns": lambda path: write_npz(path / "t.npz", embeddings=np.asfortranarray(example()[0])),
    }.items(),
    ids=lambda form: form[0],
)
def test_every_form_gives_the_same_table(tmp_path, form):
    table = read_features(form[1](tmp_path), "t")
    check_is_example(table)
    assert table.fingerprint == read_features(write_npz(tmp_path / "plain.npz"), "t").fingerprint


def test_names_in_keys_take_precedence_over_numbers_in_labels(tmp_path):
    folder = write_leo(tmp_path / "leo", text=lambda a: a if "-" in a[0] else np.unique(a, return_inverse=True)[1])
    check_is_example(read_features(folder, "t"))


@pytest.mark.parametrize("under", ["", "embeddings"])
def test_an_archive_has_several_tables(tmp_path, under):
    root = tmp_path / "unpacked"
    for folder in ("miniImageNet/center", "miniImageNet/multiview", "tieredImageNet/center"):
        write_leo(root / under / folder)
    base = (root / under).resolve()
    assert find_tables(root) == {
        "miniimagenet-center": base / "miniImageNet/center",
        "miniimagenet-multiview": base / "miniImageNet/multiview",
        "tieredimagenet-center": base / "tieredImageNet/center",
    }
    assert list(find_tables(base / "miniImageNet")) == ["miniimagenet-center", "miniimagenet-multiview"]
    assert list(find_tables(base / "miniImageNet" / "center")) == ["miniimagenet-center"]
    with pytest.raises(InvalidData, match=r"there is no file or folder .*x.npz"):
        find_tables(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "form", [lambda path: write_npy(path, divided=False), lambda path: write_npz(path / "t.npz", splits=None)]
)
def test_classes_without_splits_are_divided_by_the_seed(tmp_path, form):
    source = form(tmp_path)
    tables = [read_features(source, "t", Division(seed=seed)) for seed in (0, 0, 1, 2, 3)]
    assert tables[0].fingerprint == tables[1].fingerprint == read_features(source, "t").fingerprint
    assert len({table.fingerprint for table in tables}) > 1
    for table in tables:
        assert [len(table.split(split)) for split in SPLITS] == [4, 1, 1]


@pytest.mark.parametrize(
    ("classes", "fractions", "counts"),
    [
        (100, (0.64, 0.16, 0.2), [64, 16, 20]),
        (3, (0.64, 0.16, 0.2), [1, 1, 1]),
        (4, (0.01, 0.495, 0.495), [1, 2, 1]),
        (20, (0.5, 0.25, 0.25), [10, 5, 5]),
        (20, (80.0, 10.0, 10.0), [16, 2, 2]),
    ],
)
def test_every_split_gets_a_class(classes, fractions, counts):
    splits = Division(fractions)([f"class {i}" for i in range(classes)])
    assert [splits.count(split) for split in SPLITS] == counts


def test_impossible_divisions_are_refused():
    for fractions in [(-0.5, 0.5, 1.0), (1.0, 0.0, 0.0), (float("nan"), 0.5, 0.5), (float("inf"), 1.0, 1.0)]:
        with pytest.raises(InvalidConfig, match="must be positive"):
            Division(fractions)
    with pytest.raises(InvalidConfig, match="must not be negative"):
        Division(seed=-1)
    with pytest.raises(InvalidData, match="2 classes cannot be divided"):
        Division()(["a", "b", "b"])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float64", "float32"), ("float16", "float16"), ("uint8", "uint8"), ("int64", "float32"), ("bool", "uint8")],
)
def test_small_dtypes_are_kept(tmp_path, dtype, expected):
    features = np.arange(72).reshape(24, 3).astype(dtype)
    table = read_features(write_npz(tmp_path / "t.npz", embeddings=features), "t")
    assert table.features.dtype == expected
    assert float(table.features.astype(float).sum()) == float(features.astype(float).sum())


def changed(at, value, dtype=np.float64):
    features = example()[0].astype(dtype)
    features[at] = value
    return features


FEATURES, LABELS, SPLITS_OF_ROWS = example()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"embeddings": changed(4, np.nan)}, r"row 4 \(class 'eel'\) is not finite \(1 such row\); .* correct it"),
        (
            {"embeddings": changed(slice(3, 5), np.inf, np.float16)},
            r"row 3 \(class 'dog'\) is not finite \(2 such rows\); .* them",
        ),
        ({"embeddings": changed(7, 1e39)}, r"row 7 \(class 'bee'\) is beyond the range of float32"),
        ({"embeddings": FEATURES.reshape(24, 3, 1)}, r"must be \[rows, columns\].*\[24, 3, 1\].*reshape"),
        ({"embeddings": FEATURES[:, :0]}, r"not empty, but have shape \[24, 0\]"),
        ({"embeddings": FEATURES[:0], "labels": LABELS[:0], "splits": None}, r"not empty, but have shape \[0, 3\]"),
        ({"embeddings": FEATURES.astype(complex)}, "an array of dtype complex"),
        ({"embeddings": FEATURES.astype(str)}, "features must be numbers"),
        ({"embeddings": None}, "needs features"),
        ({"labels": None}, "needs features"),
        ({"labels": None, "keys": np.array(["no form"] * 24)}, "needs features.*or keys of the form"),
        ({"labels": LABELS[:-1]}, "24 rows, but 23 labels"),
        ({"labels": np.stack([LABELS, LABELS], 1)}, r"labels of shape \[24, 2\]; give one per row"),
        ({"labels": np.linspace(0, 1, 24)}, r"labels must be text or whole numbers, not 0\.04"),
        ({"labels": np.where(LABELS == "eel", -np.inf, 1.0)}, "labels must be text or whole numbers, not -inf"),
        ({"labels": np.where(LABELS == "eel", 1e300, 1.0)}, r"labels must be text or whole numbers, not 1e\+300"),
        ({"labels": np.char.add(LABELS, "\x1b[2J")}, r"class 'ant\\x1b\[2J' has control characters"),
        ({"labels": np.char.add(LABELS, "\u202e")}, "has control characters"),
        ({"labels": LABELS.astype(object)}, "an array of dtype object"),
        ({"splits": SPLITS_OF_ROWS[:5]}, "24 rows, but 5 splits"),
        ({"splits": np.where(SPLITS_OF_ROWS == "val", "valid", SPLITS_OF_ROWS)}, "'valid' is not a split"),
        (
            {"splits": np.array(["train", "test"] * 12)[np.argsort(LABELS)]},
            r"'ant' is in test and in train \(\d such classes\)",
        ),
    ],
)
def test_every_check_of_the_rows_fails_when_it_should(tmp_path, changes, message):
    with pytest.raises(InvalidData, match=message):
        read_features(write_npz(tmp_path / "t.npz", **changes), "t")


def test_inconsistent_parts_are_refused(tmp_path):
    folder = write_npy(tmp_path / "npy", divided=True)
    np.save(folder / "val" / "dog.npy", np.ones((2, 5), np.float32))
    with pytest.raises(InvalidData, match=r"has 3 columns and .*dog.npy has 5"):
        read_features(folder, "t")
    shutil.copy(folder / "train" / "ant.npy", folder / "val" / "dog.npy")
    shutil.copy(folder / "train" / "ant.npy", folder / "val" / "ant.npy")
    with pytest.raises(InvalidData, match="class 'ant' is in train and in val \\(1 such class\\)"):
        read_features(folder, "t")
    shutil.copy(folder / "train" / "ant.npy", folder / "ant.npy")
    with pytest.raises(InvalidData, match="mixes the known forms"):
        read_features(folder, "t")
    np.save(write_npy(tmp_path / "empty", divided=False) / "ant.npy", np.ones((0, 3), np.float32))
    with pytest.raises(InvalidData, match=r"ant.npy: features must be .* not empty"):
        read_features(tmp_path / "empty", "t")


def test_other_files_are_refused(tmp_path):
    (tmp_path / "file.csv").write_text("1,2\n")
    for source in (tmp_path, tmp_path / "file.csv"):
        with pytest.raises(InvalidData, match="has none of the known forms"):
            read_features(source, "t")
    with pytest.raises(InvalidData, match="there is no file or folder"):
        read_features(tmp_path / "nothing.npz", "t")
    for content in ([1, 2], {"embeddings": [1.0]}, {"embeddings": np.ones((2, 2))}):
        (tmp_path / "train_embeddings.pkl").write_bytes(pickle.dumps(content))
        with pytest.raises(InvalidData, match=r"must be a dict with an array|has no 'labels'"):
            read_features(tmp_path, "t")


def forged_npz(path, header: bytes, data: bytes = b""):
    with zipfile.ZipFile(write_npz(path, embeddings=None), "a", zipfile.ZIP_DEFLATED) as archive:
        length = len(header).to_bytes(2, "little")
        archive.writestr("embeddings.npy", b"\x93NUMPY\x01\x00" + length + header + data)
    return path


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (
            b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000)}",
            b"",
            "promises 4,000,000,000,000 bytes",
        ),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -1)}", b"abcd", r"shape \(-1, -1\)"),
        (b"{'descr': '<f4', 'fortran_order': False, 'shape': (24, 100000)}", bytes(9600000), "would unpack from"),
        (b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", pickle.dumps([]), "dtype object"),
        (b"{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000,)}", b"", "0 bytes per entry"),
        (b"__import__('os').system('true')", b"", "is refused"),
        (b"-" * 9000 + b"1", b"", "does not fit into memory|is refused"),
    ],
)
def test_forged_npz_files_are_refused_before_memory_is_allocated(tmp_path, header, data, message):
    with pytest.raises(InvalidData, match=message):
        read_features(forged_npz(tmp_path / "t.npz", header, data), "t")


def test_long_headers_are_refused(tmp_path):
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}".ljust(2**20)
    with zipfile.ZipFile(write_npz(tmp_path / "t.npz", embeddings=None), "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("embeddings.npy", b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header)
    with pytest.raises(InvalidData, match="EOF: reading array header, expected 1048576 bytes"):
        read_features(tmp_path / "t.npz", "t")


def test_a_false_packed_size_does_not_help(tmp_path, home):
    home.mkdir(parents=True)
    path = forged_npz(
        home / "t.npz", b"{'descr': '<f4', 'fortran_order': False, 'shape': (24, 100000)}", bytes(9600000)
    )
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 20
    content[at : at + 4] = (2**31).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(InvalidData, match="would unpack from"):
        read_features(path, "t")
    assert "would unpack from" in list_tables()[1].problem


@pytest.mark.parametrize("form", [list, lambda names: np.array(names, object), tuple])
@pytest.mark.parametrize("name", ["labels", "keys"])
def test_one_long_name_does_not_make_all_names_long(tmp_path, form, name):
    """As an array of text these would take 20 GB."""
    names = [*(f"val-{i % 2}-x" for i in range(4999)), "val-" + "x" * 1_000_000 + "-y"]
    content = {"embeddings": np.ones((5000, 2)), name: form(names)}
    (tmp_path / "val_embeddings.pkl").write_bytes(pickle.dumps(content))
    tracemalloc.start()
    table = read_features(tmp_path, "t")
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()
    assert {rows.count for rows in table.classes} >= {1}


@pytest.mark.parametrize("labels", [[["a"], ["b", "c"]], [None, "a"], "ab", {"a": 1}, [1, 10**30], [1.5, 2]])
def test_labels_must_be_a_list_of_names(tmp_path, labels):
    content = {"embeddings": np.ones((2, 2)), "labels": labels}
    (tmp_path / "val_embeddings.pkl").write_bytes(pickle.dumps(content))
    with pytest.raises(InvalidData, match=r"labels must be (text or whole numbers|an array or a list), not"):
        read_features(tmp_path, "t")


@pytest.mark.parametrize("e", ["é".encode(), "é".encode("latin1")])
def test_names_may_be_text_bytes_or_whole_numbers(tmp_path, e):
    names = ["a", b"b", e, 3, 4.0, np.int64(5), np.str_("f"), True]
    (tmp_path / "val_embeddings.pkl").write_bytes(pickle.dumps({"embeddings": np.ones((8, 2)), "labels": names}))
    assert {rows.name for rows in read_features(tmp_path, "t").classes} == {"a", "b", "é", "3", "4", "5", "f", "True"}


def test_a_parsing_error_names_the_file_and_the_expected_form(tmp_path):
    for error, message in (
        (EOFError(), r"x.npz is refused: EOFError; expected a thing\.$"),
        (ValueError("odd.\x1b[2J"), r"refused: odd.\?\[2J; expected"),
        (MemoryError(), r"x.npz does not fit into memory"),
    ):
        with pytest.raises(InvalidData, match=message), parsing(tmp_path / "x.npz", "a thing"):
            raise error
    (tmp_path / "text.npz").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidData, match=r"text.npz is refused: .*; expected an .npz file as np.savez writes it"):
        read_features(tmp_path / "text.npz", "t")


def test_pipes_do_not_block(tmp_path, home):
    save_table(table(tmp_path), home, "")
    (home / "mine" / "features.npy").unlink()
    for path in (home / "mine" / "features.npy", home / "pipe.npz", tmp_path / "npy" / "a.npy"):
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
    assert "not a file" in {entry.name: entry for entry in list_tables()}["mine"].problem
    with pytest.raises(InvalidData, match="is not a stored table"):
        open_table(str(home / "pipe.npz"))
    with pytest.raises(InvalidData, match="not a file"):
        read_features(tmp_path / "npy", "t")


def test_damaged_files_are_refused(tmp_path):
    whole = write_npz(tmp_path / "t.npz").read_bytes()
    flipped = bytearray(whole)
    flipped[200] ^= 1
    for damaged in (whole[:-30], whole[:100], b"", b"<html>", bytes(flipped)):
        (tmp_path / "t.npz").write_bytes(damaged)
        with pytest.raises(InvalidData, match=r"t.npz is refused"):
            read_features(tmp_path / "t.npz", "t")
    folder = write_npy(tmp_path / "npy", divided=False)
    for damaged in ((folder / "ant.npy").read_bytes()[:-1], pickle.dumps([1]), whole):
        (folder / "ant.npy").write_bytes(damaged)
        with pytest.raises(InvalidData, match=r"ant.npy is refused"):
            read_features(folder, "t")


def test_zero_rows_are_counted(tmp_path):
    assert read_features(write_npz(tmp_path / "t.npz", embeddings=changed(slice(2, 5), 0)), "t").zero_rows() == 3
    for tiny_or_huge in (1e-25, 1e25):  # their squares are 0 and inf in single precision
        features = changed(slice(2, 5), tiny_or_huge, np.float32)
        assert read_features(write_npz(tmp_path / "t.npz", embeddings=features), "t").zero_rows() == 0


def table(tmp_path, name="mine"):
    return read_features(write_npz(tmp_path / "source.npz"), name)


def test_a_saved_table_opens_unchanged(tmp_path, home):
    saved = dataclasses.replace(table(tmp_path), image=(1, 3))
    save_table(saved, destination("mine"), "source.npz")
    opened = open_table("mine")
    check_is_example(opened)
    assert isinstance(opened.features, np.memmap) and not opened.features.flags.writeable
    assert (opened.name, opened.classes, opened.image) == ("mine", saved.classes, (1, 3))
    assert verify("mine").fingerprint == saved.fingerprint == open_table(str(home / "mine")).fingerprint
    assert sorted(os.listdir(home / "mine")) == ["features.npy", "table.json"]
    assert content(home) == ["mine"]


def test_a_table_is_not_overwritten_by_accident_nor_lost_by_a_crash(tmp_path, home, monkeypatch):
    save_table(table(tmp_path), home, "first")
    with pytest.raises(InvalidData, match="exists already; replace it with --overwrite"):
        save_table(table(tmp_path), home, "second")
    rename = os.rename
    for fails_at in (0, 1):
        calls = iter(range(9))

        def breaks(old, new, calls=calls, fails_at=fails_at):
            if next(calls) == fails_at:
                raise OSError("power cut")
            rename(old, new)

        monkeypatch.setattr(os, "rename", breaks)
        with pytest.raises(OSError, match="power cut"):
            save_table(table(tmp_path), home, "second", overwrite=True)
        monkeypatch.setattr(os, "rename", rename)
        assert read_description(home / "mine").source == "first" and content(home) == ["mine"]
    for find_it in (lambda: locate("mine"), lambda: save_table(table(tmp_path), home, "second")):
        rename(home / "mine", home / ".mine.old")  # the state after a kill between the two renames
        with contextlib.suppress(InvalidData):
            find_it()
        assert read_description(home / "mine").source == "first"
    save_table(table(tmp_path), home, "second", overwrite=True)
    assert read_description(home / "mine").source == "second" and content(home) == ["mine"]


def test_a_reader_waits_for_a_writer(tmp_path, home, monkeypatch):
    save_table(table(tmp_path), home, "first")
    found, rename = [], os.rename
    reader = threading.Thread(target=lambda: found.append(locate("mine")))

    def slow(old, new):
        rename(old, new)
        if not found and not reader.is_alive():
            reader.start()
            reader.join(0.2)

    monkeypatch.setattr(os, "rename", slow)
    save_table(table(tmp_path), home, "second", overwrite=True)
    reader.join(5)
    assert found == [home / "mine"] and read_description(home / "mine").source == "second"
    assert content(home) == ["mine"]


def test_of_two_writers_the_second_fails(tmp_path, home, monkeypatch):
    locked = table_folder.locked

    def late(*arguments, **options):
        monkeypatch.setattr(table_folder, "locked", locked)
        save_table(table(tmp_path), home, "first")
        return locked(*arguments, **options)

    monkeypatch.setattr(table_folder, "locked", late)
    with pytest.raises(InvalidData, match="exists already"):
        save_table(table(tmp_path), home, "second")
    assert read_description(home / "mine").source == "first" and content(home) == ["mine"]


def test_replaced_and_deleted_tables_do_not_come_back(tmp_path, home):
    elsewhere = tmp_path / "elsewhere"
    save_table(table(tmp_path), elsewhere, "linked")
    home.mkdir(parents=True)
    (home / "mine").symlink_to(elsewhere / "mine")
    save_table(table(tmp_path), home, "new", overwrite=True)
    assert content(home) == ["mine"] and not (home / "mine").is_symlink()
    assert read_description(elsewhere / "mine").source == "linked"
    shutil.copytree(home / "mine", home / ".mine.old")  # the state after a kill following the second rename
    assert read_description(locate("mine")).source == "new"
    shutil.rmtree(home / "mine")
    with pytest.raises(InvalidData, match="no data called 'mine'"):
        locate("mine")
    (home / "mine").symlink_to(tmp_path / "nowhere")
    save_table(table(tmp_path), home, "third", overwrite=True)
    assert read_description(locate("mine")).source == "third" and content(home) == ["mine"]


@pytest.mark.parametrize("name", ["../mine", "..", ".hidden", "a/b", "", "a b", "a\n", "é", "x" * 101, "mine.npz"])
def test_names_cannot_lead_out_of_the_folder(tmp_path, home, name):
    with pytest.raises(InvalidData, match="cannot be a name"):
        save_table(dataclasses.replace(table(tmp_path), name=name), home, "")
    with pytest.raises(InvalidData, match=r"cannot be a name|there is no file or folder"):
        open_table(name)


def test_a_refused_name_says_all_the_rules():
    with pytest.raises(InvalidData, match=r"use up to 100 .* no dot first and no .npz last, as in --name My-Data$"):
        destination("My Data")
    with pytest.raises(InvalidData, match=r"as in --name mine$"):
        destination(".mine.npz")


def test_the_folder_of_an_unknown_user_does_not_exist(monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", "~nouser/data")
    assert [entry.name for entry in list_tables()] == ["glyphs"]
    with pytest.raises(InvalidData, match=r"there is no file or folder ~nouser/x.npz"):
        open_table("~nouser/x.npz")


def test_an_unwritable_cache_gets_a_remedy(tmp_path, home, monkeypatch):
    (tmp_path / "cache").write_text("a file, in which no folder can be made")
    with pytest.raises(InvalidData, match=rf"^{home} cannot be written; name a writable folder in METAFUN_DATA"):
        destination("mine")
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "cache" / "one"))
    with pytest.raises(InvalidData, match=rf"one and {home} cannot be written"):
        destination("mine")


def test_folders_are_searched_in_their_order(tmp_path, home, monkeypatch):
    save_table(table(tmp_path), home, "cache")
    monkeypatch.setenv("METAFUN_DATA", os.pathsep.join([str(tmp_path / "one"), str(tmp_path / "two")]))
    assert locate("mine") == home / "mine"
    assert destination("other") == tmp_path / "one"
    (tmp_path / "two").mkdir()
    write_npz(tmp_path / "two" / "mine.npz")
    assert locate("mine") == tmp_path / "two" / "mine.npz"
    check_is_example(open_table("mine"))
    check_is_example(open_table(str(tmp_path / "two" / "mine.npz")))
    assert verify("mine").name == "mine"
    assert destination("mine") == tmp_path / "one"
    (tmp_path / "one").write_text("a file, in which no folder can be made")
    assert destination("other") == home
    with pytest.raises(InvalidData, match=r"the name 'mine' is taken by .*two/mine.npz"):
        destination("mine")
    with pytest.raises(InvalidData, match="'glyphs' is taken by a built-in table"):
        destination("glyphs")


def test_an_unknown_name_gets_a_remedy(tmp_path, home):
    save_table(table(tmp_path), home, "")
    with pytest.raises(
        InvalidData, match=r"no data called 'mime' in .*data; did you mean 'mine'.*import FILE --name mime"
    ):
        open_table("mime")
    with pytest.raises(InvalidData, match="metafun data fetch leo --only tieredimagenet-center"):
        open_table("tieredimagenet-center")
    with pytest.raises(InvalidData, match="is not a stored table; store it with: metafun data import"):
        open_table(str(tmp_path))


def test_list_shows_tables_that_cannot_be_opened_too(tmp_path, home, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "shared"))
    save_table(table(tmp_path), home, "")
    save_table(table(tmp_path, "broken"), home, "")
    (home / "broken" / "table.json").write_text("{}")
    (home / "notes.txt").write_text("")
    (tmp_path / "shared").mkdir()
    write_npz(tmp_path / "shared" / "small.npz")
    write_npz(tmp_path / "shared" / "no features.npz")
    write_npz(tmp_path / "shared" / "no_features.npz", embeddings=None)
    entries = {entry.name: entry for entry in list_tables()}
    assert list(entries) == ["glyphs", "no_features", "small", "broken", "mine"]
    assert entries["mine"].classes == {"train": 3, "val": 1, "test": 2}
    assert entries["small"].shape == entries["mine"].shape == (24, 3)
    assert "does not describe a table" in entries["broken"].problem
    assert "no features" in entries["no_features"].problem


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "metafun-table-2"}, "format = 'metafun-table-2' is not known"),
        ({"format": ["metafun-table-1"]}, "is not known"),
        ({"extra": 1}, "unknown key 'extra'"),
        ({"classes": 3}, "classes = 3, but it must be a list"),
        ({"shape": [24, 4]}, r"features.npy is float32 \(24, 3\)"),
        ({"shape": [24]}, "must have 2 entries"),
        ({"dtype": "float16"}, "features.npy is float32"),
        ({"dtype": "object"}, "dtype = 'object' is not known"),
        ({"image": [28, 28]}, "a row does not have the size of its image"),
        ({"image": [-1, -3]}, "a row does not have the size of its image"),
        ({"fingerprint": "../x"}, "fingerprint is not a SHA-256"),
        ({"source": "\x1b[2J"}, "control characters"),
        ({"imported": "\x9b2J"}, "control characters"),
        ({"classes": [{"name": "a\n", "split": "val", "start": 0, "count": 24}]}, "control characters"),
        ({"\x1b[2J": 1}, r"unknown key '\?\[2J'"),
        ({"classes": []}, "classes do not divide the rows"),
        ({"classes": [{"name": "a", "split": "train", "start": 0, "count": 25}]}, "classes do not divide the rows"),
        ({"classes": [{"name": "a", "split": "train", "start": 1, "count": 24}]}, "classes do not divide the rows"),
        ({"classes": [{"name": "a", "split": "dev", "start": 0, "count": 24}]}, "a split is not train, val or test"),
        ({"classes": [{"name": "a", "split": "train", "start": 0, "count": "24"}]}, "must be of type int"),
        ({"classes": [{"name": "a", "split": "train", "start": 0}]}, "does not describe a table"),
        (
            {
                "classes": [
                    {"name": c, "split": "val", "start": s, "count": n} for c, s, n in (("a", 0, 30), ("b", 30, -6))
                ]
            },
            "classes do not divide the rows",
        ),
        (
            {"classes": [{"name": "a", "split": s, "start": i, "count": 12} for s, i in (("val", 0), ("test", 12))]},
            "two classes have the same name",
        ),
    ],
)
def test_an_untrusted_table_json_is_checked(tmp_path, home, change, message):
    save_table(table(tmp_path), home, "")
    path = home / "mine" / "table.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InvalidData, match=message):
        open_table("mine")


def test_control_characters_in_a_source_are_replaced(tmp_path, home):
    save_table(table(tmp_path), home, "a\x1b\udcff.npz")
    assert read_description(locate("mine")).source == "a??.npz"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"{}", b'{"format": NaN}'])
def test_a_damaged_table_json_is_refused(tmp_path, home, content):
    save_table(table(tmp_path), home, "")
    (home / "mine" / "table.json").write_bytes(content)
    with pytest.raises(InvalidData, match=r"table.json does not describe a table"):
        open_table("mine")


def test_verify_finds_changes(tmp_path, home):
    save_table(table(tmp_path), home, "")
    path = home / "mine" / "features.npy"
    for value, message in ((0.25, "differs from what was imported"), (np.nan, "class 'bee' has rows that are not")):
        features = np.load(path)
        features[5] = value
        np.save(path, features)
        open_table("mine")
        with pytest.raises(InvalidData, match=message):
            verify("mine")
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(InvalidData, match=r"features.npy is refused"):
        open_table("mine")
    path.unlink()
    with pytest.raises(InvalidData, match=r"features.npy does not exist or is not a file"):
        verify("mine")


def test_the_built_in_table_is_made_once_per_version(tmp_path, home, monkeypatch):
    made = []

    def make():
        made.append(1)
        return table(tmp_path, "glyphs")

    glyphs = types.SimpleNamespace(VERSION=1, make=make)
    monkeypatch.setitem(sys.modules, "metafun.data.glyphs", glyphs)
    monkeypatch.setattr(metafun.data, "glyphs", glyphs, raising=False)
    for _ in range(2):
        opened = open_table("glyphs")
        check_is_example(opened)
        assert opened.name == "glyphs" and len(made) == 1
    glyphs.VERSION = 2
    verify("glyphs")
    assert len(made) == 2 and content(home) == ["glyphs-1", "glyphs-2"]
    entry, glyphs.VERSION = list_tables()[0], 3
    assert entry.shape == (24, 3) and entry.classes == {"train": 3, "val": 1, "test": 2} and entry.path is None
    assert list_tables() == [catalog.CatalogEntry("glyphs", None)]

    def fail(*arguments):
        raise OSError("no space left on device")

    monkeypatch.setattr(catalog, "save_table", fail)
    check_is_example(open_table("glyphs"))
