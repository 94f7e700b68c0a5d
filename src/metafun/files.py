"""Atomic writes, and locks on folders, on Linux, macOS and Windows."""

import contextlib
import errno
import json
import os
import platform
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import filelock

from .errors import Busy, InvalidRun

# The lock file that `locked` leaves in a folder.
LOCK = ".lock"
# The end of the names of files that are not complete.
TEMPORARY = ".tmp"
_LEFTOVER = re.compile(rf".+\.[0-9a-f]{{32}}{re.escape(TEMPORARY)}", re.DOTALL)
# Of metafun 0.1.0.
_FORMER_LEFTOVERS = ("config.toml.tmp", "metrics.jsonl.tmp")
# Bytes of a file of results; a line has a few thousand.
MOST_RESULTS = 2**30


def write_atomically(path: Path, content: bytes) -> None:
    """Writes `content` to a temporary file and renames it: a reader sees the old content or the new, never a part.

    A link at `path` is replaced, not followed.
    """
    with replacing(path) as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A temporary file that takes the place of `path` when the block ends; it is removed if the block fails."""
    # A random name, and "x": in a folder from a stranger, a link under a name that can be guessed would be followed.
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMPORARY}")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        if error.filename in (None, str(temporary)):
            error.filename, error.filename2 = str(path), None  # a full disk names no file
        raise
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def read_text(path: Path, most: int = 2**22, errors: str = "strict") -> str:
    """The text in a file that may be from a stranger; OSError if it is a pipe or device, or too large.

    Args:
        path: the file, in UTF-8.
        most: bytes above which it is refused.
        errors: what happens to bytes that are not UTF-8, as for `open`.
    """
    require_file(path)
    if (size := path.stat().st_size) > most:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes; at most {most:,} are read", str(path))
    return path.read_text("utf-8", errors=errors)


def require_file(path: Path) -> None:
    """OSError if `path` is a pipe, device or folder: reading a pipe would block, and /dev/zero never ends."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a file", str(path))


def subfolder(folder: Path, name: str) -> Path:
    """A folder in `folder`, which may be from a stranger; InvalidRun if it is a link to another.

    Args:
        folder: what others may have written.
        name: the name of the folder in it.
    """
    path = folder / name
    if path.is_symlink():
        raise InvalidRun(f"{path} is a link to another folder; remove it.")
    return path


def append_line(path: Path, line: str) -> None:
    """Appends a line to a file of a folder that may be from a stranger: a link is not followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    if path.is_symlink():  # Windows has no O_NOFOLLOW
        raise InvalidRun(f"{path} is a link to another file; remove it.")
    with open(path, "a", encoding="utf-8", opener=lambda name, _: os.open(name, flags, 0o666)) as file:
        file.write(line + "\n")


def remove_leftovers(folder: Path) -> None:
    """Removes what killed writers left in `folder`, which the caller has locked."""
    for path in folder.iterdir():
        if is_leftover(path):
            path.unlink(missing_ok=True)


def is_leftover(path: Path) -> bool:
    """Whether `path` has a name that `write_atomically` gives to a file that is not complete."""
    return path.name in _FORMER_LEFTOVERS or _LEFTOVER.fullmatch(path.name) is not None


def _sync_folder(folder: Path) -> None:
    """Makes a rename in `folder` survive a power failure."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows cannot open a folder, and its renames need no sync
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def locked(folder: Path, doing: str = "training", *, wait: bool = False) -> Iterator[None]:
    """Keeps other processes out of `folder`. The operating system releases the lock when the process ends.

    Args:
        folder: an existing folder; the lock is the file `.lock` in it.
        doing: what a process does there, for the message of `Busy`.
        wait: wait for the other process instead of raising `Busy`.
    """
    lock = filelock.FileLock(folder / LOCK, timeout=-1 if wait else 0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise Busy(f"another process is {doing} in {folder}; wait for it, or choose another folder.") from None
    try:
        yield
    finally:
        lock.release()


# Folder of the lock files by which processes that share work count each other.
PROCESSES = "processes"


@contextlib.contextmanager
def present(folder: Path) -> Iterator[Callable[[], int]]:
    """Yields a function that counts the other processes of this machine inside this block with the same folder.

    Args:
        folder: gets one lock file for each process; those of dead processes are removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine = platform.node()
    own = filelock.FileLock(folder / f"{machine}-{uuid.uuid4().hex}.process", timeout=-1)

    def others() -> int:
        return sum(_is_held(path) for path in folder.glob(f"{machine}-*.process") if path != Path(own.lock_file))

    with own:
        yield others
    Path(own.lock_file).unlink(missing_ok=True)


def _is_held(path: Path) -> bool:
    """Whether a process holds the lock file; otherwise it is removed."""
    try:
        with filelock.FileLock(path, timeout=0):
            pass
    except filelock.Timeout:
        return True
    path.unlink(missing_ok=True)
    return False


def append_json(path: Path, content: dict[str, Any]) -> None:
    """Appends a line to a .jsonl file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(content) + "\n")
