"""The benchmark on small tables: the same splits for every model, no cell measured twice, scikit-learn's metrics."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, r2_score
from typer.testing import CliRunner

from metafun.bench import tables
from metafun.bench.contenders import models
from metafun.bench.datasets import SETS, split_rows
from metafun.bench.metrics import classifier_metrics, regressor_metrics
from metafun.bench.results import add_cell, mean_metrics, read_cells
from metafun.cli import app

RESULTS = Path(__file__).parent.parent / "results" / "tables.jsonl"


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def few():
    """Two data sets with one number of rows each."""
    sizes, before = {"iris": (2,), "diabetes": (8,)}, dict(SETS)
    SETS.clear()
    SETS.update({name: replace(before[name], sizes=sizes[name]) for name in sizes})
    yield
    SETS.clear()
    SETS.update(before)  # in their order, which tables and figures follow


def test_no_cell_is_measured_twice(few, tmp_path, monkeypatch):
    options = ["--results", tmp_path / "tables.jsonl", "--figure", tmp_path / "tables.png", "--splits", 2]
    chosen = ["--only", "MetaFun", "--only", "k-nearest neighbours"]
    done = metafun("bench", "tables", *options, *chosen, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found) == {"classification", "regression"}
    assert set(found["classification"]["MetaFun"]) == {"accuracy_2", "log_likelihood_2", "ece_2"}
    assert "log_likelihood_8" in found["regression"]["MetaFun"] and (tmp_path / "tables.png").stat().st_size > 1000
    monkeypatch.setattr(tables, "measure", lambda *cell: pytest.fail("it is in the results"))
    shown = metafun("bench", "tables", *options, *chosen)
    assert shown.exit_code == 0 and "k-nearest neighbours" in shown.stdout


def test_results_of_another_checkpoint_are_measured_again(few, tmp_path):
    path = tmp_path / "tables.jsonl"
    (recorded,) = (cell for cell in read_cells(RESULTS) if cell.key == ("iris", 2, "MetaFun"))
    add_cell(path, recorded)
    splits = recorded.splits

    def missing(splits):
        return list(tables.missing_cells(path, splits, ["MetaFun"], ["iris"]))

    assert missing(splits) == [] and missing(splits + 1) == [("iris", 2, "MetaFun")]
    add_cell(path, replace(recorded, checkpoint="another"))
    assert len(read_cells(path)) == 1 and missing(splits) == [("iris", 2, "MetaFun")]


def test_every_model_can_be_measured(few):
    for data, chosen in SETS.items():
        cells = [tables.measure(data, chosen.sizes[0], name, 1) for name in models(chosen.problem)]
        metric = "log_likelihood" if chosen.problem == "classification" else "r2"
        assert len({cell.metrics[metric][0] for cell in cells}) > 4, "they are different models"


def test_a_recorded_cell_is_reproduced():
    """The metrics are those of the recorded results, up to float32 in the reliability bins."""
    recorded = {cell.key: cell for cell in read_cells(RESULTS)}
    for key, metrics in {
        ("wine", 5, "k-nearest neighbours"): ("accuracy", "log_likelihood"),
        ("diabetes", 16, "Gaussian process"): ("r2", "log_likelihood"),
    }.items():
        again = tables.measure(*key, 3)
        for name in metrics:
            np.testing.assert_allclose(again.metrics[name], recorded[key].metrics[name][:3], rtol=1e-4)


def test_splits_are_balanced_and_disjoint():
    y = np.repeat([3, 7, 9], [40, 30, 50])
    train, test = split_rows(y, 5, "classification", np.random.default_rng(0))
    assert np.unique(y[train], return_counts=True)[1].tolist() == [5, 5, 5]
    assert not set(train) & set(test) and len(test) == 105
    again, _ = split_rows(y, 5, "classification", np.random.default_rng(0))
    np.testing.assert_array_equal(train, again)


def test_metrics_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    classes, y = np.array([2, 5, 6]), rng.choice([2, 5, 6], 50)
    probabilities = rng.dirichlet(np.ones(3), 50)
    found, reliability = classifier_metrics(probabilities, classes, y)
    assert found["accuracy"] == accuracy_score(y, classes[probabilities.argmax(1)])
    np.testing.assert_allclose(found["log_likelihood"], -log_loss(y, probabilities))
    # The bins are computed in float32.
    expected = [1, probabilities.max(1).mean(), found["accuracy"]]
    np.testing.assert_allclose(reliability.sum(0), expected, rtol=1e-6)
    values, mean = rng.normal(size=30), rng.normal(size=30)
    assert regressor_metrics(mean, None, values) == {"r2": r2_score(values, mean)}


def test_certain_but_wrong_predictions_have_a_finite_likelihood():
    found, _ = classifier_metrics(np.array([[1.0, 0.0]]), np.array([0, 1]), np.array([1]))
    np.testing.assert_allclose(found["log_likelihood"], np.log(1e-6), rtol=1e-6)
    found = regressor_metrics(np.zeros(2), np.zeros(2), np.array([1e-6, -1e-6]))
    np.testing.assert_allclose(found["log_likelihood"], -0.5 - np.log(1e-6 * np.sqrt(2 * np.pi)))


def test_calibration_error_of_a_cell():
    (cell,) = (c for c in read_cells(RESULTS) if c.key == ("iris", 2, "MetaFun"))
    share, confidence, accuracy = np.array(cell.reliability).T
    np.testing.assert_allclose(share.sum(), 1)
    assert mean_metrics(cell)["ece"] == pytest.approx(abs(confidence - accuracy).sum())


def test_mistakes_on_the_command_line(tmp_path):
    for option, name, near in (("--only", "random forrest", "random forest"), ("--data", "irish", "iris")):
        refused = metafun("bench", "tables", option, name, "--results", tmp_path / "r", "--figure", tmp_path / "f.png")
        assert refused.exit_code == 2 and f"did you mean '{near}'" in refused.stderr
    (tmp_path / "broken.jsonl").write_text('{"data": "iris", "si', "utf-8")
    refused = metafun("bench", "tables", "--results", tmp_path / "broken.jsonl", "--figure", tmp_path / "f.png")
    assert refused.exit_code == 2 and "a line that is not a benchmark result" in refused.stderr
    refused = metafun("bench", "tables", "--results", tmp_path / "no" / "where.jsonl")
    assert refused.exit_code == 2 and "there is no folder" in refused.stderr
