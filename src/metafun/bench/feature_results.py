"""Results on features: one line for each method, table and number of shots."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from ..schema import parse
from .feature_cases import Case, Setup, contenders, job_hash
from .lines import add_line, read_lines

METRICS = ("accuracy", "log_likelihood", "ece")


@dataclass(frozen=True)
class FeatureCell:
    """One method on one table of features, with one number of classes and shots, by the paper's protocol.

    Args:
        data: name of the table.
        method: name of the method.
        ways: classes of a task.
        shots: context rows of each class.
        metrics: for each of `METRICS` its value for each seed; None where it was not finite.
        intervals: for each metric half of the 95 % interval of the mean over the test tasks, where there is one.
        tasks: number of test tasks.
        steps: training steps that were chosen on val.
        validation_error: mean over the seeds after these steps; None if it was not finite.
        seconds: of all trainings of the protocol, all seeds together.
        job: hash of what was trained.
        settings: changes of the method's settings, as `key=value`.
        fingerprint: SHA-256 of the table.
        seeds: seeds of the models.
        command: the command that measures the cell again.
        device: kind of device.
        version: of metafun.
        date: ISO date.
        beside: other processes of the benchmark that shared the device; None if that was not recorded.
        broke_away: for each seed the step at which the loss of its final training broke away, or None.
    """

    data: str
    method: str
    ways: int
    shots: int
    metrics: dict[str, tuple[float | None, ...]]
    intervals: dict[str, float | None]
    tasks: int
    steps: int
    validation_error: float | None
    seconds: float
    job: str
    settings: tuple[str, ...]
    fingerprint: str
    seeds: tuple[int, ...]
    command: str
    device: str
    version: str
    date: str
    beside: int | None
    broke_away: tuple[int | None, ...] = ()

    def __post_init__(self) -> None:
        counts = {len(self.metrics.get(name, ())) for name in METRICS}
        if counts != {len(self.seeds)} or 0 in counts:
            raise ValueError("its metrics are missing, or not one for each seed")

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies a cell in the file."""
        return self.fingerprint, self.method, self.job

    @property
    def is_current(self) -> bool:
        """Whether the method still has the settings that were measured."""
        setup = Setup(self.ways, self.shots, len(self.seeds), self.tasks, self.settings)
        method = contenders().get(self.method)
        return method is not None and job_hash(method, setup) == self.job

    def mean_std(self, metric: str) -> tuple[float, float] | None:
        """Mean and standard deviation over the seeds (0 for a single one); None if a seed's value is not finite."""
        values = [value for value in self.metrics[metric] if value is not None]
        if len(values) < len(self.seeds):
            return None
        return fmean(values), stdev(values) if len(values) > 1 else 0.0


def read_feature_cells(path: Path) -> list[FeatureCell]:
    """The cells of a .jsonl file, the latest last; none if there is no file."""
    return read_lines(path, partial(parse, FeatureCell))


def add_feature_cell(path: Path, cell: FeatureCell) -> None:
    """Adds a cell to the file, in place of one with the same settings and data but fewer seeds.

    Args:
        path: the .jsonl file.
        cell: the measured cell.
    """
    add_line(path, cell, partial(parse, FeatureCell))


def find_cell(cells: Iterable[FeatureCell], case: Case) -> FeatureCell | None:
    """The cell with the settings, the data and at least the seeds of a case, if there is one."""
    key, seeds = (case.fingerprint, case.contender.name, case.job), set(case.experiment.training.seeds)
    return next((cell for cell in cells if cell.key == key and seeds <= set(cell.seeds)), None)


def latest_cells(cells: Iterable[FeatureCell]) -> list[FeatureCell]:
    """The latest cell of each table, number of classes and shots, and method; methods in the benchmark's order.

    Args:
        cells: the latest last.
    """
    newest = {(cell.data, cell.ways, cell.shots, cell.method): cell for cell in cells}
    tables, methods = list(dict.fromkeys(data for data, *_ in newest)), list(contenders())

    def order(cell: FeatureCell) -> tuple[int, int, int, int]:
        place = methods.index(cell.method) if cell.method in methods else len(methods)
        return tables.index(cell.data), cell.ways, cell.shots, place

    return sorted(newest.values(), key=order)
