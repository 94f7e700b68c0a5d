"""The random search of the paper's Appendix: trials drawn independently; those of equal shape train together."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..config import Config, Space
from ..errors import Diverged, InvalidSearch
from ..files import locked, read_text, subfolder, write_atomically
from .progress import stop_signal
from .run import Run

# File of the time that a search has taken.
SECONDS = "seconds"
# Runs that train at once, each in a thread. One compiles while another trains.
MOST_THREADS = 8


@dataclass(frozen=True)
class Trial:
    """A trained configuration.

    Args:
        number: its number in the search.
        error: least validation error; infinite if its run diverged or its configuration is invalid.
        step: step of that error.
    """

    number: int
    error: float
    step: int


class RandomSearch:
    """A random search in a folder. It can stop at any moment, and continues from its run folders.

    Args:
        folder: gets one run folder for each group of trials that train together.
        space: what is searched.
        seed: of the draws.
        trials: how many configurations are drawn.
    """

    def __init__(self, folder: Path, space: Space, *, seed: int, trials: int):
        self.folder, self.space = folder, space
        self.values: dict[int, dict[str, Any]] = {number: space.draw(seed, number) for number in range(trials)}

    @property
    def seconds(self) -> float:
        """Time spent in `train`, over all sessions."""
        path = self.folder / SECONDS
        try:
            return float(read_text(path)) if path.exists() else 0.0
        except ValueError:
            raise InvalidSearch(f"{path} is not a number of seconds; remove it.") from None

    def train(self, console: Console) -> None:
        """Trains all trials; Ctrl-C stops after the current chunk of steps."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder, "searching"):
            before, began = self.seconds, time.monotonic()
            try:
                self._train(console)
            finally:
                write_atomically(self.folder / SECONDS, f"{before + time.monotonic() - began:.2f}".encode())

    def _train(self, console: Console) -> None:
        columns = (TextColumn("searching"), BarColumn(), MofNCompleteColumn(), TextColumn("trials"))
        with (
            stop_signal(console) as stopped,
            Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal) as bar,
            ThreadPoolExecutor(min(MOST_THREADS, max(1, (os.cpu_count() or 1) // 2))) as pool,
        ):
            task = bar.add_task("", total=len(self.values))

            def finish(group: Sequence[int], run: Run) -> None:
                if _trained(run, stopped):
                    bar.advance(task, len(group))

            futures = [pool.submit(finish, group, self._run(group)) for group in self._groups]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                stopped.set()  # the other runs end with their chunk
                raise
        if stopped.is_set():
            raise KeyboardInterrupt("the search was stopped; the same command continues it.")

    def trials(self) -> list[Trial]:
        """All trials in the order of their numbers; call it after `train`."""
        found = {number: Trial(number, np.inf, 0) for number in self.values}
        for group in self._groups:
            run = self._run(group)
            if not run.checkpoint_file.exists():  # it diverged in its first chunk
                continue
            record = run.record
            if record.step < run.config.training.end and not record.stopped_early:  # it diverged later
                continue
            for number, error, step in zip(group, record.best_error, record.best_step, strict=False):
                found[number] = Trial(number, error if np.isfinite(error) else np.inf, step)
        return list(found.values())

    def best(self) -> Trial:
        """The trial with the least validation error; InvalidSearch if all diverged."""
        found = min(self.trials(), key=lambda trial: trial.error)
        if not np.isfinite(found.error):
            raise InvalidSearch(f"{self.folder}: all {len(self.values)} trials diverged; narrow the space.")
        return found

    def config(self, trial: Trial) -> Config:
        """The configuration of a trial."""
        return self.space.configure(self.values[trial.number])

    @cached_property
    def _groups(self) -> list[list[int]]:
        return self.space.together(self.values)

    def _run(self, group: Sequence[int]) -> Run:
        config = self.space.combine([self.values[number] for number in group])
        return Run.open(subfolder(self.folder, f"trials-{group[0]:05}"), config, resume=True)


def _trained(run: Run, stopped: threading.Event) -> bool:
    """Trains a run; False if it was stopped before its end."""
    if stopped.is_set():  # before it compiles
        return False
    try:
        for _ in run.train():
            if stopped.is_set():
                return False
    except Diverged:
        pass
    return True
