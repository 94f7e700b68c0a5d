"""Tables about curves."""

import tomllib
from pathlib import Path
from typing import Any

from .cells import mean_std, record_cell, record_seconds
from .markdown import table
from .records import current_command, read_records

# Log-likelihood per target on the curves of gp-bnp, RBF and Matérn-5/2, as published by Nguyen and Grover (2022).
PUBLISHED_CURVES = {
    "gp-bnp-cnp": ("CNP", 0.26),
    "gp-bnp-np": ("NP", 0.27),
    "gp-bnp-anp": ("ANP", 0.81),
    "gp-bnp": ("TNP-D", 1.39),
    "gp-bnp-matern": ("TNP-D", 0.95),
}
# Headings of the methods in curves.jsonl that the model for any series is compared with.
SERIES_RIVALS = {"GP": "Gaussian process", "kernel chosen": "Gaussian process, kernel chosen"}


def render_processes(results: Path) -> str:
    """The curves of gp-bnp, one row per recorded run."""
    columns = ("run", "curves", "log-likelihood", "exact GP", "published", "95 % coverage", "GPU seconds")
    runs = read_records(results / "gp.jsonl")
    return table(columns, (_processes_row(run) for run in runs if run["run"] in PUBLISHED_CURVES))


def render_curves(results: Path) -> str:
    """The paper's curves with 5 and 15 context points: log-likelihoods beside those of the exact GP."""
    columns = ("run", "context", "log-likelihood", "exact GP", "joint", "exact GP")
    runs = [run for run in read_records(results / "gp.jsonl") if run["run"] not in PUBLISHED_CURVES]
    rows = (_curves_row(run, shots) for run in runs for shots in (5, 15))
    return table((*columns, "95 % coverage", "calibration error"), rows)


def render_gp_limits(results: Path) -> str:
    """The gap between MetaFun and the exact GP, and how settings change it."""
    rows = []
    for record in read_records(results / "gp-limits.jsonl"):
        ours, exact = (record["metrics"][f"{who}log_likelihood_anyshot"]["mean"] for who in ("", "oracle_"))
        rows.append((", ".join(f"`{s}`" for s in record["settings"]) or "–", *_gap(ours, exact)))
    return table(("`--set`", "log-likelihood", "exact GP", "gap"), rows)


def render_by_context(results: Path) -> str:
    """The first row of the limits by the number of context points."""
    found = read_records(results / "gp-limits.jsonl")[0]["by_context"]
    rows = [
        (name.removeprefix("log_likelihood_").removesuffix("shot"), *_gap(ours, found[f"oracle_{name}"]))
        for name, ours in found.items()
        if not name.startswith("oracle")
    ]
    return table(("context points", "log-likelihood", "exact GP", "gap"), rows)


def render_gp_ceiling(results: Path) -> str:
    """The best possible prediction with each curve's hyperparameters known, and with them unknown."""
    rows = [
        (f"`{record['preset']}`", f"{record['known']:.3f}", f"{record['unknown']:.3f}", f"`{record['command']}`")
        for record in read_records(results / "gp-ceiling.jsonl")
    ]
    return table(("curves", "ℓ and s known", "unknown", "command"), rows)


def render_series(results: Path) -> str:
    """The model for any series beside Gaussian processes: each collection, and the mean over those measured."""
    columns = ("", "context", *("RMSE", *SERIES_RIVALS), *("log-likelihood", *SERIES_RIVALS))
    records = latest_series(results)
    rows = []
    for points in sorted({record["points"] for record in records}):
        here = [record["scores"] for record in records if record["points"] == points]
        rows.append(("**mean**", f"**{points}**", *_series_cells(here)))
    rows += [(r["data"].replace("_", " "), str(r["points"]), *_series_cells([r["scores"]])) for r in records]
    return table((*columns, "95 % coverage", *SERIES_RIVALS, "time of GP / MetaFun"), rows)


def latest_series(results: Path) -> list[dict[str, Any]]:
    """The last line of each collection and number of points in curves.jsonl.

    Args:
        results: the folder of the .jsonl files.
    """
    return list({(line["data"], line["points"]): line for line in read_records(results / "curves.jsonl")}.values())


def series_mean(scores: list[dict[str, Any]], method: str, metric: str) -> float:
    """The mean of a metric over collections.

    Args:
        scores: of each collection.
        method: its name in curves.jsonl.
        metric: its name there.
    """
    return sum(each[method][metric] for each in scores) / len(scores)


def _series_cells(scores: list[dict[str, Any]]) -> tuple[str, ...]:
    methods = ("MetaFun", *SERIES_RIVALS.values())
    metrics = [f"{series_mean(scores, method, 'rmse'):.3f}" for method in methods]
    metrics += [f"{series_mean(scores, method, 'log_likelihood'):.2f}" for method in methods]
    metrics += [f"{100 * series_mean(scores, method, 'coverage'):.0f} %" for method in methods]
    return (*metrics, f"{series_mean(scores, methods[1], 'time_over_metafun'):.1f}")


def _gap(ours: float, exact: float) -> tuple[str, ...]:
    return tuple(f"{value:.3f}" for value in (ours, exact, exact - ours))


def _processes_row(record: dict[str, Any]) -> tuple[str, ...]:
    metrics, (name, value) = record["metrics"], PUBLISHED_CURVES[record["run"]]
    return (
        current_command(record),
        tomllib.loads(record["config"])["tasks"]["kernel"],
        record_cell(record, "log_likelihood_anyshot", 3),
        f"{metrics['oracle_log_likelihood_anyshot']['mean']:.3f}",
        f"{value:.2f} ({name})",
        f"{100 * metrics['coverage95_anyshot']['mean']:.1f} %",
        record_seconds(record),
    )


def _curves_row(record: dict[str, Any], shots: int) -> tuple[str, ...]:
    def value(name: str) -> Any:
        return record["metrics"].get(f"{name}_{shots}shot")

    joint = value("joint_log_likelihood")
    return (
        current_command(record),
        str(shots),
        record_cell(record, f"log_likelihood_{shots}shot", 3),
        f"{value('oracle_log_likelihood')['mean']:.3f}",
        "" if joint is None else mean_std(joint["seeds"], 3),
        "" if joint is None else f"{value('oracle_joint_log_likelihood')['mean']:.3f}",
        f"{100 * value('coverage95')['mean']:.1f} %",
        f"{value('calibration_error')['mean']:.4f}",
    )
