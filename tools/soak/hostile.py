"""Hostile files: each is read in a limited process; a failure is made smaller and kept."""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

from .formats import FORMATS
from .harm import MEMORY, SECONDS, done_harm, kind, prepare
from .mutations import mutate, shrink
from .process import REFUSED, run_limited


def attack(seed: int, number: int, work: Path, kept: Path, counts: Counter) -> str | None:
    """Makes and reads one hostile file; returns what went wrong, after the file was stored in `kept`.

    Args:
        seed: of the campaign.
        number: of the case; with the seed it determines the file.
        work: an empty folder to work in.
        kept: where reproducers go.
        counts: counts cases by format and outcome.
    """
    rng = random.Random(f"{seed}-{number}")
    name = rng.choice(list(FORMATS))
    form = FORMATS[name]
    content = form.hostile(rng) if form.hostile and rng.random() < 0.5 else mutate(form.good(), rng)
    problem, refused = _read(name, content, work)
    counts[f"{name} {'refused' if refused else 'read'}"] += 1
    if problem is None:
        return None
    counts[kind(problem)] += 1
    smaller = shrink(content, lambda shorter: _read(name, shorter, work)[0] is not None)
    kept.mkdir(parents=True, exist_ok=True)
    path = kept / f"{name}-{seed}-{number}"
    path.write_bytes(smaller)
    return f"{name} {number}: {problem}; {len(smaller):,} bytes in {path}"


def _read(name: str, content: bytes, work: Path) -> tuple[str | None, bool]:
    """What went wrong, and whether the file was refused."""
    shutil.rmtree(work, ignore_errors=True)
    path = work / "received" / FORMATS[name].name
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    prepare(work)

    def task() -> None:
        os.chdir(work)
        FORMATS[name].read(path)

    outcome = run_limited(task, work, memory=MEMORY, seconds=SECONDS)
    if harm := done_harm(work):
        return harm, False
    return outcome.problem, outcome.code == REFUSED
