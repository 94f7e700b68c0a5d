"""Sinusoids and curves."""

import tomllib
from pathlib import Path
from typing import Any

from .lines import number, published, published_cell, records, spread, train_command

ERRORS = ("mse_5shot", "mse_10shot")
# Per-target log-likelihood on the curves of gp-bnp, RBF and Matérn-5/2, as published by Nguyen and Grover (2022).
PUBLISHED_CURVES = {
    "gp-bnp-cnp": ("CNP", 0.26),
    "gp-bnp-np": ("NP", 0.27),
    "gp-bnp-anp": ("ANP", 0.81),
    "gp-bnp": ("TNP-D", 1.39),
    "gp-bnp-matern": ("TNP-D", 0.95),
}


def render_sinusoid(results: Path) -> str:
    """MetaFun on sinusoids: one row for each recorded run."""
    lines = [
        "| run | 5-shot | 10-shot | the paper, 5-shot | 10-shot | GPU seconds | steps/s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += map(_sinusoid_row, [*records(results / "demo.jsonl"), *records(results / "sinusoid.jsonl")])
    return "\n".join(lines) + "\n"


def render_processes(results: Path) -> str:
    """The curves of gp-bnp: one row for each recorded run."""
    lines = [
        "| run | curves | log-likelihood | exact GP | published | 95 % coverage | GPU seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in records(results / "gp.jsonl"):
        if record["run"] in PUBLISHED_CURVES:
            lines.append(_processes_row(record))
    return "\n".join(lines) + "\n"


def render_curves(results: Path) -> str:
    """The paper's curves with 5 and 15 context points: log-likelihoods, each beside that of the exact GP."""
    lines = [
        "| run | context | log-likelihood | exact GP | jointly | exact GP | 95 % coverage | calibration error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record in records(results / "gp.jsonl"):
        if record["run"] not in PUBLISHED_CURVES:
            lines += [_curves_row(record, shots) for shots in (5, 15)]
    return "\n".join(lines) + "\n"


def render_limits(results: Path) -> str:
    """What MetaFun loses against the exact GP, and to which of its parts."""
    lines = ["| `--set` | log-likelihood | exact GP | gap |", "|---|---|---|---|"]
    for record in records(results / "gp-limits.jsonl"):
        ours, exact = (record["metrics"][f"{who}log_likelihood_anyshot"]["mean"] for who in ("", "oracle_"))
        settings = ", ".join(f"`{s}`" for s in record["settings"]) or "–"
        lines.append(f"| {settings} | {ours:.3f} | {exact:.3f} | {exact - ours:.3f} |")
    return "\n".join(lines) + "\n"


def render_contexts(results: Path) -> str:
    """The first row of the limits by the number of context points."""
    lines = ["| context points | log-likelihood | exact GP | gap |", "|---|---|---|---|"]
    found = records(results / "gp-limits.jsonl")[0]["by_context"]
    for name, ours in found.items():
        if not name.startswith("oracle"):
            exact, shots = found[f"oracle_{name}"], name.removeprefix("log_likelihood_").removesuffix("shot")
            lines.append(f"| {shots} | {ours:.3f} | {exact:.3f} | {exact - ours:.3f} |")
    return "\n".join(lines) + "\n"


def render_ceiling(results: Path) -> str:
    """The best prediction with the hyperparameters of each curve, and without them."""
    lines = ["| curves | ℓ and s known | unknown | command |", "|---|---|---|---|"]
    for record in records(results / "gp-ceiling.jsonl"):
        known, unknown = record["known"], record["unknown"]
        lines.append(f"| `{record['preset']}` | {known:.3f} | {unknown:.3f} | `{record['command']}` |")
    return "\n".join(lines) + "\n"


def _sinusoid_row(record: dict[str, Any]) -> str:
    paper = published(record)
    # Seconds on a CPU depend on whose it is and what else it does; they are not reported.
    on_cpu = record["device"] == "cpu"
    cells = (
        "`make demo`" if record["run"] == "demo" else train_command(record),
        *(number(record["metrics"][m]) for m in ERRORS),
        *(published_cell(paper.get(m), 3) for m in ERRORS),
        "" if on_cpu else f"{record['train_seconds']:.0f}",
        "" if on_cpu else f"{record['steps_per_second']:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _processes_row(record: dict[str, Any]) -> str:
    metrics, (name, value) = record["metrics"], PUBLISHED_CURVES[record["run"]]
    cells = (
        train_command(record),
        tomllib.loads(record["config"])["tasks"]["kernel"],
        spread(metrics["log_likelihood_anyshot"]),
        f"{metrics['oracle_log_likelihood_anyshot']['mean']:.3f}",
        f"{value:.2f} ({name})",
        f"{100 * metrics['coverage95_anyshot']['mean']:.1f} %",
        f"{record['train_seconds']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _curves_row(record: dict[str, Any], shots: int) -> str:
    def value(name: str) -> Any:
        return record["metrics"].get(f"{name}_{shots}shot")

    joint = value("joint_log_likelihood")
    cells = (
        "`metafun demo gp`" if record["run"] == "demo-gp" else train_command(record),
        str(shots),
        spread(value("log_likelihood")),
        f"{value('oracle_log_likelihood')['mean']:.3f}",
        "" if joint is None else spread(joint),
        "" if joint is None else f"{value('oracle_joint_log_likelihood')['mean']:.3f}",
        f"{100 * value('coverage95')['mean']:.1f} %",
        f"{value('calibration_error')['mean']:.4f}",
    )
    return f"| {' | '.join(cells)} |"
