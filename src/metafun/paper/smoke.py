"""The paper in small: tiny models on random data, to see that every kind of cell can be measured."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..data import Table
from ..data.readers import LEO_TABLES
from ..data.table_folder import save_table
from ..schema import flatten, to_table
from .items import STAND_IN, Job

# Settings that make any training a matter of seconds.
SMOKE: dict[str, Any] = {
    "model.width": 16,
    "model.iterations": 2,
    "model.update.layers": 1,
    "model.pooling.layers": 1,
    "model.steps": 1,
    "model.test_steps": 2,
    "model.latent_steps": 1,
    "model.weight_steps": 1,
    "tasks.queries": 3,
    "training.steps": 20,
    "training.batch": 4,
    "training.chunk": 10,
    "training.validate_every": 10,
    "training.validation_tasks": 10,
    "evaluation.tasks": 20,
    "evaluation.targets": 5,
}
CLASSES = {"train": 8, "val": 6, "test": 6}


def one_of_each(jobs: Sequence[Job]) -> list[Job]:
    """One job for each kind of model, with and without a search; those that fill the most cells."""
    kinds: dict[Any, Job] = {}
    for job in sorted(jobs, key=lambda job: -len({address.item for address in job.addresses})):
        model = flatten(to_table(job.config.model))
        kind = tuple(model.get(part) for part in ("kind", "loss.kind", "update.kind", "decoder.kind"))
        kinds.setdefault((kind, job.search), job)
    searches = [job for job in kinds.values() if job.search is not None]
    # A single search is enough: all work alike.
    return [replace(job, search=None) if job in searches[1:] else job for job in kinds.values()]


def smoke_data(folder: Path) -> dict[str, str]:
    """A table of random classes in `folder`, as replacement of every data set."""
    rng, dx, rows = np.random.default_rng(0), 8, 8
    count = sum(CLASSES.values())
    centres = np.repeat(rng.normal(size=(count, dx)), rows, axis=0)
    features = (np.abs(centres) + 0.3 * rng.normal(size=centres.shape)).astype(np.float32)
    labels = np.repeat([f"class {i}" for i in range(count)], rows).tolist()
    splits = np.repeat(np.repeat(list(CLASSES), list(CLASSES.values())), rows).tolist()
    path = folder.resolve() / "data"
    if not (path / "smoke").exists():
        save_table(Table.of("smoke", features, labels, splits), path, "random numbers")
    return dict.fromkeys((*LEO_TABLES, STAND_IN), str(path / "smoke"))
