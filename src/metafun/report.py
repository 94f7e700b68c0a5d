"""Renders what was measured: the README's tables come from results/*.jsonl and are never typed.

`python -m metafun.report` rewrites the tables in README.md and docs/.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

# Mean and standard deviation over 5 runs of MetaFun, as published: Table 1 (DFP) by metric, Table 2 by preset.
PAPER = {"mse_5shot": (0.040, 0.008), "mse_10shot": (0.017, 0.005)}
PAPER_ACCURACY = {
    "mini-dfp-1shot": (62.12, 0.30),
    "mini-kfp-1shot": (61.16, 0.15),
    "mini-dfp-5shot": (77.78, 0.12),
    "mini-kfp-5shot": (78.20, 0.16),
    "mini-dfp-1shot-multiview": (64.13, 0.13),
    "mini-kfp-1shot-multiview": (63.39, 0.15),
    "mini-dfp-5shot-multiview": (80.82, 0.17),
    "mini-kfp-5shot-multiview": (80.81, 0.10),
    "tiered-dfp-1shot": (67.72, 0.14),
    "tiered-kfp-1shot": (67.27, 0.20),
    "tiered-dfp-5shot": (82.81, 0.15),
    "tiered-kfp-5shot": (83.28, 0.12),
}
# Per-target log-likelihood on the curves of gp-bnp, RBF and Matérn-5/2, as published by Nguyen and Grover (2022).
PUBLISHED_CURVES = {
    "gp-bnp-cnp": ("CNP", 0.26),
    "gp-bnp-np": ("NP", 0.27),
    "gp-bnp-anp": ("ANP", 0.81),
    "gp-bnp": ("TNP-D", 1.39),
    "gp-bnp-matern": ("TNP-D", 0.95),
}
_LARGE_BATCHES = {"training.batch=48", "training.schedule=cosine", "training.warmup=100"}
CHOICES: dict[str, set[str]] = {
    "the preset": set(),
    "average 0.99": {"training.average=0.99"},
    "noise 0.3": {"tasks.noise=0.3"},
    "noise 0.5": {"tasks.noise=0.5"},
    "noise 0.8": {"tasks.noise=0.8"},
    "noise 1.2": {"tasks.noise=1.2"},
    "noise 0.5, average, r and u twice as wide": {
        "tasks.noise=0.5",
        "training.average=0.99",
        "model.representation=128",
        "model.update.width=128",
    },
    "noise 0.8, average, batch 48, cosine from 3e-4": {
        "tasks.noise=0.8",
        "training.average=0.99",
        "training.learning_rate=0.0003",
        *_LARGE_BATCHES,
    },
    "the same from 1e-3": {
        "tasks.noise=0.8",
        "training.average=0.99",
        "training.learning_rate=0.001",
        *_LARGE_BATCHES,
    },
    "GELU": {"model.activation=gelu"},
    "no label smoothing": {"model.loss.label_smoothing=0.0"},
    "parameters of their own for each iteration": {"model.per_iteration=true"},
}


def render_sinusoid(results: Path) -> str:
    """The table of Table 1's model: one row for each recorded run."""
    paper = " | ".join(f"{mean:.3f} ± {std:.3f}" for mean, std in PAPER.values())
    lines = ["| run | 5-shot | 10-shot | GPU seconds | steps/s |", "|---|---|---|---|---|"]
    lines.append(f"| the paper, MetaFun (DFP) | {paper} | | |")
    for name in ("demo", "sinusoid"):
        lines += [_sinusoid_row(record) for record in _records(results / f"{name}.jsonl")]
    return "\n".join(lines) + "\n"


def render_features(results: Path) -> str:
    """Few-shot classification by the paper's protocol: one row for each recorded run."""
    lines = [
        "| run | accuracy, % | 95 % interval | calibration error | steps | the paper, its features |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(results.glob("miniimagenet_*.jsonl")):
        lines += [_features_row(record) for record in _records(path)]
    return "\n".join(lines) + "\n"


def render_processes(results: Path) -> str:
    """The curves of gp-bnp: one row for each recorded run."""
    lines = [
        "| run | curves | log-likelihood | exact GP | published | 95 % coverage | GPU seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for record in _records(results / "gp.jsonl"):
        if record["run"] in PUBLISHED_CURVES:
            lines.append(_processes_row(record))
    return "\n".join(lines) + "\n"


def render_curves(results: Path) -> str:
    """The paper's curves with 5 and 15 context points: log-likelihoods, each beside that of the exact GP."""
    lines = [
        "| run | context | log-likelihood | exact GP | jointly | exact GP | 95 % coverage | calibration error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for record in _records(results / "gp.jsonl"):
        if record["run"] not in PUBLISHED_CURVES:
            lines += [_curves_row(record, shots) for shots in (5, 15)]
    return "\n".join(lines) + "\n"


def render_limits(results: Path) -> str:
    """What MetaFun loses against the exact GP, and to which of its parts."""
    lines = ["| `--set` | log-likelihood | exact GP | gap |", "|---|---|---|---|"]
    for record in _records(results / "gp-limits.jsonl"):
        ours, exact = (record["metrics"][f"{who}log_likelihood_anyshot"]["mean"] for who in ("", "oracle_"))
        settings = ", ".join(f"`{s}`" for s in record["settings"]) or "–"
        lines.append(f"| {settings} | {ours:.3f} | {exact:.3f} | {exact - ours:.3f} |")
    return "\n".join(lines) + "\n"


def render_contexts(results: Path) -> str:
    """The first row of the limits by the number of context points."""
    lines = ["| context points | log-likelihood | exact GP | gap |", "|---|---|---|---|"]
    found = _records(results / "gp-limits.jsonl")[0]["by_context"]
    for name, ours in found.items():
        if not name.startswith("oracle"):
            exact, shots = found[f"oracle_{name}"], name.removeprefix("log_likelihood_").removesuffix("shot")
            lines.append(f"| {shots} | {ours:.3f} | {exact:.3f} | {exact - ours:.3f} |")
    return "\n".join(lines) + "\n"


def render_ceiling(results: Path) -> str:
    """The best prediction with the hyperparameters of each curve, and without them."""
    lines = ["| curves | ℓ and s known | unknown | command |", "|---|---|---|---|"]
    for record in _records(results / "gp-ceiling.jsonl"):
        known, unknown = record["known"], record["unknown"]
        lines.append(f"| `{record['preset']}` | {known:.3f} | {unknown:.3f} | `{record['command']}` |")
    return "\n".join(lines) + "\n"


def render_choices(results: Path) -> str:
    """What each change of the training does on val, in 1-shot and in 5-shot tasks."""
    lines = ["| | `mini-dfp-1shot` | `mini-kfp-5shot` | steps |", "|---|---|---|---|"]
    records = _records(results / "choices-miniimagenet.jsonl")
    for label, settings in CHOICES.items():
        found = [
            next(r for r in records if r["preset"] == preset and _without_steps(r["settings"]) == settings)
            for preset in ("mini-dfp-1shot", "mini-kfp-5shot")
        ]
        cells = [f"{50 * sum(record['accuracy']):.1f}" for record in found]
        lines.append(f"| {label} | {' | '.join(cells)} | {found[0]['steps']:,} |")
    return "\n".join(lines) + "\n"


TABLES = {
    "sinusoid": render_sinusoid,
    "features": render_features,
    "processes": render_processes,
    "curves": render_curves,
    "limits": render_limits,
    "contexts": render_contexts,
    "ceiling": render_ceiling,
    "choices": render_choices,
}
PAGES = ("README.md", "docs/deviations.md", "docs/uncertainty.md")


def rendered(page: str, results: Path) -> str:
    """The page with each of its tables between its two marks."""
    for name, render in TABLES.items():
        start, end = f"<!-- results: {name} -->\n", "<!-- /results -->\n"
        if start not in page:
            continue
        before, rest = page.split(start)
        page = before + start + "\n" + render(results) + "\n" + end + rest.split(end, 1)[1]
    return page


def published(record: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """What the paper reports of the tasks of a measured run."""
    return PAPER if tomllib.loads(record["config"])["tasks"]["kind"] == "sinusoid" else {}


def number(value: dict[str, Any]) -> str:
    """Mean ± standard deviation over the seeds, if there are several."""
    spread = "" if value["std"] is None else f" ± {value['std']:.5f}"
    return f"{value['mean']:.5f}{spread}"


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _without_steps(settings: list[str]) -> set[str]:
    return {setting for setting in settings if not setting.startswith("training.steps=")}


def _sinusoid_row(record: dict[str, Any]) -> str:
    command = "`make demo`" if record["run"] == "demo" else _train_command(record)
    # Seconds on a CPU depend on whose it is and what else it does; they are not reported.
    gpu = record["device"] != "cpu"
    speed = (f"{record['train_seconds']:.0f}", f"{record['steps_per_second']:,.0f}") if gpu else ("", "")
    return f"| {command} | {' | '.join((*(number(record['metrics'][m]) for m in PAPER), *speed))} |"


def _processes_row(record: dict[str, Any]) -> str:
    metrics, (name, value) = record["metrics"], PUBLISHED_CURVES[record["run"]]
    cells = (
        _train_command(record),
        tomllib.loads(record["config"])["tasks"]["kernel"],
        _spread(metrics["log_likelihood_anyshot"]),
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
        "`metafun demo gp`" if record["run"] == "demo-gp" else _train_command(record),
        str(shots),
        _spread(value("log_likelihood")),
        f"{value('oracle_log_likelihood')['mean']:.3f}",
        "" if joint is None else _spread(joint),
        "" if joint is None else f"{value('oracle_joint_log_likelihood')['mean']:.3f}",
        f"{100 * value('coverage95')['mean']:.1f} %",
        f"{value('calibration_error')['mean']:.4f}",
    )
    return f"| {' | '.join(cells)} |"


def _train_command(record: dict[str, Any]) -> str:
    return f"`metafun train {record['run']} --seeds {len(tomllib.loads(record['config'])['training']['seeds'])}`"


def _spread(value: dict[str, Any]) -> str:
    """As `number`, with three digits."""
    return f"{value['mean']:.3f}" + ("" if value["std"] is None else f" ± {value['std']:.3f}")


def _features_row(record: dict[str, Any]) -> str:
    config = tomllib.loads(record["config"])
    seeds = len(config["training"]["seeds"])
    command = f"metafun protocol {record['preset']} --data {config['tasks']['data']} --seeds {seeds}"
    accuracy = next(value for name, value in record["metrics"].items() if name.startswith("accuracy"))
    ece = next(value for name, value in record["metrics"].items() if name.startswith("ece"))
    paper = PAPER_ACCURACY.get(record["preset"])
    cells = (
        f"`{command}`",
        f"{100 * accuracy['mean']:.2f}" + ("" if accuracy["std"] is None else f" ± {100 * accuracy['std']:.2f}"),
        f"± {100 * accuracy['interval']:.2f}",
        f"{ece['mean']:.3f}",
        f"{record['validation']['step']:,}",
        "" if paper is None else f"{paper[0]:.2f} ± {paper[1]:.2f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    for page in map(Path, PAGES):
        page.write_text(rendered(page.read_text("utf-8"), Path("results")), "utf-8")
