"""Kills: work is killed at a random moment, or at a rename or removal, resumed, and compared with work that was not."""

import contextlib
import json
import operator
import os
import pickle
import random
import shutil
import signal
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import optuna
import safetensors.numpy
from filelock import FileLock
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from metafun.cli import app
from metafun.config import load_config
from metafun.data import Table
from metafun.data.table import fingerprint
from metafun.data.table_folder import finish_interrupted_save, open_table_folder, save_table
from metafun.estimators.trained import open_trained
from metafun.files import write_atomically
from metafun.play.curves import CurveModel
from metafun.play.glyphs import GlyphModel, encode_picture, letters
from metafun.play.server import Playground
from metafun.play.serving import bind, make_server
from metafun.training.run import Run

from .process import run_limited

MEMORY, SECONDS = 8 * 2**30, 600
TINY = ("iterations=2", "representation=8", "pooling.width=8", "update.width=8", "update.layers=1", "decoder.width=8")
SETTINGS = [f"model.{setting}" for setting in TINY]
SETTINGS += ["training.steps=60", "training.batch=4", "training.warmup=5", "training.chunk=10"]
SETTINGS += ["training.validate_every=20", "training.validation_tasks=20"]
OPTIONS = [word for setting in SETTINGS if "steps=" not in setting for word in ("--set", setting)]
FIT_SETTINGS = ("training.chunk=10", "training.validate_every=20", "training.batch=4", "training.validation_tasks=20")
FIT = ["--steps", "40", *(word for setting in FIT_SETTINGS for word in ("--set", setting))]
RATES = [0.001, 0.01]


class Work(NamedTuple):
    """Something that may be killed.

    Args:
        prepare: what must be there before.
        run: does it, or goes on with it, in a folder.
        result: what it leaves.
        agrees: whether that agrees with what is left when nothing is killed.
        check: what is wrong after a kill and before the work goes on, if anything.
    """

    prepare: Callable[[Path], None]
    run: Callable[[Path], None]
    result: Callable[[Path], Any]
    agrees: Callable[[Any, Any], bool] = operator.eq
    check: Callable[[Path], str | None] = lambda folder: None


def _train(folder: Path) -> None:
    for _ in Run.open(folder / "run", load_config("sinusoid", SETTINGS), resume=True).train():
        pass


def _tensors(path: Path) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in safetensors.numpy.load_file(path).items()}


def _command(*words: str | Path) -> None:
    if code := app([str(word) for word in words], standalone_mode=False):
        raise RuntimeError(f"exit code {code}")


def _table(seed: int) -> Table:
    rng = np.random.default_rng(seed)
    labels = np.repeat([f"class {i}" for i in range(6)], 500)
    features = rng.normal(size=(3000, 16)).astype(np.float32)
    return Table.of("t", features, labels.tolist(), np.repeat(["train", "val", "test"], 1000).tolist())


TABLES = {_table(seed).fingerprint for seed in (0, 1)}


def _import(folder: Path) -> None:
    save_table(_table(1), folder, "a test", overwrite=True)


def _imported(folder: Path) -> str:
    """The hash of what is there, whatever the table says of itself."""
    finish_interrupted_save(folder, "t")
    table = open_table_folder(folder / "t")
    return fingerprint(table.features, table.classes)


def _torn(folder: Path) -> str | None:
    return None if _imported(folder) in TABLES else "the table is neither the old one nor the new one"


def _classes(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{label}" for label in range(10) for a, b in label + rng.random((12, 2))]
    (folder / "classes.csv").write_text("\n".join(["a,b,label", *rows, ""]), "utf-8")


def _fit(folder: Path) -> None:
    if not (folder / "model.safetensors").exists():
        _command("fit", folder / "classes.csv", "--target", "label", "--out", folder / "model.safetensors", *FIT)


def _space(folder: Path) -> None:
    (folder / "space.toml").write_text(f'["training.learning_rate"]\nchoices = {RATES}\n', "utf-8")


def _search(folder: Path) -> None:
    resume = ["--resume"] if (folder / "search").exists() else []
    words = ("--trials", "4", "--batch", "1", "--steps", "30", "--pruner", "none", *resume)
    _command("search", "sinusoid", "--space", folder / "space.toml", "--out", folder / "search", *words, *OPTIONS)


def _searched(folder: Path) -> list[tuple[float, float | None]]:
    """The learning rate and error of each trial that has not failed; read without JAX, which must not be forked."""
    storage = JournalStorage(JournalFileBackend(str(folder / "search" / "study.journal")))
    trials = optuna.load_study(study_name="search", storage=storage).get_trials(deepcopy=False)
    return [(t.params["training.learning_rate"], t.value) for t in trials if t.state != TrialState.FAIL]


def _no_trial_lost(found: list[Any], expected: list[Any]) -> bool:
    """Trials that were being drawn are drawn again, perhaps with the other rate; equal rates give equal errors."""
    return len(found) == len(expected) and set(found) <= set(expected)


def _reproduce(folder: Path) -> None:
    words = ("table1", "--only", "Original MAML", "--seeds", "1", "--smoke")
    _command("reproduce", *words, "--results", folder / "results", "--out", folder / "runs")


def _reproduced(folder: Path) -> list[tuple[str, float]]:
    lines = (folder / "results" / "paper.jsonl").read_text("utf-8").splitlines()
    return sorted((line["column"], line["value"]) for line in map(json.loads, lines))


def _play(folder: Path) -> None:
    """Asks the page's server what a visitor asks; answers that are there already are not asked for again."""
    curves = CurveModel("sinusoid", open_trained("sinusoid"))
    playground = Playground({curves.name: curves}, GlyphModel("glyphs", open_trained("glyphs")))
    with contextlib.closing(bind(0)) as sock:
        server, address = make_server(playground, sock)
        threading.Thread(target=server.run, args=([sock],), daemon=True).start()
        for i, (path, body) in enumerate(_questions()):
            if not (kept := folder / f"{i}.answer").exists():
                with urllib.request.urlopen(urllib.request.Request(address + path, body)) as answer:
                    write_atomically(kept, answer.read())


def _questions() -> list[tuple[str, bytes]]:
    points = [[-2.0, 0.5], [0.3, -1.0], [1.7, 2.0]]
    examples = [{"label": label, "picture": encode_picture(seen)} for label, seen in letters()]
    asked: list[tuple[str, Any]] = [("curves", {"model": "sinusoid", "points": points[:n]}) for n in range(4)]
    strokes = [[[0.0, 1.0], [0.5, 0.0], [1.0, 1.0], [0.0, 1.0]]]
    asked += [("letters", {}), ("glyphs", {"strokes": strokes, "examples": examples}), ("example", {})]
    return [*((path, json.dumps(content).encode()) for path, content in asked), ("table?name=a.csv", b"a,b\n1,\n2,3\n")]


def _answers(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.answer")}


WORKS = {
    "training": Work(lambda folder: None, _train, lambda folder: _tensors(folder / "run" / "checkpoint.safetensors")),
    "import": Work(lambda folder: save_table(_table(0), folder, "a test"), _import, _imported, check=_torn),
    "fit": Work(_classes, _fit, lambda folder: _tensors(folder / "model.safetensors")),
    "search": Work(_space, _search, _searched, _no_trial_lost),
    "reproduce": Work(lambda folder: None, _reproduce, _reproduced),
    "play": Work(lambda folder: None, _play, _answers),
}
# Where a process may be killed exactly, before or after.
CALLS = ("replace", "rename", "unlink", "rmdir", "fsync", "mkdir", "link")


class Reference(NamedTuple):
    """What work leaves when nothing kills it, how many calls of `CALLS` it makes, and its seconds."""

    result: Any
    calls: int
    seconds: float


def expected(name: str, work: Path) -> Reference:
    """Does the work without killing it."""
    (work / "folder").mkdir(parents=True)
    WORKS[name].prepare(work / "folder")

    def run() -> None:
        calls = iter(range(10**9))
        _at_calls(lambda: next(calls))
        WORKS[name].run(work / "folder")
        (work / "calls").write_text(str(next(calls)), "utf-8")

    outcome = run_limited(run, work, memory=MEMORY, seconds=SECONDS)
    if outcome.code:
        raise RuntimeError(f"{name} fails by itself: {outcome.problem}; {outcome.text}")
    calls = int((work / "calls").read_text("utf-8"))
    return Reference(WORKS[name].result(work / "folder"), calls, outcome.seconds)


class References(dict[str, Reference]):
    """What each work leaves when nothing kills it; the work is done once, when a worker first asks for it.

    Args:
        folder: where it is done; workers share it.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, name: str) -> Reference:
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = self.folder / f"{name}.pickle"
        with FileLock(f"{stored}.lock"):
            if not stored.exists():
                stored.write_bytes(pickle.dumps(expected(name, self.folder / name)))
        self[name] = pickle.loads(stored.read_bytes())
        return self[name]


def kill(seed: int, number: int, work: Path, references: dict[str, Reference], counts: Counter) -> str | None:
    """Kills one piece of work up to three times, finishes it and compares; returns what went wrong.

    Args:
        seed: of the campaign.
        number: of the case.
        work: a folder to work in.
        references: the work that was not killed, by name.
        counts: counts kills and identical resumes.
    """
    rng = random.Random(f"kill-{seed}-{number}")
    name = rng.choice(list(WORKS))
    piece = WORKS[name]
    _start(piece, work)
    killed = 0
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        moment = _moment(rng, references[name])

        def run(moment: Callable[[], None] = moment) -> None:
            moment()
            piece.run(work)

        outcome = run_limited(run, work, memory=MEMORY, seconds=SECONDS)
        if outcome.code == 0 and not killed:
            # The timer was late, since programs are compiled by now: the work is done again and killed at a call.
            references[name] = references[name]._replace(seconds=outcome.seconds)
            _start(piece, work)
            moment = _call(rng, references[name])
            outcome = run_limited(partial(run, moment), work, memory=MEMORY, seconds=SECONDS)
        if outcome.code == 0:
            break
        if outcome.code != -signal.SIGKILL:
            return f"{name} {number}: {outcome.problem or outcome.text[-300:].strip()}"
        killed += 1
        if problem := piece.check(work):
            counts["lost works"] += 1
            return f"{name} {number}: {problem}"
    outcome = run_limited(lambda: piece.run(work), work, memory=MEMORY, seconds=SECONDS)
    if outcome.code or not piece.agrees(piece.result(work), references[name].result):
        counts["lost works"] += 1
        return f"{name} {number}: not the same after a resume; {outcome.problem or outcome.text[-300:].strip()}"
    if killed:
        counts[f"{name} killed"] += killed
        counts[f"{name} resumed identically"] += 1
    return None


def _start(piece: Work, work: Path) -> None:
    """The work begins anew, in an empty folder."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    piece.prepare(work)


def _moment(rng: random.Random, reference: Reference) -> Callable[[], None]:
    """Arms the process: it is killed at some time, or before or after a call."""
    if rng.random() < 0.4:
        return threading.Timer(rng.random() * reference.seconds, _die).start
    return _call(rng, reference)


def _call(rng: random.Random, reference: Reference) -> Callable[[], None]:
    """Arms the process: it is killed before or after a call."""
    number, is_after = rng.randrange(reference.calls), rng.random() < 0.5
    moments = iter(range(10**9))

    def act() -> None:
        if next(moments) == 2 * number + is_after:
            _die()

    return lambda: _at_calls(act, before_too=True)


def _at_calls(act: Callable[[], object], *, before_too: bool = False) -> None:
    """From now on, `act` is called after each call of `CALLS`, and before it."""
    for name in CALLS:
        setattr(os, name, _surrounded(getattr(os, name), act, before_too=before_too))


def _surrounded(call: Callable[..., Any], act: Callable[[], object], *, before_too: bool) -> Callable[..., Any]:
    def wrapped(*arguments: Any, **options: Any) -> Any:
        if before_too:
            act()
        result = call(*arguments, **options)
        act()
        return result

    return wrapped


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
