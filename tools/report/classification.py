"""Tables about training choices on features, and about images."""

import tomllib
from pathlib import Path
from typing import Any

from .cells import record_cell, record_seconds, shared
from .markdown import table, without_empty_columns
from .records import current_command, read_records

# Accuracies on Omniglot, in per cent, as published by their authors.
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
    "the same, cosine from 1e-3": {
        "tasks.noise=0.8",
        "training.average=0.99",
        "training.learning_rate=0.001",
        *_LARGE_BATCHES,
    },
    "GELU": {"model.activation=gelu"},
    "no label smoothing": {"model.loss.label_smoothing=0.0"},
    "separate parameters for each iteration": {"model.per_iteration=true"},
}


def render_training_choices(results: Path) -> str:
    """Validation accuracy after each change to the training, in 1-shot and in 5-shot tasks."""
    presets = ("mini-dfp-1shot", "mini-kfp-5shot")
    measured = read_records(results / "choices-miniimagenet.jsonl")
    rows = []
    for label, settings in CHOICES.items():
        found = [
            next(r for r in measured if r["preset"] == preset and _without_steps(r["settings"]) == settings)
            for preset in presets
        ]
        rows.append((label, *(f"{50 * sum(record['accuracy']):.1f}" for record in found), f"{found[0]['steps']:,}"))
    return table(("", *(f"`{preset}`" for preset in presets), "steps"), rows)


def render_images(results: Path) -> str:
    """Omniglot: accuracies of each recorded run in the four usual settings, beside published ones."""
    settings = (name.replace("way_", "-way ").replace("shot", "-shot") for name in SETTINGS)
    published = [(name, *(f"{value:.2f}" for value in values), "", "") for name, values in PUBLISHED_IMAGES.items()]
    measured = map(_images_row, read_records(results / "omniglot.jsonl"))
    columns = ("accuracy, %", *settings, "GPU seconds", "images/s")
    return table(*without_empty_columns(columns, [*published, *measured]))


def render_image_speed(results: Path) -> str:
    """Speed of the convolutional embedding by its width and precision."""
    rows = [
        (
            str(r["channels"]),
            r["precision"],
            f"{r['images_per_second']:,.0f}",
            f"{r['teraflops']:.0f}",
            shared(r["beside"]),
        )
        for r in read_records(results / "image-speed.jsonl")
    ]
    return table(("channels", "precision", "images/s", "TFLOP/s", "shared the GPU"), rows)


def _images_row(record: dict[str, Any]) -> tuple[str, ...]:
    accuracies = [f"accuracy_{setting}" for setting in SETTINGS]
    seconds = record_seconds(record)
    return (
        f"`{record['command']}`" if "head" in record else current_command(record),
        *(record_cell(record, name, 2, 100) if name in record["metrics"] else "" for name in accuracies),
        seconds,
        # A rate beside other trainings says little about the device.
        f"{_images_per_step(record) * record['steps_per_second']:,.0f}" if seconds and not record["beside"] else "",
    )


def _images_per_step(record: dict[str, Any]) -> int:
    config = tomllib.loads(record["config"])
    tasks, training = config["tasks"], config["training"]
    return tasks["ways"] * (tasks["shots"] + tasks["queries"]) * training["batch"] * len(training["seeds"])


def _without_steps(settings: list[str]) -> set[str]:
    return {setting for setting in settings if not setting.startswith("training.steps=")}
