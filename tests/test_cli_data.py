"""metafun data as people and machines meet it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from metafun.cli.data import app
from metafun.data import open_table
from tables import example, write_leo, write_npz


def data(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def works(*arguments):
    result = data(*arguments)
    assert result.exit_code == 0, result.output
    return result


def fails(*arguments) -> str:
    """The one line a mistake is answered with."""
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


def test_import_prints_a_summary_and_what_comes_next(source):
    result = works("import", source)
    for fact in ("mine", "train", "12", "float32"):
        assert fact in result.stdout
    assert result.stderr == "Next: metafun train features --data mine\n"
    assert "exists already; replace it with --overwrite" in fails("import", source)
    works("import", source, "--overwrite")
    works("import", source, "--name", "other")
    assert "'a/b' cannot be a name" in fails("import", source, "--name", "a/b")


def test_import_divides_classes_as_asked(tmp_path):
    source = write_npz(tmp_path / "mine.npz", splits=None)
    works("import", source, "--split", "0.34,0.33,0.33", "--seed", 3)
    assert [len(open_table("mine").split(split)) for split in ("train", "val", "test")] == [2, 2, 2]
    for split in ("0.5,0.5", "a,b,c", "1,1,1", "nan,1,0"):
        assert "0.64,0.16,0.2" in fails("import", source, "--split", split, "--name", "other")


def test_import_of_an_archive_brings_all_of_it(tmp_path):
    for folder in ("miniImageNet/center", "miniImageNet/multiview"):
        write_leo(tmp_path / "embeddings" / folder)
    assert "--name is for one table" in fails("import", tmp_path, "--name", "x")
    works("import", tmp_path)
    assert open_table("miniimagenet-center").fingerprint == open_table("miniimagenet-multiview").fingerprint


def test_rows_of_zeros_are_told_of(tmp_path):
    features = example()[0]
    features[:3] = 0
    result = works("import", write_npz(tmp_path / "mine.npz", embeddings=features))
    assert "warning: 3 rows of mine are all zero" in result.stderr


def test_a_split_without_classes_is_told_of(tmp_path):
    source = write_npz(tmp_path / "mine.npz", splits=np.full(24, "test"))
    assert "warning: mine has no classes in train and val" in works("import", source).stderr


def test_list(source):
    works("import", source)
    works("import", source, "--name", "a-long-name-that-is-shown-in-full")
    assert "a-long-name-that-is-shown-in-full" in works("list").stdout
    assert "24 × 3" in works("list").stdout and "3/1/2" in works("list").stdout
    listed = {entry["name"]: entry for entry in json.loads(works("list", "--json").stdout)}
    assert listed["mine"]["shape"] == [24, 3] and listed["glyphs"]["path"] is None


def test_info(source, home):
    works("import", source)
    facts = json.loads(works("info", "mine", "--json").stdout)
    assert facts["train"] == {"classes": 3, "rows": 12} and facts["smallest"]["rows"] == 4
    assert facts["source"] == str(source) and facts["where"] == str(home / "mine")
    assert facts["fingerprint"] == open_table("mine").fingerprint
    shown = works("info", "mine").stdout
    assert "3 classes, 12 rows" in shown and "float32" in shown
    assert json.loads(works("info", source, "--json").stdout)["imported"] is None
    assert "did you mean 'mine'" in fails("info", "mime")


def test_verify(source, home):
    works("import", source)
    assert "mine: 24 rows, 6 classes, in order." in works("verify", "mine", source).stdout
    features = np.load(home / "mine" / "features.npy")
    np.save(home / "mine" / "features.npy", -features)
    result = data("verify", source, "mine")
    assert result.exit_code == 2 and "is not what was imported" in result.stderr and "in order" in result.stdout
    assert "no data called 'nothing'" in fails("verify", "nothing")


def test_fetch_from_what_one_has(tmp_path):
    write_leo(tmp_path / "embeddings" / "miniImageNet" / "center")
    options = ("fetch", "leo", "--from", tmp_path, "--only", "miniimagenet-center")
    line = "stored: miniimagenet-center. Next: metafun train features --data miniimagenet-center\n"
    result = works(*options)
    assert result.stderr == line and result.stdout == ""
    assert works(*options).stderr == line.replace(
        "stored: miniimagenet-center.", "nothing to do: the tables are there."
    )


def test_mistakes_of_fetch_are_answered_in_one_line(tmp_path):
    assert "no archive 'lea'; did you mean 'leo'" in fails("fetch", "lea")
    assert "give one of them" in fails("fetch", "--from", tmp_path, "--url", "http://x")
    assert "not an http or https address" in fails("fetch", "--url", "file:///x")
    assert "no table 'miniimagenet'" in fails("fetch", "--only", "miniimagenet")
    assert "nothing.zip" in fails("fetch", "--from", tmp_path / "nothing.zip")


def test_brackets_are_only_brackets(tmp_path):
    folder = tmp_path / "r[/x]u[bold]"
    folder.mkdir(parents=True)
    source = write_npz(folder / "mine.npz", labels=np.char.add("[/x]", example()[1]))
    works("import", source)
    assert "r[/x]u[bold]" in works("info", "mine").stdout and "[/x]ant" in works("info", "mine").stdout
    assert "r[/x]u[bold]" in fails("import", folder / "nothing")


@pytest.mark.parametrize("command", ["import", "list", "info", "fetch", "verify"])
def test_every_command_explains_itself(command):
    assert f"metafun data {command} " in works(command, "--help").stdout + " "
