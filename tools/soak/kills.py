"""Kills: work is killed at a random moment, or at a rename or removal, resumed, and compared with work that was not."""

import os
import random
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy

from metafun.config import load_config
from metafun.data import Table
from metafun.data.table_folder import finish_interrupted_save, open_table_folder, save_table
from metafun.training.run import Run

from .process import run_limited

MEMORY, SECONDS = 8 * 2**30, 120
TINY = ("iterations=2", "representation=8", "pooling.width=8", "update.width=8", "update.layers=1", "decoder.width=8")
SETTINGS = [f"model.{setting}" for setting in TINY]
SETTINGS += ["training.steps=60", "training.batch=4", "training.warmup=5", "training.chunk=10"]
SETTINGS += ["training.validate_every=20", "training.validation_tasks=20"]


class Work(NamedTuple):
    """Something that may be killed.

    Args:
        prepare: what must be there before.
        run: does it, or goes on with it, in a folder.
        result: what it leaves, to be compared.
    """

    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    result: Callable[[Path], Any]


def _train(folder: Path) -> None:
    for _ in Run.open(folder / "run", load_config("sinusoid", SETTINGS), resume=True).train():
        pass


def _tensors(folder: Path) -> dict[str, bytes]:
    arrays = safetensors.numpy.load_file(folder / "run" / "checkpoint.safetensors")
    return {name: array.tobytes() for name, array in arrays.items()}


def _table(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    labels = np.repeat([f"class {i}" for i in range(6)], 500)
    features = rng.normal(size=(3000, 16)).astype(np.float32)
    return Table.of("t", features, labels.tolist(), np.repeat(["train", "val", "test"], 1000).tolist())


def _import(folder: Path) -> None:
    save_table(_table(1), folder, "a test", overwrite=True)


def _imported(folder: Path) -> str:
    finish_interrupted_save(folder, "t")
    return open_table_folder(folder / "t").fingerprint


WORKS = {
    "training": Work(lambda folder: None, _train, _tensors),
    "import": Work(lambda folder: save_table(_table(0), folder, "a test"), _import, _imported),
}
# Where a process may be killed exactly, before or after.
CALLS = ("replace", "rename", "unlink", "fsync", "mkdir")


def expected(name: str, work: Path) -> Any:
    """What the work leaves when nothing kills it."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    WORKS[name].prepare(work)
    outcome = run_limited(lambda: WORKS[name].run(work), work, memory=MEMORY, seconds=SECONDS)
    if outcome.code:
        raise RuntimeError(f"{name} fails by itself: {outcome.text}")
    return WORKS[name].result(work)


def kill(seed: int, number: int, work: Path, references: dict[str, Any], counts: Counter) -> str | None:
    """Kills one piece of work up to three times, finishes it and compares; returns what went wrong.

    Args:
        seed: of the campaign.
        number: of the case.
        work: a folder to work in.
        references: results of work that was not killed, by name.
        counts: counts kills and identical resumes.
    """
    rng = random.Random(f"kill-{seed}-{number}")
    name = rng.choice(list(WORKS))
    piece = WORKS[name]
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    piece.prepare(work)
    for _ in range(rng.randrange(1, 4)):
        moment = _moment(rng)

        def run(moment: Callable[[], None] = moment) -> None:
            moment()
            piece.run(work)

        outcome = run_limited(run, work, memory=MEMORY, seconds=SECONDS)
        if outcome.code == 0:
            break
        if outcome.code != -signal.SIGKILL:
            return f"{name} {number}: {outcome.problem}"
        counts[f"{name} killed"] += 1
        if name == "import":
            _imported(work)  # the old table or the new one, always
    outcome = run_limited(lambda: piece.run(work), work, memory=MEMORY, seconds=SECONDS)
    if outcome.code or piece.result(work) != references[name]:
        return f"{name} {number}: not the same after a resume; {outcome.problem}"
    counts[f"{name} resumed identically"] += 1
    return None


def _moment(rng: random.Random) -> Callable[[], None]:
    """Arms the process: it is killed after some milliseconds, or at a call."""
    if rng.random() < 0.4:
        seconds = rng.random() ** 2 * 3
        return threading.Timer(seconds, _die).start
    name, count, after = rng.choice(CALLS), rng.choice((1, 1, 2, 3, 5, 8)), rng.random() < 0.5

    def arm() -> None:
        original, calls = getattr(os, name), iter(range(1, 10**9))

        def wrapped(*arguments: Any, **options: Any) -> Any:
            is_it = next(calls) == count
            if is_it and not after:
                _die()
            result = original(*arguments, **options)
            if is_it:
                _die()
            return result

        setattr(os, name, wrapped)

    return arm


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
