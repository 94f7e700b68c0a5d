"""Features and images."""

import tomllib
from pathlib import Path
from typing import Any

from .lines import arguments, paper_values, percent, published_cell, records, train_command

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


def render_features(results: Path) -> str:
    """Few-shot classification by the paper's protocol: one row for each recorded run."""
    lines = [
        "| run | accuracy, % | 95 % interval | calibration error | steps | the paper, its features |",
        "|---|---|---|---|---|---|",
    ]
    for path in sorted(results.glob("miniimagenet_*.jsonl")):
        lines += [_features_row(record) for record in records(path)]
    return "\n".join(lines) + "\n"


def render_choices(results: Path) -> str:
    """What each change of the training does on val, in 1-shot and in 5-shot tasks."""
    lines = ["| | `mini-dfp-1shot` | `mini-kfp-5shot` | steps |", "|---|---|---|---|"]
    looked_at = records(results / "choices-miniimagenet.jsonl")
    for label, settings in CHOICES.items():
        found = [
            next(r for r in looked_at if r["preset"] == preset and _without_steps(r["settings"]) == settings)
            for preset in ("mini-dfp-1shot", "mini-kfp-5shot")
        ]
        cells = [f"{50 * sum(record['accuracy']):.1f}" for record in found]
        lines.append(f"| {label} | {' | '.join(cells)} | {found[0]['steps']:,} |")
    return "\n".join(lines) + "\n"


def render_images(results: Path) -> str:
    """Omniglot: accuracies of each recorded run in the four usual settings, beside published ones."""
    columns = (name.replace("way_", "-way ").replace("shot", "-shot") for name in SETTINGS)
    lines = [f"| accuracy, % | {' | '.join(columns)} | GPU seconds | images/s |", "|---|---|---|---|---|---|---|"]
    for name, values in PUBLISHED_IMAGES.items():
        lines.append(f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} | | |")
    lines += map(_images_row, records(results / "omniglot.jsonl"))
    return "\n".join(lines) + "\n"


def render_image_speed(results: Path) -> str:
    """How fast the convolutional embedding is, by its width and precision."""
    lines = ["| channels | precision | images/s | TFLOP/s |", "|---|---|---|---|"]
    for record in records(results / "image-speed.jsonl"):
        rate, teraflops = record["images_per_second"], record["teraflops"]
        lines.append(f"| {record['channels']} | {record['precision']} | {rate:,.0f} | {teraflops:.0f} |")
    return "\n".join(lines) + "\n"


def _features_row(record: dict[str, Any]) -> str:
    config = tomllib.loads(record["config"])
    preset = record["preset"]
    metric, accuracy = next((name, value) for name, value in record["metrics"].items() if name.startswith("accuracy"))
    ece = next(value for name, value in record["metrics"].items() if name.startswith("ece"))
    cells = (
        f"`metafun protocol {arguments(record, preset)} --data {config['tasks']['data']}`",
        percent(accuracy),
        f"± {100 * accuracy['interval']:.2f}",
        f"{ece['mean']:.3f}",
        f"{record['validation']['step']:,}",
        published_cell(paper_values().get((preset, metric)), 2),
    )
    return f"| {' | '.join(cells)} |"


def _images_row(record: dict[str, Any]) -> str:
    found = [record["metrics"].get(f"accuracy_{setting}") for setting in SETTINGS]
    cells = [
        f"`{record['command']}`" if "command" in record else train_command(record),
        *("" if value is None else percent(value) for value in found),
        f"{record['train_seconds']:.0f}" if "train_seconds" in record else "",
        f"{_images_per_step(record) * record['steps_per_second']:,.0f}" if "steps_per_second" in record else "",
    ]
    return f"| {' | '.join(cells)} |"


def _images_per_step(record: dict[str, Any]) -> int:
    config = tomllib.loads(record["config"])
    tasks, training = config["tasks"], config["training"]
    return tasks["ways"] * (tasks["shots"] + tasks["queries"]) * training["batch"] * len(training["seeds"])


def _without_steps(settings: list[str]) -> set[str]:
    return {setting for setting in settings if not setting.startswith("training.steps=")}
