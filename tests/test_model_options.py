"""Options that the paper describes beside its main model: each trains, is evaluated and predicts."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from examples import TINY, TINY_EPISODES, clusters, untrained
from metafun import MetaFunClassifier
from metafun.cli import app
from metafun.config import Experiment, load_config
from metafun.data.table_folder import save_table
from metafun.errors import InvalidConfig, InvalidTask

# Settings in full, because a setting that is already the default would test nothing.
CLASSIFICATION = {
    "sum": ["model.update.summary=sum"],
    "rates": ["model.update.kind=gradient", "model.update.classes=3"],
    "mlp": ["model.decoder.layers=1", "model.decoder.width=32"],
    "latent": ["model.latent.kind=global", "model.latent.size=4", "model.latent.width=8", "model.latent.samples=5"],
}
# The gradient rule has no networks.
WITHOUT_NETWORKS = [s for s in TINY_EPISODES if not s.startswith("model.update")]


def metafun(*arguments, settings=()):
    options = [part for setting in settings for part in ("--set", setting)]
    result = CliRunner().invoke(app, [*map(str, arguments), *options])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "data"))
    save_table(clusters(), tmp_path / "data", "a test")


@pytest.mark.slow
@pytest.mark.usefixtures("data")
@pytest.mark.parametrize("option", CLASSIFICATION)
def test_from_training_to_a_classifier(option, tmp_path):
    settings = [*(WITHOUT_NETWORKS if option == "rates" else TINY_EPISODES), *CLASSIFICATION[option]]
    metafun("train", "features", "--data", "clusters", "--seeds", 2, "--out", tmp_path / "run", settings=settings)
    metrics = json.loads(metafun("evaluate", tmp_path / "run", "--json"))["metrics"]
    assert metrics["accuracy_3way_1shot"]["mean"] > 0.4
    assert ("joint_log_likelihood_3way_1shot" in metrics) == (option == "latent")
    rows = clusters(classes=(3, 0, 0), rows=4)
    labels = np.repeat(["a", "b", "c"], 4)
    model = MetaFunClassifier(tmp_path / "run").fit(rows.features, labels)
    probabilities = model.predict_proba(rows.features)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(model.predict_proba(rows.features), probabilities)


@pytest.mark.slow
def test_from_training_to_an_evaluation_of_the_concatenated_decoder(tmp_path):
    settings = [*TINY, "model.decoder.kind=concatenated"]
    metafun("train", "sinusoid", "--out", tmp_path / "run", settings=settings)
    assert np.isfinite(json.loads(metafun("evaluate", tmp_path / "run", "--json"))["metrics"]["mse_5shot"]["mean"])


def test_a_classifier_with_a_rate_for_each_class_refuses_another_number():
    trained = untrained("features", *WITHOUT_NETWORKS, *CLASSIFICATION["rates"], "tasks.features=12")
    rows = clusters(classes=(4, 0, 0), rows=2).features
    with pytest.raises(InvalidTask, match="the task has 4 classes, but the model has a λ for each of 3"):
        MetaFunClassifier(trained).fit(rows, np.repeat(list("abcd"), 2))


GRADIENT = "model.update.kind=gradient"


@pytest.mark.parametrize(
    ("preset", "settings", "message"),
    [
        (
            "features",
            [GRADIENT, "model.update.classes=3"],
            "model.update.classes = 3, but the tasks have 5 classes; set model.update.classes=5, or drop it",
        ),
        (
            "features",
            [GRADIENT, "model.update.classes=5", "evaluation.ways=[5,20]"],
            "model.update.classes = 5, but evaluation.ways = [5, 20]; use the same number",
        ),
        (
            "tables-classification",
            [GRADIENT, "model.update.classes=5"],
            "model.update.classes = 5, but the tasks have 10 classes",
        ),
        ("features", [GRADIENT, "model.update.classes=1"], "model.update.classes = 1, but it must be between 2 and"),
        (
            "sinusoid",
            [GRADIENT, "model.update.classes=5"],
            "model.update.classes = 5 is for classification, but tasks.kind = 'sinusoid' is regression",
        ),
        ("features", ["model.update.classes=5"], "unknown key 'model.update.classes'"),
        ("features", ["model.update.summary=max"], "model.update.summary = 'max' is not known; known: mean, sum."),
        ("features", ["model.decoder.layers=-1"], "model.decoder.layers = -1, but it must be between 0 and 100."),
        ("features", ["model.decoder.kind=concatenated"], "model.decoder.kind = 'concatenated' is for regression"),
        (
            "features",
            [GRADIENT, "model.latent.kind=global"],
            "model.update.kind = 'gradient' works on r alone, but model.latent.kind = 'global' adds z to it",
        ),
        (
            "features",
            ["model.decoder.kind=logits", "model.representation=1", "model.latent.kind=global"],
            "model.decoder.kind = 'logits' works on r alone, but model.latent.kind = 'global' adds z to it",
        ),
        (
            "sinusoid",
            ["model.decoder.kind=identity", "model.representation=2", "model.latent.kind=global"],
            "model.decoder.kind = 'identity' works on r alone",
        ),
    ],
)
def test_a_combination_that_cannot_work_is_refused(preset, settings, message):
    with pytest.raises(InvalidConfig, match="^" + re.escape(message)):
        load_config(preset, settings)


def test_a_number_of_classes_that_fits_is_accepted():
    settings = [GRADIENT, "model.update.classes=20", "tasks.ways=20", "evaluation.ways=[20]"]
    assert Experiment(load_config("features", settings)).fixed_classes == 20
    assert Experiment(load_config("features")).fixed_classes is None
