"""The files of a run: config.toml, metrics.jsonl, checkpoint.safetensors, and results derived from them."""

import contextlib
import itertools
import json
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from ..config import Experiment, load_config
from ..errors import InvalidConfig, InvalidRun, UnknownKind, nearest
from ..files import LOCK, append_line, is_leftover, locked, read_text, remove_leftovers, write_atomically
from ..schema import flatten, to_table
from .stability import Stability, watched_metrics

CONFIG, METRICS, CHECKPOINT = "config.toml", "metrics.jsonl", "checkpoint.safetensors"
MOST_METRICS = 2**30
# Run folders that an error message names.
MOST_NAMED = 5
# Settings that may change when a run goes on: how long it trains.
LENGTH = ("training.steps", "training.stop", "training.patience")
# Results of the checkpoint, removed when training continues.
EVALUATION, SUMMARY = "evaluation.json", "summary.json"


class Figure(StrEnum):
    """The figures of a run. Writers in `plots` take their file names from here, so that none outlives its run."""

    UPDATES = "updates.png"
    CURVES = "curves.png"
    SAMPLES = "samples.png"
    EPISODES = "episodes.png"
    WEIGHTS = "weights.png"
    RELIABILITY = "reliability.png"
    TRAINING = "training.png"


class RunFolder:
    """A run folder. `open` reads its configuration once, `create` makes a new one.

    Args:
        path: the folder.
        experiment: what its config.toml holds.
    """

    def __init__(self, path: Path, experiment: Experiment):
        self.path, self.experiment = path, experiment
        self.checkpoint_file = path / CHECKPOINT

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """The run in `path`; InvalidRun if it has no valid config.toml."""
        config_file = path / CONFIG
        if not config_file.is_file():
            hint = f"Start one with: metafun train PRESET --out {path}"
            if (path / "final" / CONFIG).is_file():
                hint = f"The protocol left its model in {path / 'final'}"
            elif (path.parent / CONFIG).is_file():
                hint = f"The run is its folder, {path.parent}"
            elif runs := runs_in(path):
                others = f" and {len(runs) - MOST_NAMED} others" if len(runs) > MOST_NAMED else ""
                hint = f"It contains runs; name one of them: {', '.join(map(str, runs[:MOST_NAMED]))}{others}"
            elif near := nearest(str(path), map(str, {*runs_in(path.parent), *runs_in(Path("runs"))})):
                hint = f"Did you mean {' or '.join(near)}?"
            raise InvalidRun(f"{path} is not a run folder: it has no {CONFIG}. {hint}")
        try:
            # Settings may have been renamed since the file was written.
            with warnings.catch_warnings(action="ignore", category=FutureWarning):
                return cls(path, Experiment(load_config(str(config_file))))
        except UnknownKind as error:
            raise InvalidRun(f"{config_file}: {error} {error.remedy}") from None
        except InvalidConfig as error:
            raise InvalidRun(f"{path} is not a run folder: {error}") from None

    @classmethod
    def create(cls, path: Path, experiment: Experiment, *, overwrite: bool = False) -> "RunFolder":
        """Makes the folder. A folder that exists is refused, unless it is a run and may be overwritten."""
        cls._check_free(path, overwrite)
        path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            cls._check_free(path, overwrite)  # another process may have made it meanwhile
            remove_leftovers(path)
            _remove(path, CHECKPOINT, METRICS, EVALUATION, SUMMARY, *Figure)
            write_atomically(path / CONFIG, experiment.config.to_toml().encode())
        return cls(path, experiment)

    @classmethod
    def _check_free(cls, path: Path, overwrite: bool) -> None:
        if cls.is_free(path):
            return
        try:
            cls.open(path)
        except InvalidRun:
            raise InvalidRun(f"{path} exists and is not a run folder; choose another with --out.") from None
        if not overwrite:
            raise InvalidRun(
                f"{path} holds a run already; add --resume to continue it, --overwrite to replace it, "
                "or choose another --out."
            )

    @staticmethod
    def is_free(path: Path) -> bool:
        """Whether there is no folder, or one in which a run was killed before it began."""
        if not path.exists():
            return True
        return path.is_dir() and all(is_leftover(file) or file.name == LOCK for file in path.iterdir())

    def extend(self, experiment: Experiment) -> None:
        """Writes another configuration, which must differ in its length alone.

        The checkpoint keeps the former one until training goes on.
        """
        with self.lock():
            write_atomically(self.path / CONFIG, experiment.config.to_toml().encode())
        self.experiment = experiment

    def clear(self) -> None:
        """Removes all files of the run."""
        with self.lock():
            _remove(self.path, CHECKPOINT, METRICS, EVALUATION, SUMMARY, *Figure, CONFIG)

    def lock(self) -> contextlib.AbstractContextManager[None]:
        """Keeps other processes from training here."""
        return locked(self.path)

    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each chunk; lines broken by a crash, or of another number of models, are skipped."""
        models = len(self.experiment.variants) * len(self.experiment.training.seeds)
        file = self.path / METRICS
        text = read_text(file, MOST_METRICS, errors="replace") if file.exists() else ""
        entries: list[dict[str, Any]] = []
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if _is_entry(entry) and len(entry["loss"]) == models:
                entries.append(entry)
        return entries

    def append_metrics(self, entry: dict[str, Any]) -> None:
        """Adds the entry of one chunk. Results of an earlier checkpoint are removed."""
        _remove(self.path, EVALUATION, SUMMARY)
        append_line(self.path / METRICS, json.dumps(entry))

    def rewind_metrics(self, step: int) -> None:
        """Drops the entries after `step`: chunks after the checkpoint are trained again."""
        remove_leftovers(self.path)
        kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["step"] <= step]
        if kept:
            write_atomically(self.path / METRICS, "".join(kept).encode())
        else:
            _remove(self.path, METRICS)

    def stability(self) -> Stability:
        """Which losses have broken away so far."""
        # Losses that cannot be negative fall over orders of magnitude.
        return watched_metrics(self.metrics(), self.experiment.config.model.loss.kind != "gaussian")

    def steps_per_second(self) -> float | None:
        """Median over the chunks without validation and compilation; each step trains all seeds."""
        pairs = itertools.pairwise(entry for entry in self.metrics() if entry["step"])
        timed = [(a, b) for a, b in pairs if "validation" not in b and b["seconds"] > a["seconds"]]
        rates = [(b["step"] - a["step"]) / (b["seconds"] - a["seconds"]) for a, b in timed]
        return round(float(np.median(rates)), 1) if rates else None


def differing(a: Experiment, b: Experiment) -> list[str]:
    """The settings in which two experiments differ, by dotted key."""
    if a == b:
        return []
    old, new = (flatten(to_table(e.config)) for e in (a, b))
    return [key for key in {**old, **new} if old.get(key) != new.get(key)]


def runs_in(folder: Path) -> list[Path]:
    """The run folders directly inside a folder."""
    return sorted(path.parent for path in folder.glob(f"*/{CONFIG}")) if folder.is_dir() else []


def _is_entry(entry: Any) -> bool:
    """Whether a line has what training writes; another program may have changed it."""
    if not isinstance(entry, dict) or type(entry.get("step")) is not int or not 0 <= entry["step"] < 2**53:
        return False
    loss: Any = entry.get("loss")
    columns = (loss, entry.get("validation", loss))
    return _is_number(entry.get("seconds")) and all(
        isinstance(column, list) and len(column) == len(loss) and all(v is None or _is_number(v) for v in column)
        for column in columns
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < 1e300


def _remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
