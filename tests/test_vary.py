"""Variants of a configuration that are trained at once."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from examples import TINY_EPISODES, clusters
from metafun import load_model
from metafun.cli import app
from metafun.config import load_config, resolve
from metafun.data.table_folder import save_table
from metafun.errors import Diverged, InvalidConfig
from metafun.training.protocol import choose_step, final_config
from metafun.training.run import Run
from metafun.training.trainer import Trainer

VARY = {
    "training.learning_rate": [1e-2, 1e-3],
    "model.step_size": [0.1, 1.0],
    "model.decoder.dropout": [0.1, 0.4],
    "model.loss.label_smoothing": [0.0, 0.2],
    "model.l2": [1e-3, 1e-2],
    "model.orthogonality": [0.5, 0.1],
}

# The third variant takes steps so large that its penalty overflows.
DIVERGE = {"training.learning_rate": [1e-6, 1e-2, 1e30], "model.l2": [1e-9, 1e-9, 1.0]}


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "data"))
    save_table(clusters(), tmp_path / "data", "a test")


def tiny(vary=None, *settings):
    return load_config("features", [*TINY_EPISODES, "tasks.data=clusters", *settings], {"vary": vary} if vary else {})


def losses(config):
    trainer = Trainer(config)
    return np.concatenate([losses for _, losses in trainer.run(trainer.start())])


def test_a_variant_trains_the_same_alone_and_in_company():
    config = tiny(VARY, "training.seeds=[0,1]", "training.steps=20")
    together = losses(config)
    assert together.shape == (20, 4)
    for v, variant in enumerate(resolve(config).variants):
        assert variant.config.vary is None and variant.training.learning_rate == VARY["training.learning_rate"][v]
        alone = losses(variant)
        np.testing.assert_allclose(together[:, 2 * v : 2 * v + 2], alone, rtol=1e-3)


def test_the_best_variant_is_the_model_and_one_that_diverges_has_lost(tmp_path):
    run = Run.create(tmp_path / "run", tiny(DIVERGE, "training.seeds=[0,1]"))
    training = run.train()
    next(training), next(training), next(training)
    training.close()
    for _ in Run(run.path).train():  # goes on where it was stopped
        pass
    errors = np.reshape(run.record.best_error, (3, 2))
    assert errors[1].mean() < errors[0].mean() and run.variant.training.learning_rate == 1e-2
    assert run.models().step_size.shape == (2,)
    np.testing.assert_array_equal(load_model(run.checkpoint_file, seed=1).step_size, run.models().step_size[1])
    assert None in run.metrics()[-1]["loss"] and "NaN" not in (run.path / "metrics.jsonl").read_text()

    chosen = choose_step([run])
    assert chosen["variant"] == 1 and math.isclose(chosen["error"], np.mean(chosen["seeds"]), abs_tol=1e-6)
    final = final_config(run, chosen)
    assert final.vary is None and final.training.learning_rate == 1e-2 and final.training.stop == chosen["step"]


def test_when_all_diverge_there_is_nothing_left(tmp_path):
    run = Run.create(tmp_path / "run", tiny({key: values[2:] for key, values in DIVERGE.items()}))
    with pytest.raises(Diverged):
        list(run.train())


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        (
            {"training.steps": [1, 2]},
            r"cannot share one program; start a run for each \(--set training.steps=",
        ),
        ({"training.learning_rat": [1.0]}, "did you mean 'training.learning_rate'"),
        ({"training.learning_rate": [-1.0]}, "training.learning_rate = -1.0, but it must be between"),
        ({"training.learning_rate": []}, "has 0 values"),
        ({"training.learning_rate": [1.0, 2.0], "model.l2": [1.0]}, "model.l2 has 1 values"),
        ({"model.l2": [0.0, 1.0]}, "where none is 0 in one variant and positive in another"),
        ({"tasks.noise": [0.1, 1.0]}, "change the structure of the program"),
        ({"training.learning_rate": "fast"}, "must be a list"),
        (3, "must be a table of keys"),
    ],
)
def test_what_cannot_vary_is_refused(vary, message):
    with pytest.raises(InvalidConfig, match=message):
        tiny(vary)


def test_without_validation_nothing_can_be_compared():
    with pytest.raises(InvalidConfig, match="compared on validation"):
        tiny({"training.learning_rate": [1e-3, 1e-2]}, "training.validate_every=0")


def test_vary_on_the_command_line(tmp_path):
    settings = [part for setting in TINY_EPISODES for part in ("--set", setting)]
    vary = ("--vary", "training.learning_rate=1e-6,1e-2", "--data", "clusters")
    result = CliRunner().invoke(app, ["train", "features", *vary, *settings, "--out", str(tmp_path / "run")])
    assert result.exit_code == 0 and "with training.learning_rate=0.01" in result.stderr, result.output
    shown = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), "--json"])
    assert "learning_rate = 0.01" in json.loads(shown.stdout)["config"]
