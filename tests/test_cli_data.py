"""The commands of `metafun data`: output for people and for machines, and mistakes."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from metafun.cli.data import app
from metafun.config import load_config, resolve
from metafun.data import open_table
from tables import example, write_leo, write_npz


def data(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def works(*arguments):
    result = data(*arguments)
    assert result.exit_code == 0, result.output
    return result


def fails(*arguments) -> str:
    """The one line that answers a mistake."""
    result = data(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("METAFUN_DATA", raising=False)
    return tmp_path / "cache" / "metafun" / "data"


@pytest.fixture
def source(tmp_path):
    return write_npz(tmp_path / "mine.npz")


def large(path, classes=(5, 5, 5), rows=16):
    """A table with these numbers of classes in train, val and test."""
    labels = np.repeat(np.arange(sum(classes)), rows)
    splits = np.repeat(np.repeat(["train", "val", "test"], classes), rows)
    return write_npz(path, embeddings=np.ones((len(labels), 2), np.float32), labels=labels, splits=splits)


def test_import_prints_a_summary_and_what_comes_next(tmp_path, source, home):
    result = works("import", large(tmp_path / "large.npz"))
    for fact in ("large", "train", "80", "float32"):
        assert fact in result.stdout
    assert result.stdout.endswith(f"stored in {home / 'large'}\n")
    assert result.stderr == "Next: metafun train features --data large\n"
    works("import", source)
    assert "exists already; replace it with --overwrite" in fails("import", source)
    works("import", source, "--overwrite")
    works("import", source, "--name", "other")
    assert "'a/b' cannot be a name" in fails("import", source, "--name", "a/b")


@pytest.mark.parametrize(
    ("classes", "rows", "options"),
    [
        ((5, 4, 5), 6, " --set tasks.ways=4"),
        ((6, 6, 6), 5, " --set tasks.queries=4"),
        ((5, 3, 2), 3, " --set tasks.ways=2 --set tasks.queries=2"),
        ((5, 5, 1), 6, ""),
        ((5, 1, 5), 6, None),
        ((5, 0, 5), 6, None),
        ((5, 5, 5), 1, None),
    ],
)
def test_a_table_too_small_for_the_default_task_gets_advice(tmp_path, classes, rows, options):
    result = works("import", large(tmp_path / "small.npz", classes, rows))
    have = "{} in train, {} in val, {} in test".format(*classes)
    assert "warning: by default a task has 5 classes of one split and 6 rows of each; small has " in result.stderr
    assert f"{have}, and its smallest class has {rows} row{'s' * (rows > 1)}." in result.stderr
    line = f"Next: metafun train features --data small{options}\n"
    assert result.stderr.endswith("add more.\n" if options is None else line)
    if options is not None:
        tasks = resolve(load_config("features", ["tasks.data=small", *options.replace("--set", "").split()])).tasks
        assert tasks.training().ways == tasks.validation().ways


def test_an_unwritable_folder_is_skipped_and_the_other_named(tmp_path, monkeypatch, source, home):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "file" / "shared"))
    assert f"stored in {home / 'mine'}\n" in works("import", source).stdout


def test_import_of_a_missing_file_or_an_impossible_name(tmp_path):
    assert f"there is no file or folder {tmp_path / 'missing.npz'}" in fails("import", tmp_path / "missing.npz")
    assert fails("import", write_npz(tmp_path / "My Data.npz")).endswith("as in --name My-Data\n")


def test_import_divides_classes_as_asked(tmp_path):
    source = write_npz(tmp_path / "mine.npz", splits=None)
    works("import", source, "--split", "0.34,0.33,0.33", "--seed", 3)
    assert [len(open_table("mine").split(split)) for split in ("train", "val", "test")] == [2, 2, 2]
    works("import", source, "--split", "1,1,1", "--seed", 3, "--name", "parts")
    assert open_table("parts").fingerprint == open_table("mine").fingerprint
    for split in ("0.5,0.5", "a,b,c", "1,1,0", "nan,1,0"):
        assert "0.64,0.16,0.2" in fails("import", source, "--split", split, "--name", "other")


def test_import_of_an_archive_stores_all_tables(tmp_path):
    for folder in ("miniImageNet/center", "miniImageNet/multiview"):
        write_leo(tmp_path / "embeddings" / folder)
    assert "--name is for one table" in fails("import", tmp_path, "--name", "x")
    works("import", tmp_path)
    assert open_table("miniimagenet-center").fingerprint == open_table("miniimagenet-multiview").fingerprint


def test_zero_rows_are_reported(tmp_path):
    features = example()[0]
    features[:3] = 0
    result = works("import", write_npz(tmp_path / "mine.npz", embeddings=features))
    assert "warning: mine has 3 rows of zeros only" in result.stderr


def test_list(source, home):
    works("import", source)
    works("import", source, "--name", "a-long-name-that-is-shown-in-full")
    assert "a-long-name-that-is-shown-in-full" in works("list").stdout
    assert "24 × 3" in works("list").stdout and "3/1/2" in works("list").stdout
    assert f"\n  {home / 'mine'}\n" in works("list").stdout, "a path is not broken"
    listed = {entry["name"]: entry for entry in json.loads(works("list", "--json").stdout)}
    assert listed["mine"]["shape"] == [24, 3] and listed["glyphs"]["path"] is None


def test_info(source, home):
    works("import", source)
    facts = json.loads(works("info", "mine", "--json").stdout)
    assert facts["train"] == {"classes": 3, "rows": 12} and facts["smallest"]["rows"] == 4
    assert facts["source"] == str(source) and facts["where"] == str(home / "mine")
    assert facts["fingerprint"] == open_table("mine").fingerprint
    shown = works("info", "mine").stdout
    assert "3 classes, 12 rows" in shown and "1 class, 4 rows" in shown and "float32" in shown
    assert json.loads(works("info", source, "--json").stdout)["imported"] is None
    assert "did you mean 'mine'" in fails("info", "mime")


def test_verify(source, home):
    works("import", source)
    assert "mine: 24 rows, 6 classes, intact." in works("verify", "mine", source).stdout
    features = np.load(home / "mine" / "features.npy")
    np.save(home / "mine" / "features.npy", -features)
    result = data("verify", source, "mine")
    assert result.exit_code == 2 and "differs from what was imported" in result.stderr and "intact" in result.stdout
    assert "no data called 'nothing'" in fails("verify", "nothing")


def test_fetch_from_a_local_folder(tmp_path):
    write_leo(tmp_path / "embeddings" / "miniImageNet" / "center")
    options = ("fetch", "leo", "--from", tmp_path, "--only", "miniimagenet-center")
    line = "stored: miniimagenet-center. Next: metafun train features --data miniimagenet-center\n"
    result = works(*options)
    assert result.stderr == line and result.stdout == ""
    assert works(*options).stderr == line.replace(
        "stored: miniimagenet-center.", "nothing to do: all tables are stored."
    )


def test_mistakes_in_fetch_give_one_line(tmp_path):
    assert "no archive 'lea'; did you mean 'leo'" in fails("fetch", "lea")
    assert "give only one" in fails("fetch", "--from", tmp_path, "--url", "http://x")
    assert "not an http or https address" in fails("fetch", "--url", "file:///x")
    assert "no table 'miniimagenet'" in fails("fetch", "--only", "miniimagenet")
    assert "there is no file or folder" in fails("fetch", "--from", tmp_path / "nothing.zip")


def test_brackets_are_not_markup(tmp_path):
    folder = tmp_path / "r[/x]u[bold]"
    folder.mkdir(parents=True)
    source = write_npz(folder / "mine.npz", labels=np.char.add("[/x]", example()[1]))
    works("import", source)
    assert "r[/x]u[bold]" in works("info", "mine").stdout and "[/x]ant" in works("info", "mine").stdout
    assert "r[/x]u[bold]" in fails("import", folder / "nothing")


@pytest.mark.parametrize("command", ["import", "list", "info", "fetch", "verify"])
def test_every_command_explains_itself(command):
    assert f"metafun data {command} " in works(command, "--help").stdout + " "
