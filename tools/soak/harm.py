"""What a file must not do, and how it is noticed."""

import os
from pathlib import Path

MEMORY, SECONDS = 2 * 2**30, 60
PRECIOUS = b"precious"
EXECUTED, LOST = "code was executed", "a file outside was changed"
# What must not happen, by words of the problem; anything else is a traceback.
KINDS = {"executed": EXECUTED, "over 2 GB": "too much memory", "over 60 s": "took more than", "lost files": LOST}


def kind(problem: str) -> str:
    """Which of the campaign's counts a problem belongs to."""
    return next((name for name, words in KINDS.items() if words in problem), "tracebacks")


def prepare(work: Path) -> None:
    """Writes a file that no reader may change; the data and caches of this process are in the folder from now on."""
    (work / "victim").write_bytes(PRECIOUS)
    os.environ |= {"METAFUN_DATA": str(work / "data"), "XDG_CACHE_HOME": str(work / "cache")}


def done_harm(work: Path) -> str | None:
    """What a file did to a folder beside being read, if anything."""
    if list(work.rglob("executed")):
        return EXECUTED
    victim = work / "victim"
    return None if victim.exists() and victim.read_bytes() == PRECIOUS else LOST
