"""Real features, where they are at hand: $METAFUN_DATA with miniimagenet_wrn28_center.npz."""

import os
from pathlib import Path

import pytest

from metafun.config import load_config, resolve
from metafun.data import open_table
from metafun.training.evaluation import Validation
from metafun.training.trainer import Trainer

NAME = "miniimagenet_wrn28_center"
FOLDERS = os.environ.get("METAFUN_DATA", "").split(os.pathsep)

pytestmark = pytest.mark.skipif(
    not any((Path(folder) / f"{NAME}.npz").is_file() for folder in FOLDERS if folder),
    reason=f"{NAME}.npz is not in a folder of $METAFUN_DATA",
)


def test_the_table_is_read_as_it_is():
    table = open_table(NAME)
    assert table.features.shape == (60_000, 640) and table.features.dtype == "float16"
    assert {rows.count for rows in table.classes} == {600}
    assert [len(table.split(split)) for split in ("train", "val", "test")] == [64, 16, 20]


@pytest.mark.slow
def test_three_hundred_steps_are_on_the_way(optimised):
    """5-way 1-shot on novel classes; longer training goes on to 59 % (results/choices-miniimagenet.jsonl)."""
    settings = [f"tasks.data={NAME}", "training.steps=300", "training.chunk=100", "training.validate_every=100"]
    experiment = resolve(load_config("mini-kfp-1shot", [*settings, "training.validation_tasks=200"]))
    trainer = Trainer(experiment)
    *_, (state, _) = trainer.run(trainer.start())
    models = trainer.models(state.parameters)
    (error,) = Validation(models, experiment)(models)
    assert 1 - error > 0.53
