"""Benchmark on tables of features: few-shot methods by the paper's protocol, and their figure."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from ..files import PROCESSES, locked, present
from ..training.measure import finite, measure
from ..training.protocol import run_protocol
from .feature_cases import Case, contenders
from .feature_results import METRICS, FeatureCell, add_feature_cell, find_cell, latest_cells, read_feature_cells


@dataclass(frozen=True)
class FeatureBenchmark:
    """Where cases are measured.

    Args:
        runs: folder of run folders, one below it for each case.
        results: the .jsonl file.
        console: shows progress.
    """

    runs: Path
    results: Path
    console: Console

    def missing(self, cases: Sequence[Case]) -> list[Case]:
        """The cases that the file of results does not have."""
        cells = read_feature_cells(self.results)
        return [case for case in cases if find_cell(cells, case) is None]

    def found(self, cases: Sequence[Case]) -> list[FeatureCell]:
        """The measured cells of those cases that the file of results has."""
        cells = read_feature_cells(self.results)
        return [cell for case in cases if (cell := find_cell(cells, case)) is not None]

    def measure(self, case: Case) -> None:
        """Measures a case, from where it was stopped; Busy if another process is measuring it."""
        folder = self.runs / f"{case.job}-{case.fingerprint[:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder, "measuring"), present(self.runs / PROCESSES) as others:
            if self.missing([case]):  # another process may have been faster
                add_feature_cell(self.results, self._measure(case, folder, others))

    def _measure(self, case: Case, folder: Path, others: Callable[[], int]) -> FeatureCell:
        setup, before = case.setup, others()
        folder = folder / f"{setup.seeds}-seeds"  # other seeds are other runs
        run, chosen = run_protocol(folder, case.experiment, self.console, resume=True)
        measured = measure(run, self.console)
        found = {name: measured["metrics"][f"{name}_{setup.ways}way_{setup.shots}shot"] for name in METRICS}
        return FeatureCell(
            data=case.data,
            method=case.contender.name,
            ways=setup.ways,
            shots=setup.shots,
            metrics={name: tuple(map(finite, metric["seeds"])) for name, metric in found.items()},
            intervals={name: finite(metric["interval"]) for name, metric in found.items()},
            tasks=measured["test_tasks"],
            steps=chosen["step"],
            validation_error=finite(chosen["error"]),
            seconds=round(chosen["seconds"] + measured["train_seconds"], 2),
            job=case.job,
            settings=setup.settings,
            fingerprint=case.fingerprint,
            seeds=tuple(measured["seeds"]),
            command=_command(case),
            beside=max(before, others()),
            broke_away=tuple(measured["broke_away"]),
            **{name: measured[name] for name in ("device", "version", "date")},
        )


def _command(case: Case) -> str:
    """The command that measures this case again."""
    setup = case.setup
    words = ["metafun", "bench", "features", "--data", case.source, "--only", case.contender.name]
    for name in ("ways", "shots", "seeds", "tasks"):
        words += [f"--{name}", str(getattr(setup, name))]
    return shlex.join([*words, *(word for setting in setup.settings for word in ("--set", setting))])


def draw_accuracies(cells: Sequence[FeatureCell], path: Path) -> Path:
    """Draws the accuracy of each method: a column for each table, a row for each number of classes and shots.

    Args:
        cells: measured cells, at least one; the latest of each panel and method is drawn.
        path: the figure's file.
    """
    from ..plots.features import Panel, plot_features

    latest = latest_cells(cells)
    kinds = sorted({(cell.ways, cell.shots) for cell in latest})
    panels = []
    for ways, shots in kinds:
        for data in dict.fromkeys(cell.data for cell in latest):
            there = [cell for cell in latest if (cell.data, cell.ways, cell.shots) == (data, ways, shots)]
            scores = {cell.method: score for cell in there if (score := cell.mean_std("accuracy")) is not None}
            panels.append(Panel(f"{data}\n{ways}-way {shots}-shot", scores))
    ours = {contender.name for contender in contenders().values() if contender.ours}
    return plot_features(panels, len(kinds), ours, path)
