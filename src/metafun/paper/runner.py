"""Measures the cells of the paper: trains what a job describes, after a search where it has one, and evaluates it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from .. import __version__
from ..config import Config, load_space, resolve, with_changes
from ..errors import InvalidData
from ..files import locked
from ..training import protocol
from ..training.measure import measure
from ..training.progress import train
from ..training.run import Run
from .items import Address, Job, load_item
from .results import Measured, Results

# Training steps of a trial, at most.
TRIAL_STEPS = 2000


@dataclass(frozen=True)
class Runner:
    """Where jobs are measured.

    Args:
        runs: folder of run folders, one below it for each job.
        results: folder of paper.jsonl.
        data: replacements of data sets, as NAME=OTHER.
        console: shows progress.
    """

    runs: Path
    results: Path
    data: Sequence[str]
    console: Console

    def is_missing(self, job: Job, found: Results) -> bool:
        """Whether a cell of the job lacks a seed, with the job's settings and data."""
        try:
            data = job.experiment.tasks.fingerprint or ""
        except InvalidData:
            return True  # `measure` raises the error again
        seeds = set(job.config.training.seeds)
        return any(not seeds <= found.seeds(address, job.key, data) for address in job.addresses)

    def measure(self, job: Job) -> None:
        """Measures a job, from where it was stopped; Busy if another process is measuring it."""
        folder = self.runs / job.key
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "measuring"):
            found = Results(self.results)
            if self.is_missing(job, found):  # another process may have been faster
                found.append(self._measure(job, folder))

    def draw(self, names: Sequence[str], jobs: Sequence[Job]) -> Iterator[Path]:
        """The figures whose trained models are all available."""
        folders = {address: self._run_folder(job) for job in jobs for address in job.addresses}
        for name in names:
            paths = {address.row: path for address, path in folders.items() if address.item == name}
            draw = load_item(name).draw
            if draw not in ("comparison", "curves") or not all((p / "config.toml").exists() for p in paths.values()):
                continue
            from ..plots import compare, curves  # matplotlib is slow to import

            runs = {row: Run(path) for row, path in paths.items()}
            for suffix in (".png", ".svg"):
                path = self.results / f"{name}{suffix}"
                yield compare(runs, path) if draw == "comparison" else curves(next(iter(runs.values())), path)

    def _run_folder(self, job: Job) -> Path:
        """Other seeds are another run."""
        return self.runs / job.key / f"{len(job.config.training.seeds)}-seeds"

    def _measure(self, job: Job, folder: Path) -> list[Measured]:
        experiment, chosen = job.experiment, ""
        if job.search is not None:
            config, chosen = self._searched(job, experiment.config, folder / "search")
            experiment = resolve(config)
        if job.protocol:
            run, _ = protocol.run_protocol(self._run_folder(job), experiment, self.console, resume=True)
        else:
            run = Run.open(self._run_folder(job), experiment, resume=True)
            train(run, self.console)
        measured = measure(run, self.console)
        return [line for address in job.addresses for line in self._lines(job, address, run, measured, chosen)]

    def _lines(
        self, job: Job, address: Address, run: Run, measured: Mapping[str, Any], chosen: str
    ) -> Iterator[Measured]:
        metric = measured["metrics"][address.metric]
        for seed, value in zip(run.config.training.seeds, metric["seeds"], strict=True):
            yield Measured(
                **{name: getattr(address, name) for name in ("item", "row", "column", "metric")},
                seed=seed,
                value=_finite(value),
                interval=_finite(metric["interval"]),
                tasks=measured["test_tasks"],
                job=job.key,
                data=run.experiment.tasks.fingerprint or "",
                version=__version__,
                device=jax.local_devices()[0].device_kind,
                seconds=measured["train_seconds"],
                date=measured["date"],
                command=self._command(job, address),
                found=chosen,
            )

    def _command(self, job: Job, address: Address) -> str:
        """The command that measures this cell again."""
        words = ["metafun", "reproduce", address.item, "--only", address.row, "--seeds", len(job.config.training.seeds)]
        if job.search is not None:
            words += ["--trials", job.trials]
        used = [pair for pair in self.data if pair.partition("=")[2] == job.config.tasks.data]
        return shlex.join(map(str, [*words, *(word for pair in used for word in ("--data", pair))]))

    def _searched(self, job: Job, config: Config, folder: Path) -> tuple[Config, str]:
        """The best configuration on val, and the settings that the search chose."""
        from ..training import search  # Optuna is slow to import
        from ..training.search_progress import run_search

        assert job.search is not None
        steps = min(TRIAL_STEPS, config.training.steps)
        space = load_space(
            job.search, with_changes(config, {"training.seeds": [0], "training.steps": steps}), job.fixed
        )
        folder.mkdir(parents=True, exist_ok=True)
        study = search.open_study(job.key, str(folder / "study.journal"), space, pruner="none")
        # The cell names the worker: the trials drawn must not depend on the path of the data, as the key does.
        worker = str(job.addresses[0])
        progress = search.work(study, space, folder / "worker-0", worker=worker, trials=job.trials, batch=8)
        run_search(study, progress, job.trials, self.console)
        values = search.best(study).params
        chosen = {key: value for key, value in values.items() if key not in job.fixed}
        words = (
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in chosen.items()
        )
        return load_space(job.search, config, job.fixed).configure(values), ", ".join(words)


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None
