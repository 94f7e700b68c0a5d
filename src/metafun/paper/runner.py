"""Measures the cells of the paper: trains what a job describes, after a search where it has one, and evaluates it."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from ..config import Config, load_space, resolve, with_changes
from ..errors import InvalidData
from ..files import PROCESSES, append_json, locked, present
from ..training import protocol
from ..training.measure import finite, measure, origin
from ..training.progress import train
from ..training.random_search import RandomSearch
from ..training.run import Run
from .items import Address, Job, load_item
from .results import Measured, Results, Searched

# Training steps of a trial, at most: those of the authors' search.
TRIAL_STEPS = 1000


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
        with locked(folder, "measuring"), present(self.runs / PROCESSES) as others:
            found = Results(self.results)
            if self.is_missing(job, found):  # another process may have been faster
                found.append(self._measure(job, folder, others))

    def draw(self, names: Sequence[str], jobs: Sequence[Job]) -> Iterator[Path]:
        """The figures whose trained models are all available."""
        addresses = {address: self._run_folder(job) for job in jobs for address in job.addresses}
        for name in names:
            rows: dict[Path, str] = {}
            for address, path in addresses.items():
                if address.item == name:
                    rows.setdefault(path, address.row)  # one panel for rows of the same run, such as the exact GP's
            if load_item(name).draw != "comparison" or not all((path / "config.toml").exists() for path in rows):
                continue
            from ..plots import compare  # matplotlib is slow to import

            runs = {row: Run(path) for path, row in rows.items()}
            for suffix in (".png", ".svg"):
                yield compare(runs, self.results / f"{name}{suffix}")

    def _run_folder(self, job: Job) -> Path:
        """Other seeds are another run."""
        return self.runs / job.key / f"{len(job.config.training.seeds)}-seeds"

    def _measure(self, job: Job, folder: Path, others: Callable[[], int]) -> list[Measured]:
        experiment, chosen, before = job.experiment, "", others()
        if job.search is not None:
            config, chosen = self._searched(job, experiment.config, folder / "search", others)
            experiment = resolve(config)
        if job.protocol:
            run, tuned = protocol.run_protocol(self._run_folder(job), experiment, self.console, resume=True)
        else:
            run, tuned = Run.open(self._run_folder(job), experiment, resume=True), {"seconds": 0.0}
            train(run, self.console)
        measured = measure(run, self.console) | {"found": chosen, "beside": max(before, others())}
        measured["train_seconds"] += tuned["seconds"]
        return [line for address in job.addresses for line in self._lines(job, address, run, measured)]

    def _lines(self, job: Job, address: Address, run: Run, measured: Mapping[str, Any]) -> Iterator[Measured]:
        metric = measured["metrics"][address.metric]
        each = zip(run.config.training.seeds, metric["seeds"], measured["broke_away"], strict=True)
        for seed, value, broke_away in each:
            yield Measured(
                **asdict(address),
                seed=seed,
                value=finite(value),
                interval=finite(metric["interval"]),
                tasks=measured["test_tasks"],
                job=job.key,
                **{name: measured[name] for name in ("data", "version", "device", "date", "found", "steps", "beside")},
                seconds=measured["train_seconds"],
                command=self._command(job, address),
                broke_away=broke_away,
            )

    def _command(self, job: Job, address: Address) -> str:
        """The command that measures this cell again."""
        words = ["metafun", "reproduce", address.item, "--only", address.row, "--seeds", len(job.config.training.seeds)]
        if job.search is not None:
            words += ["--trials", job.trials]
        used = [pair for pair in self.data if pair.partition("=")[2] == job.config.tasks.data]
        return shlex.join(map(str, [*words, *(word for pair in used for word in ("--data", pair))]))

    def _searched(self, job: Job, config: Config, folder: Path, others: Callable[[], int]) -> tuple[Config, str]:
        """The best configuration on val, and the settings that the search chose."""
        assert job.search is not None
        steps = min(TRIAL_STEPS, config.training.steps)
        short = with_changes(config, {"training.seeds": [0], "training.steps": steps})
        space = load_space(job.search, short, job.fixed)
        search = RandomSearch(folder, space, seed=job.search_seed, trials=job.trials)
        before = others()
        search.train(self.console)
        self._record_search(job, search, max(before, others()))
        best = search.best()
        values = search.values[best.number]
        self.console.print(f"trial {best.number}: validation error {best.error:.5f} after {best.step} steps")
        chosen = {key: value for key, value in values.items() if key not in job.fixed}
        words = (
            f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in chosen.items()
        )
        return load_space(job.search, config, job.fixed).configure(values), ", ".join(words)

    def _record_search(self, job: Job, search: RandomSearch, beside: int) -> None:
        """Adds a line to searches.jsonl for each cell that the search is for."""
        trials = search.trials()
        for address in job.addresses:
            line = Searched(
                item=address.item,
                row=address.row,
                column=address.column,
                job=job.key,
                data=job.experiment.tasks.fingerprint or "",
                **origin(),
                command=self._command(job, address),
                seed=job.search_seed,
                errors=tuple(finite(trial.error) for trial in trials),
                steps=tuple(trial.step for trial in trials),
                seconds=search.seconds,
                beside=beside,
            )
            append_json(self.results / "searches.jsonl", asdict(line))
