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

from metafun import Run, __version__
from metafun.estimators.trained import Trained
from metafun.model.nn import is_array
from metafun.training.checkpoint import load_model
from metafun.training.evaluation import evaluate

HOME = Path(__file__).parent.parent


def main(path: str, name: str) -> None:
    run = Run(Path(path))
    seed = run.config.training.seeds[int(np.argmin(run.record.best_error))]
    config = dataclasses.replace(run.config, training=dataclasses.replace(run.config.training, seeds=(seed,)))
    model = load_model(run.checkpoint_file, seed)
    metrics = evaluate(jax.tree.map(lambda leaf: leaf[None] if is_array(leaf) else leaf, model), config)
    summary = {key: {"mean": value["mean"], "interval": value["interval"]} for key, value in metrics.items()}
    Trained(config, model).save(HOME / f"src/metafun/checkpoints/{name}.safetensors", record={"metrics": summary})
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
