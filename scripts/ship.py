"""Makes a shipped checkpoint from a run: its best seed, with its test metrics in the header.

metafun train sinusoid --seeds 5
python scripts/ship.py runs/sinusoid sinusoid
"""

import dataclasses
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import jax
import numpy as np

from metafun import Run, __version__, load_model
from metafun.config import Experiment
from metafun.estimators.trained import Trained
from metafun.model.nn import is_array
from metafun.training.evaluation import evaluate

HOME = Path(__file__).parent.parent


def main(folder: str, name: str) -> None:
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
        "version": __version__,
        "date": datetime.now(UTC).date().isoformat(),
        "config": config.to_toml(),
    }
    with open(HOME / "results" / "shipped.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(summary))


if __name__ == "__main__":
    main(*sys.argv[1:])
