"""Values in the text of a page, `<!-- value: NAME -->0.52<!-- /value -->`, each computed from the results."""

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from metafun.errors import InvalidResults
from metafun.paper import Measured, Results

from .paper_rows import NO_DATA, paper_rows
from .records import read_records

_VALUE = re.compile(r"(<!-- value: (\S+) -->)(.*?)(<!-- /value -->)", re.DOTALL)


def render_values(page: str, results: Path) -> str:
    """The page with every value between its markers computed anew.

    Args:
        page: the page's Markdown text.
        results: the folder of the .jsonl files.
    """

    def compute(found: re.Match[str]) -> str:
        start, name, _, end = found.groups()
        if name not in VALUES:
            raise InvalidResults(f"tools/report/values.py has no value '{name}'; add it, or correct the page.")
        return f"{start}{VALUES[name](results)}{end}"

    return _VALUE.sub(compute, page)


def record_of(results: Path, file: str, **fields: Any) -> dict[str, Any]:
    """The latest line of a file with these fields; InvalidResults if there is none."""
    lines = [line for line in read_records(results / f"{file}.jsonl") if fields.items() <= line.items()]
    if not lines:
        raise InvalidResults(f"{results / file}.jsonl has no line with {fields}; measure it, or change the text.")
    return lines[-1]


def mean_of(record: dict[str, Any], metric: str) -> float:
    """The mean of a metric over the seeds of a recorded run."""
    return record["metrics"][metric]["mean"]


def likelihood_loss(results: Path, *settings: str) -> tuple[float, float]:
    """What a change of `gp-bnp` costs in log-likelihood, and its share of that without the change.

    Args:
        results: the folder of results.
        settings: the change, as in gp-limits.jsonl.
    """
    before, after = (
        mean_of(record_of(results, "gp-limits", settings=list(each)), "log_likelihood_anyshot")
        for each in ((), settings)
    )
    return before - after, (before - after) / before


def image_rates(results: Path) -> dict[tuple[int, str], float]:
    """Images per second by channels and precision."""
    lines = read_records(results / "image-speed.jsonl")
    return {(line["channels"], line["precision"]): line["images_per_second"] for line in lines}


def our_sinusoid(results: Path) -> list[Measured]:
    """The seeds of our training on sinusoids."""
    return Results(results).latest("table1", "MetaFun, our training", "5-shot")


def _by_shots(shots: int) -> Callable[[Path], str]:
    return lambda results: f"{mean_of(record_of(results, 'sinusoid-by-shots'), f'mse_{shots}shot'):.2g}"


def _loss(*settings: str) -> Callable[[Path], str]:
    return lambda results: "{:.2f} ({:.0%})".format(*likelihood_loss(results, *settings)).replace("%", " %")


def _schedule_steps(record: dict[str, Any]) -> str:
    return f"{tomllib.loads(record['config'])['training']['steps']:,}"


def _shipped_training(name: str) -> Callable[[Path], str]:
    def text(results: Path) -> str:
        line = record_of(results, "shipped", checkpoint=name)
        return f"{line['steps']:,} steps in {line['train_seconds']:.0f} seconds"

    return text


def _omniglot(results: Path, run: str, ways: int, head: str | None = None) -> list[float]:
    """Accuracies of a run in per cent, with one shot and with five."""
    lines = [line for line in read_records(results / "omniglot.jsonl") if line.get("head") == head]
    (line,) = (line for line in lines if line["run"] == f"omniglot-{run}")
    return [100 * mean_of(line, f"accuracy_{ways}way_{shots}shot") for shots in (1, 5)]


def _update_gains(results: Path) -> Iterator[float]:
    """What the functional updates add to the nearest class mean."""
    for ways in (5, 20):
        for shots in (1, 5):
            run = f"{ways}way-{shots}shot"
            pairs = zip(_omniglot(results, run, ways), _omniglot(results, run, ways, "nearest mean"), strict=True)
            yield from (updated - mean for updated, mean in pairs)


def _fewer_class_losses(results: Path) -> Iterator[float]:
    """What training with 20 classes instead of 5 costs on tasks with 5."""
    for shots in (1, 5):
        pairs = zip(
            _omniglot(results, f"5way-{shots}shot", 5), _omniglot(results, f"20way-{shots}shot", 5), strict=True
        )
        yield from (few - many for few, many in pairs)


def _half_precision_gains(results: Path) -> list[float]:
    rates = image_rates(results)
    return [rates[channels, "bfloat16"] / rates[channels, "float32"] for channels in (64, 128)]


def _range(values: Callable[[Path], Any]) -> Callable[[Path], str]:
    def text(results: Path) -> str:
        found = list(values(results))
        return f"{min(found):.2g} to {max(found):.2g}"

    return text


def _measured_cells(results: Path) -> str:
    """How many of Table 3's cells whose data are available have been measured."""
    cells = [cell for row in paper_rows("table3", results) for cell in row.cells]
    available = [cell for cell in cells if cell.value(percent=True) != NO_DATA]
    return f"{sum(bool(cell.lines) for cell in available)} of {len(available)}"


def _table_limit(name: str) -> Callable[[Path], str]:
    return lambda results: f"{read_records(results / 'table-limits.jsonl')[-1][name]:.2g}"


VALUES: dict[str, Callable[[Path], str]] = {
    "sensors-seeds": lambda results: str(len(read_records(results / "sensors.jsonl")[-1]["seeds"])),
    "time-over-logistic": _table_limit("fit_and_predict_over_logistic_regression"),
    "time-over-forest": _table_limit("fit_and_predict_over_random_forest"),
    "sinusoid-seeds": lambda results: str(len(our_sinusoid(results))),
    "sinusoid-steps": lambda results: f"{our_sinusoid(results)[0].steps:,}",
    "sinusoid-seconds": lambda results: f"{our_sinusoid(results)[0].seconds:.0f}",
    "sinusoid-1-point": _by_shots(1),
    "sinusoid-2-points": _by_shots(2),
    "sinusoid-3-points": _by_shots(3),
    "table3-measured": _measured_cells,
    "neural-process-steps": lambda results: f"{record_of(results, 'gp', run='gp-bnp-np')['steps']:,}",
    "neural-process-schedule": lambda results: _schedule_steps(record_of(results, "gp", run="gp-bnp-np")),
    "limits-steps": lambda results: f"{record_of(results, 'gp-limits')['steps']:,}",
    "limits-tasks": lambda results: f"{record_of(results, 'gp-limits')['test_tasks']:,}",
    "loss-with-one-update": _loss("model.iterations=1"),
    "loss-with-one-head": _loss("model.pooling.heads=1"),
    "loss-with-min-std": _loss("model.loss.min_std=0.1"),
    "tables-classification-training": _shipped_training("tables-classification"),
    "tables-regression-training": _shipped_training("tables-regression"),
    "omniglot-update-gains": _range(_update_gains),
    "omniglot-fewer-class-losses": _range(_fewer_class_losses),
    "half-precision-gains": _range(_half_precision_gains),
    "teraflops": lambda results: (
        f"{max(line['teraflops'] for line in read_records(results / 'image-speed.jsonl')):.0f}"
    ),
}
