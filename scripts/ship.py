"""Makes a shipped checkpoint from a run: its best seed, with its test metrics in the header.

It replaces the line of the checkpoint in results/shipped.jsonl. --beside is about the training, whose seconds the line
has.

    metafun train sinusoid --seeds 20
    python scripts/ship.py --beside 0 runs/sinusoid sinusoid
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
from provenance import parser, provenance, this_command

from metafun import Run, load_model
from metafun.config import Experiment
from metafun.estimators.trained import Trained
from metafun.files import write_atomically
from metafun.model.nn import is_array
from metafun.training.evaluation import evaluate

HOME = Path(__file__).parent.parent


def main(folder: str, name: str, beside: int | None) -> None:
    run = Run(Path(folder))
    seed = run.config.training.seeds[int(np.argmin(run.record.best_error))]
    config = dataclasses.replace(run.config, training=dataclasses.replace(run.config.training, seeds=(seed,)))
    model = load_model(run.checkpoint_file, seed)
    stacked = jax.tree.map(lambda leaf: leaf[None] if is_array(leaf) else leaf, model)
    metrics = evaluate(stacked, Experiment(config))
    summary = {key: {"mean": value["mean"], "interval": value["interval"]} for key, value in metrics.items()}
    path = HOME / f"src/metafun/checkpoints/{name}.safetensors"
    Trained(Experiment(config), model).save(path, record={"metrics": summary})
    line = {
        "checkpoint": name,
        "metrics": summary,
        "test_tasks": config.evaluation.tasks,
        "steps": run.record.step,
        "train_seconds": run.record.seconds,
        **provenance([seed], beside, run.experiment.tasks.fingerprint or "", training_command(run)),
        "config": config.to_toml(),
    }
    write_line(line)
    print(json.dumps(summary))


def training_command(run: Run) -> str:
    """The commands that repeat a run and ship it; settings that the preset does not have must be added by hand."""
    return f"metafun train {run.path.name} --seeds {len(run.config.training.seeds)} && {this_command()}"


def write_line(line: dict[str, Any]) -> None:
    """Replaces the checkpoint's line of results/shipped.jsonl."""
    path = HOME / "results" / "shipped.jsonl"
    lines = [json.loads(text) for text in path.read_text("utf-8").splitlines()]
    names = [each["checkpoint"] for each in lines]
    place = names.index(line["checkpoint"]) if line["checkpoint"] in names else len(names)
    lines[place : place + 1] = [line]
    write_atomically(path, "".join(json.dumps(each) + "\n" for each in lines).encode())


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("folder", metavar="RUN")
    options.add_argument("name", metavar="CHECKPOINT")
    given = options.parse_args()
    main(given.folder, given.name, given.beside)
