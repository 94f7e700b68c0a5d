"""Renders what was measured: the README's tables come from results/*.jsonl and are never typed.

`metafun report` rewrites the tables in README.md and docs/.
"""

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from .config import load_config
from .paper import load_item
from .schema import flatten, to_table

ERRORS = ("mse_5shot", "mse_10shot")
# What is said of a shipped checkpoint.
WORTH = ("mse", "accuracy", "log_likelihood", "oracle_log_likelihood", "coverage95", "ece")
# Per-target log-likelihood on the curves of gp-bnp, RBF and Matérn-5/2, as published by Nguyen and Grover (2022).
PUBLISHED_CURVES = {
    "gp-bnp-cnp": ("CNP", 0.26),
    "gp-bnp-np": ("NP", 0.27),
    "gp-bnp-anp": ("ANP", 0.81),
    "gp-bnp": ("TNP-D", 1.39),
    "gp-bnp-matern": ("TNP-D", 0.95),
}
# Accuracies on Omniglot, in per cent, as their authors published them.
PUBLISHED_IMAGES = {
    "conditional neural processes (Garnelo et al., 2018)": (95.3, 98.5, 89.9, 96.8),
    "prototypical networks (Snell et al., 2017)": (98.8, 99.7, 96.0, 98.9),
    "MAML (Finn et al., 2017)": (98.7, 99.9, 95.8, 98.9),
    "VERSA (Gordon et al., 2019)": (99.70, 99.75, 97.66, 98.77),
}
SETTINGS = ("5way_1shot", "5way_5shot", "20way_1shot", "20way_5shot")
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
    """MetaFun on sinusoids: one row for each recorded run."""
    lines = [
        "| run | 5-shot | 10-shot | the paper, 5-shot | 10-shot | GPU seconds | steps/s |",
        "|---|---|---|---|---|---|---|",
    ]
    records = [*_records(results / "demo.jsonl"), *_records(results / "sinusoid.jsonl")]
    lines += map(_sinusoid_row, records)
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


def render_shipped(results: Path) -> str:
    """What the shipped checkpoints are worth."""
    lines = ["| checkpoint | measured over 10,000 test tasks |", "|---|---|"]
    for record in _records(results / "shipped.jsonl"):
        metrics = record["metrics"].items()
        worth = ", ".join(f"{name} {value['mean']:.5f}" for name, value in metrics if name.startswith(WORTH))
        lines.append(f"| `{record['checkpoint']}` | {worth} |")
    return "\n".join(lines) + "\n"


def render_estimators(results: Path) -> str:
    """Ratios and memory, as the last run of scripts/estimator_speed.py found them."""
    found = _records(results / "estimators.jsonl")[-1]
    names = {
        "fit_and_predict_over_logistic_regression": "fit + predict over LogisticRegression, 5-way 5-shot, 75 queries",
        "million_targets_megabytes": "megabytes for a million predictions from 100 points",
        "programs": "programs compiled for them",
        "import_metafun_over_jax": "`import metafun` over `import jax`",
        "import_and_use_over_jax": "the same, with the first model",
    }
    lines = ["| | measured |", "|---|---|", *(f"| {text} | {found[name]:.3g} |" for name, text in names.items())]
    return "\n".join(lines) + "\n"


def render_images(results: Path) -> str:
    """Omniglot: accuracies of each recorded run in the four usual settings, beside published ones."""
    columns = (name.replace("way_", "-way ").replace("shot", "-shot") for name in SETTINGS)
    lines = [f"| accuracy, % | {' | '.join(columns)} | GPU seconds | images/s |", "|---|---|---|---|---|---|---|"]
    for name, values in PUBLISHED_IMAGES.items():
        lines.append(f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} | | |")
    lines += map(_images_row, _records(results / "omniglot.jsonl"))
    return "\n".join(lines) + "\n"


def render_image_speed(results: Path) -> str:
    """How fast the convolutional embedding is, by its width and precision."""
    lines = ["| channels | precision | images/s | TFLOP/s |", "|---|---|---|---|"]
    for record in _records(results / "image-speed.jsonl"):
        rate, teraflops = record["images_per_second"], record["teraflops"]
        lines.append(f"| {record['channels']} | {record['precision']} | {rate:,.0f} | {teraflops:.0f} |")
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
    "shipped": render_shipped,
    "estimators": render_estimators,
    "images": render_images,
    "image-speed": render_image_speed,
}
PAGES = ("README.md", "docs/deviations.md", "docs/estimators.md", "docs/uncertainty.md")


def rendered(page: str, results: Path) -> str:
    """The page with each of its tables between its two marks."""
    for name, render in TABLES.items():
        start, end = f"<!-- results: {name} -->\n", "<!-- /results -->\n"
        if start not in page:
            continue
        before, rest = page.split(start)
        page = before + start + "\n" + render(results) + "\n" + end + rest.split(end, 1)[1]
    return page


@cache
def _paper() -> dict[tuple[str, str], tuple[float, ...]]:
    """Mean and standard deviation over 5 runs, as published, by preset and metric."""
    rows = [row for name in ("table1", "table2") for row in load_item(name).rows if row.cells and row.published]
    # A preset may serve other data too; it is known by where it comes first.
    pairs = [(cell, value) for row in reversed(rows) for cell, value in zip(row.cells, row.published, strict=True)]
    return {(cell.preset, cell.metric): value for cell, value in pairs}


def published(record: dict[str, Any]) -> dict[str, tuple[float, ...]]:
    """What the paper reports of the tasks and the model of a measured run on sinusoids."""
    config = tomllib.loads(record["config"])
    if config["tasks"]["kind"] != "sinusoid":
        return {}
    # Table 1 has MetaFun with attention.
    metafun = config["model"].get("pooling", {}).get("kind") == "attention"
    preset = "sinusoid-paper" if metafun else record["run"]
    return {metric: value for (name, metric), value in _paper().items() if name == preset}


def number(value: dict[str, Any]) -> str:
    """Mean ± standard deviation over the seeds, if there are several."""
    spread = "" if value["std"] is None else f" ± {value['std']:.5f}"
    return f"{value['mean']:.5f}{spread}"


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _without_steps(settings: list[str]) -> set[str]:
    return {setting for setting in settings if not setting.startswith("training.steps=")}


def _sinusoid_row(record: dict[str, Any]) -> str:
    paper = published(record)
    # Seconds on a CPU depend on whose it is and what else it does; they are not reported.
    on_cpu = record["device"] == "cpu"
    cells = (
        "`make demo`" if record["run"] == "demo" else _train_command(record),
        *(number(record["metrics"][m]) for m in ERRORS),
        *(_published(paper.get(m), 3) for m in ERRORS),
        "" if on_cpu else f"{record['train_seconds']:.0f}",
        "" if on_cpu else f"{record['steps_per_second']:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _published(value: tuple[float, ...] | None, digits: int) -> str:
    return "" if value is None else f"{value[0]:.{digits}f} ± {value[1]:.{digits}f}"


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


def _images_row(record: dict[str, Any]) -> str:
    found = [record["metrics"].get(f"accuracy_{setting}") for setting in SETTINGS]
    cells = [
        f"`{record['command']}`" if "command" in record else _train_command(record),
        *("" if value is None else _percent(value) for value in found),
        f"{record['train_seconds']:.0f}" if "train_seconds" in record else "",
        f"{_images_per_step(record) * record['steps_per_second']:,.0f}" if "steps_per_second" in record else "",
    ]
    return f"| {' | '.join(cells)} |"


def _images_per_step(record: dict[str, Any]) -> int:
    config = tomllib.loads(record["config"])
    tasks, training = config["tasks"], config["training"]
    return tasks["ways"] * (tasks["shots"] + tasks["queries"]) * training["batch"] * len(training["seeds"])


def _percent(value: dict[str, Any]) -> str:
    return f"{100 * value['mean']:.2f}" + ("" if value["std"] is None else f" ± {100 * value['std']:.2f}")


def _train_command(record: dict[str, Any]) -> str:
    return f"`metafun train {_arguments(record, record['run'])}`"


# What the seeds, the data and the protocol decide, and what is the same in words.
_UNSAID = {"training.seeds", "training.stop", "training.validate_every", "training.patience", "training.chunk"}
_UNSAID |= {"tasks.data", "tasks.features", "tasks.fingerprint", "tasks.train_on"}


def _arguments(record: dict[str, Any], preset: str) -> str:
    """The preset, the number of seeds, and the settings that the run does not share with the preset as it is now."""
    there, now = (flatten(table) for table in (tomllib.loads(record["config"]), to_table(load_config(preset))))
    said = {key: value for key, value in there.items() if key in now and key not in _UNSAID}
    changed = [f" --set {key}={value}" for key, value in said.items() if now[key] != _tuple(value)]
    return f"{preset} --seeds {len(there['training.seeds'])}{''.join(changed)}"


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _spread(value: dict[str, Any]) -> str:
    """As `number`, with three digits."""
    return f"{value['mean']:.3f}" + ("" if value["std"] is None else f" ± {value['std']:.3f}")


def _features_row(record: dict[str, Any]) -> str:
    config = tomllib.loads(record["config"])
    preset = record["preset"]
    metric, accuracy = next((name, value) for name, value in record["metrics"].items() if name.startswith("accuracy"))
    ece = next(value for name, value in record["metrics"].items() if name.startswith("ece"))
    cells = (
        f"`metafun protocol {_arguments(record, preset)} --data {config['tasks']['data']}`",
        _percent(accuracy),
        f"± {100 * accuracy['interval']:.2f}",
        f"{ece['mean']:.3f}",
        f"{record['validation']['step']:,}",
        _published(_paper().get((preset, metric)), 2),
    )
    return f"| {' | '.join(cells)} |"
