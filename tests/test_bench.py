"""The benchmark on small tables: the same splits for all, nothing measured twice, judged as scikit-learn judges."""

import json

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, r2_score
from typer.testing import CliRunner

from metafun import bench
from metafun.cli import app


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def few(monkeypatch):
    sizes = {"iris": (2,), "diabetes": (8,)}
    chosen = {name: bench.TableSet(bench.SETS[name].load, bench.SETS[name].problem, sizes[name]) for name in sizes}
    monkeypatch.setattr(bench, "SETS", chosen)
    monkeypatch.setattr("metafun.plots.tables.SETS", chosen)


def test_what_is_there_is_not_measured_again(few, tmp_path, monkeypatch):
    options = ["--results", tmp_path / "tables.jsonl", "--figure", tmp_path / "tables.png", "--splits", 2]
    models = ["--only", "MetaFun", "--only", "k-nearest neighbours"]
    done = metafun("bench", "tables", *options, *models, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found) == {"classification", "regression"}
    assert set(found["classification"]["MetaFun"]) == {"accuracy_2", "log_likelihood_2", "ece_2"}
    assert "log_likelihood_8" in found["regression"]["MetaFun"] and (tmp_path / "tables.png").stat().st_size > 1000
    monkeypatch.setattr(bench, "measure", lambda *cell: pytest.fail("it was there"))
    shown = metafun("bench", "tables", *options, *models)
    assert shown.exit_code == 0 and "k-nearest neighbours" in shown.stdout


def test_every_model_can_be_measured(few):
    for data, chosen in bench.SETS.items():
        cells = {name: bench.measure(data, chosen.sizes[0], name, 2) for name in bench.models(chosen.problem)}
        metric = "accuracy" if chosen.problem == "classification" else "r2"
        assert all(len(cell.metrics[metric]) == 2 for cell in cells.values())
        assert len({tuple(cell.metrics[metric]) for cell in cells.values()}) > 4, "they are different models"


def test_splits_are_even_and_apart():
    y = np.repeat([3, 7, 9], [40, 30, 50])
    given, judged = bench._split(y, 5, "classification", np.random.default_rng(0))
    assert np.unique(y[given], return_counts=True)[1].tolist() == [5, 5, 5]
    assert not set(given) & set(judged) and len(judged) == 105
    again, _ = bench._split(y, 5, "classification", np.random.default_rng(0))
    np.testing.assert_array_equal(given, again)


def test_judged_as_scikit_learn_judges():
    rng = np.random.default_rng(0)
    classes, y = np.array([2, 5, 6]), rng.choice([2, 5, 6], 50)
    said = rng.dirichlet(np.ones(3), 50)
    found, reliability = bench._judge_classes(said, classes, y)
    assert found["accuracy"] == accuracy_score(y, classes[said.argmax(1)])
    np.testing.assert_allclose(found["log_likelihood"], -log_loss(y, said))
    np.testing.assert_allclose(reliability.sum(0), [1, said.max(1).mean(), found["accuracy"]])
    values, mean = rng.normal(size=30), rng.normal(size=30)
    np.testing.assert_allclose(bench._judge_numbers((mean, None), values)["r2"], r2_score(values, mean))


def test_mistakes_on_the_command_line(tmp_path):
    refused = metafun("bench", "tables", "--only", "random forrest")
    assert refused.exit_code == 2 and "did you mean 'random forest'" in refused.stderr
    (tmp_path / "broken.jsonl").write_text('{"data": "iris", "si', "utf-8")
    refused = metafun("bench", "tables", "--results", tmp_path / "broken.jsonl")
    assert refused.exit_code == 2 and "a line that no benchmark wrote" in refused.stderr
    refused = metafun("bench", "tables", "--results", tmp_path / "no" / "where.jsonl")
    assert refused.exit_code == 2 and "there is no folder" in refused.stderr
