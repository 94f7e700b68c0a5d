"""MetaFun beside what a reader would use otherwise: the table of the README, and that of docs/which.md."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from metafun.bench.collection_data import BUNDLED
from metafun.bench.collection_methods import FOREST_GP, META_FIT
from metafun.bench.collection_results import compare
from metafun.bench.contenders import METAFUN
from metafun.bench.results import read_cells, summary
from metafun.paper import Results

from .cells import MISSING
from .collection_benchmark import newest_cells
from .markdown import table
from .records import read_records
from .values import mean_of, record_of


class Comparison(NamedTuple):
    """One comparison.

    Args:
        name: what is compared with MetaFun.
        where: what was measured, and on what.
        ours, other: the values.
        page: the page of docs/ that has more.
        is_short: whether the README has it.
    """

    name: str
    where: str
    ours: str
    other: str
    page: str
    is_short: bool = False


def render_short_comparison(results: Path) -> str:
    """The README's table."""
    rows = (
        (f"[{c.where}](docs/{c.page})", c.ours, f"{c.other} ({c.name})") for c in comparisons(results) if c.is_short
    )
    return table(("measured", "MetaFun", "the alternative"), rows)


def render_comparison(results: Path) -> str:
    """All comparisons, by the alternative."""
    rows = ((c.name, f"[{c.where}]({c.page})", c.ours, c.other) for c in comparisons(results))
    return table(("alternative", "measured", "MetaFun", "alternative"), rows)


def comparisons(results: Path) -> Iterator[Comparison]:
    """Every comparison, in the order of the tables."""
    yield from _sensors(results)
    yield _collections(results)
    yield from _tables(results)
    yield _interactions(results)
    yield from _curves(results)
    yield from _paper(results)
    yield from _prototypes(results)


def last_sensors(results: Path) -> dict[str, Any]:
    """The last line of scripts/sensors.py."""
    return read_records(results / "sensors.jsonl")[-1]


def mean_rmse(line: dict[str, Any], method: str) -> float:
    """RMSE of a method over the seeds of a line of scripts/sensors.py, in °C."""
    return fmean(run["rmse"][method] for run in line["runs"])


def _sensors(results: Path) -> Iterator[Comparison]:
    line = last_sensors(results)
    where = f"{line['sensors']} synthetic sensors, {line['known']} readings of a new one: RMSE, °C"
    for method, name in (("per-task GP", "Gaussian process per sensor"), (FOREST_GP, FOREST_GP)):
        ours, other = (f"{mean_rmse(line, each):.2f}" for each in (META_FIT, method))
        yield Comparison(name, where, ours, other, "collections.md", method == "per-task GP")


def _collections(results: Path) -> Comparison:
    cells = [cell for cell in newest_cells(results) if cell.data not in BUNDLED]
    found = next((c for c in compare(cells) if c.points == 3), None)
    where = "public collections of tasks, 3 points of a new one: median RMSE relative to the alternative"
    name = "the best of 5 simple methods on each"
    if found is None:
        return Comparison(name, where, MISSING, MISSING, "collections.md", True)
    where = f"{len(found.ratios)} {where}"
    return Comparison(name, where, f"{median(found.ratios.values()):.2f}", "1", "collections.md", True)


def _tables(results: Path) -> Iterator[Comparison]:
    found = summary(read_cells(results / "tables.jsonl"))
    for model in ("logistic regression", "random forest", "Gaussian process"):
        where, sizes = "4 small tables, 2, 5 and 20 rows per class: accuracy", (2, 5, 20)
        names = [f"accuracy_{size}" for size in sizes]
        yield _tabular(found["classification"], model, where, names, model == "logistic regression")
    for model in ("ridge", "random forest", "Gaussian process"):
        names = [f"r2_{size}" for size in (8, 32, 128)]
        yield _tabular(found["regression"], model, "diabetes, 8, 32 and 128 rows: R²", names, model == "random forest")


def _tabular(
    found: dict[str, dict[str, float]], model: str, where: str, metrics: list[str], is_short: bool
) -> Comparison:
    """The better of the model with default and with tuned hyperparameters, at each size."""
    best = {name: max(found[model][name], found[f"{model}, tuned"][name]) for name in metrics}
    ours, other = (", ".join(f"{values[name]:.3f}" for name in metrics) for values in (found[METAFUN], best))
    return Comparison(f"{model}, default or tuned", where, ours, other, "tables.md#benchmark", is_short)


def _interactions(results: Path) -> Comparison:
    found = read_records(results / "table-limits.jsonl")[-1]["rows_together"]["256"]
    where = "sign(x₀x₁), a table whose columns are informative only jointly, 256 rows: accuracy"
    ours, other = (f"{found[name]:.3f}" for name in ("MetaFun", "random forest"))
    return Comparison("random forest", where, ours, other, "tables.md#limits", True)


def _curves(results: Path) -> Iterator[Comparison]:
    run = record_of(results, "gp", run="gp-bnp")
    ours = f"{mean_of(run, 'log_likelihood_anyshot'):.3f}"
    exact = f"{mean_of(run, 'oracle_log_likelihood_anyshot'):.3f}"
    where = "curves of a Gaussian process: log-likelihood of a point"
    page = "uncertainty.md#comparison-with-neural-processes"
    yield Comparison("exact Gaussian process, all parameters known", where, ours, exact, page, True)
    for preset, name in (("gp-bnp-anp", "attentive neural process"), ("gp-bnp-cnp", "conditional neural process")):
        other = mean_of(record_of(results, "gp", run=preset), "log_likelihood_anyshot")
        yield Comparison(f"{name}, trained here", where, ours, f"{other:.3f}", page)


def _paper(results: Path) -> Iterator[Comparison]:
    def value(row: str) -> str:
        lines = Results(results).latest("table1", row, "5-shot")
        return f"{fmean(line.value for line in lines if line.value is not None):.3f}" if lines else MISSING

    where = "sinusoids, 5 points, training as published: mean squared error"
    for row in ("Original MAML", "Large MAML"):
        is_short = row == "Large MAML"
        yield Comparison(
            row.replace("Original ", ""), where, value("MetaFun"), value(row), "results.md#table-1", is_short
        )


def _prototypes(results: Path) -> Iterator[Comparison]:
    rows = ("MetaFun, our training", "Prototypical networks, on features")
    ours, other = (_percent([line.value for line in Results(results).latest("table2", r, "5-shot")]) for r in rows)
    where, name = "our miniImageNet features, 5-way 5-shot: accuracy, %", "prototypical networks"
    yield Comparison(name, where, ours, other, "measured.md#few-shot-classification", True)
    found = {line["run"]: line for line in read_records(results / "omniglot.jsonl") if "head" not in line}
    runs = ("omniglot-20way-1shot", "omniglot-prototypes-20way")
    ours, other = (_percent([mean_of(found[run], "accuracy_20way_1shot")]) for run in runs)
    yield Comparison(name, "Omniglot, 20-way 1-shot: accuracy, %", ours, other, "images.md#omniglot", True)


def _percent(shares: Sequence[float | None]) -> str:
    return f"{100 * fmean(share for share in shares if share is not None):.2f}" if shares else MISSING
