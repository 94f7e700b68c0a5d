"""Accuracy of a trained run's embedding alone, with a nearest-mean classifier instead of the model.

python scripts/nearest_mean.py [--beside N] RUN >> results/omniglot.jsonl
"""

import json
from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
from provenance import parser, provenance

from metafun import Run
from metafun.config import Experiment
from metafun.config.baselines import PrototypesConfig
from metafun.embeddings.base import Embedded
from metafun.training.evaluation import evaluate


def main(folder: str, beside: int | None) -> None:
    run = Run(Path(folder))
    models = run.models()
    assert isinstance(models, Embedded)
    mean = PrototypesConfig(layers=0).build(models.embedding.size, 0, jax.random.key(0))
    seeds = len(run.config.training.seeds)
    means = jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds) if eqx.is_array(leaf) else leaf, mean)
    ways, shots = run.config.tasks.ways, (1, 5)
    config = replace(run.config, evaluation=replace(run.config.evaluation, ways=(ways,), shots=shots))
    line = {
        "run": run.path.name,
        "head": "nearest mean",
        "metrics": evaluate(Embedded(models.embedding, means), Experiment(config)),
        "test_tasks": config.evaluation.tasks,
        **provenance(run.config.training.seeds, beside, run.experiment.tasks.fingerprint or ""),
        "config": config.to_toml(),
    }
    print(json.dumps(line))


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("folder", metavar="RUN")
    given = options.parse_args()
    main(given.folder, given.beside)
