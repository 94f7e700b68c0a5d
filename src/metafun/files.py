"""Atomic writes, and locks on folders, on Linux, macOS and Windows."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import filelock

from .errors import Busy

# The lock file that `locked` leaves in a folder.
LOCK = ".lock"


def write_atomically(path: Path, content: bytes) -> None:
    """Writes `content` to a temporary file and renames it: a reader sees the old content or the new, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


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
