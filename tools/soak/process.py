"""One case in a process of its own, with limits on memory and time."""

import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from metafun.errors import MetaFunError, NotEnoughMemory

REFUSED, FAILED, FULL = 2, 70, 71


class Outcome(NamedTuple):
    """How a process ended.

    Args:
        code: 0 for read, `REFUSED` for a clear error, `FULL` for a lack of memory, anything else for a failure.
        seconds: how long it took.
        text: the traceback, or the clear error.
    """

    code: int
    seconds: float
    text: str

    @property
    def problem(self) -> str | None:
        """What must never happen; None if nothing did."""
        if self.code in (0, REFUSED):
            return None
        if self.code == -signal.SIGALRM:
            return f"it took more than {self.seconds:.0f} s"
        last = self.text.strip().splitlines()[-1] if self.text.strip() else "no message"
        return f"it took too much memory: {last}" if self.code == FULL else f"exit code {self.code}: {last}"


def run_limited(task: Callable[[], object], folder: Path, *, memory: int, seconds: int) -> Outcome:
    """Runs `task` in a fork of this process, which must not have begun to compute.

    Args:
        task: raises MetaFunError or OSError to refuse its input.
        folder: where its output goes.
        memory: bytes it may allocate beyond what this process has.
        seconds: the time it may take.
    """
    log, began = folder / "output.log", time.monotonic()
    if not (child := os.fork()):
        _run(task, log, memory, seconds)
    _, status = os.waitpid(child, 0)
    text = log.read_text("utf-8", errors="replace") if log.exists() else ""
    return Outcome(os.waitstatus_to_exitcode(status), time.monotonic() - began, text)


def _run(task: Callable[[], object], log: Path, memory: int, seconds: int) -> None:
    code = FAILED
    try:
        output = os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        limit_memory(memory)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        task()
        code = 0
    except (MetaFunError, OSError) as error:
        os.write(2, f"{error}\n".encode("utf-8", "replace"))
        code = FULL if lacked_memory(error) else REFUSED if len(str(error)) < 10_000 else FAILED
    except BaseException as error:
        traceback.print_exc()
        code = FULL if lacked_memory(error) else FAILED
    finally:
        os._exit(code)


def limit_memory(memory: int) -> None:
    """From now on, this process may allocate so many bytes beyond what it has."""
    used = int(Path("/proc/self/statm").read_text("utf-8").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))


def lacked_memory(error: BaseException | None) -> bool:
    """Whether an error comes from a lack of memory, also where a clear error replaced it."""
    while error is not None:
        if isinstance(error, MemoryError | NotEnoughMemory):
            return True
        error = error.__context__
    return False
