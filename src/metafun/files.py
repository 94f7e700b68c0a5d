"""Files that are whole or not there at all, and folders that one process works in at a time."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from .errors import Busy


def write_atomically(path: Path, content: bytes) -> None:
    """A temporary name, synced, then renamed: whoever reads `path` sees the old content or the new."""
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
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(folder: Path, doing: str = "training", *, wait: bool = False) -> Iterator[None]:
    """Keeps other processes out; the lock goes with the process, however that ends."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    except BlockingIOError:
        raise Busy(f"another process is {doing} in {folder}; wait for it, or choose another folder.") from None
    finally:
        os.close(handle)
