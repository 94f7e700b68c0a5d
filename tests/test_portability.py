"""What can be tested for Windows on any system: imports, paths and names, locks, folders that cannot be opened."""

import ast
import os
import stat
from pathlib import Path, PureWindowsPath

import filelock
import pytest

from metafun.data import absolute, is_path, open_table
from metafun.data.catalog import destination, locate
from metafun.data.table_folder import is_writable, save_table
from metafun.errors import Busy, InvalidData
from metafun.files import locked, write_atomically
from tables import check_is_example, write_npz

SOURCE = Path(__file__).parent.parent / "src" / "metafun"
POSIX_ONLY = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("METAFUN_DATA", raising=False)
    return tmp_path / "cache" / "metafun" / "data"


def imported_modules(source: str) -> set[str]:
    """The top-level packages that a module imports anywhere."""
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in plain | named}


def test_no_module_imports_what_windows_lacks():
    for path in SOURCE.rglob("*.py"):
        assert not imported_modules(path.read_text("utf-8")) & POSIX_ONLY, path
    assert imported_modules("def f():\n    from resource import getrusage\n    import os.path") == {"resource", "os"}


WINDOWS_PATHS = [r"C:\data\x.npz", r"C:\data\x", "C:/data/x", "C:x", r"data\x", r".\x", r"\\server\share\x"]
POSIX_PATHS = ["data/x", "./x", "../x", "/x", "~/x", "x.npz"]


@pytest.mark.parametrize("text", WINDOWS_PATHS + POSIX_PATHS)
def test_a_separator_a_drive_or_npz_makes_a_path(text):
    assert is_path(text)
    with pytest.raises(InvalidData, match="there is no file or folder"):
        locate(text)


@pytest.mark.parametrize("text", ["x", "mini-imagenet", "x.y", "..", "a b", "", "x.npz.old"])
def test_everything_else_is_a_name(text):
    assert not is_path(text) and absolute(text) == text


def test_a_path_becomes_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert absolute("./x") == absolute("../" + tmp_path.name + "/x") == str(tmp_path / "x")
    assert absolute("x.npz") == str(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "name", [*(f"a{character}b" for character in '<>:"|?*\\/\0'), "a.", "a ", "NUL", "con.txt", "Com1"]
)
def test_new_tables_have_names_that_windows_accepts(name):
    """Windows drops a final dot or space, and refuses the names of devices with any suffix."""
    with pytest.raises(InvalidData, match="cannot be a name"):
        destination(name)


@pytest.mark.parametrize("name", ["console", "nullable", "com10", "a.b.c", "-", "aux-data"])
def test_other_names_are_accepted(name, home):
    assert destination(name) == home and str(PureWindowsPath(name)) == name


def test_a_table_with_the_name_of_a_device_still_opens(home):
    """It may have been stored before such names were refused."""
    home.mkdir(parents=True)
    write_npz(home / "aux.npz")
    check_is_example(open_table("aux"))


def test_a_file_is_written_where_folders_cannot_be_opened(tmp_path, monkeypatch):
    real = os.open

    def windows(path, *arguments, **options):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", windows)
    write_atomically(tmp_path / "x", b"old")
    write_atomically(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new" and os.listdir(tmp_path) == ["x"]


def test_a_lock_need_not_be_one_of_posix(tmp_path, home, monkeypatch):
    monkeypatch.setattr("metafun.files.filelock.FileLock", filelock.SoftFileLock)
    with locked(tmp_path), pytest.raises(Busy, match="another process is training in"), locked(tmp_path):
        pass
    with locked(tmp_path):  # the first has let go
        pass
    table = open_table(str(write_npz(tmp_path / "mine.npz")))
    for overwrite in (False, True):
        save_table(table, home, "a test", overwrite=overwrite)
    check_is_example(open_table("mine"))


def test_a_writable_folder_is_found_by_writing(tmp_path, monkeypatch):
    assert is_writable(tmp_path) and os.listdir(tmp_path) == []
    assert not is_writable(tmp_path / "missing")

    def forbidden(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", forbidden)
    assert not is_writable(tmp_path)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
def test_a_stored_table_has_the_usual_permissions(tmp_path, home):
    """A folder of tables may be shared between users."""
    save_table(open_table(str(write_npz(tmp_path / "mine.npz"))), home, "a test")
    (tmp_path / "usual").mkdir()
    assert stat.S_IMODE((home / "mine").stat().st_mode) == stat.S_IMODE((tmp_path / "usual").stat().st_mode)
