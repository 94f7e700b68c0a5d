"""The benchmark on small tables: the same splits for every model, no cell measured twice, scikit-learn's metrics."""

import json
import sys
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
from metafun.bench.table_files import open_folder
from metafun.cli import app
from metafun.errors import InvalidResults

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
        return list(tables.missing_cells(path, splits, ["MetaFun"], {"iris": SETS["iris"]}))

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


@pytest.fixture
def folder(tmp_path):
    """A CSV file to classify with a category and missing entries, and one of numbers as .npz."""
    rng, place = np.random.default_rng(0), tmp_path / "my tables"
    place.mkdir()
    sizes, colours = rng.normal(size=18), rng.choice(["red", "green"], 18)
    rows = [
        f"{'' if i % 9 == 0 else f'{size:.3f}'},{colour},{'big' if size > 0 else 'small'}"
        for i, (size, colour) in enumerate(zip(sizes, colours, strict=True))
    ]
    (place / "balls.csv").write_text("\n".join(["size,colour,kind", *rows]), "utf-8")
    x = rng.normal(size=(20, 2))
    np.savez(place / "lines.npz", X=x, y=x @ [1.0, 2.0], categorical=np.zeros(2, bool))
    return place


CHANGED = (
    {"metrics": {}},
    {"metrics": {"accuracy": "high"}},
    {"metrics": {"accuracy": [[1]]}},
    {"metrics": {"accuracy": []}},
    {"metrics": {"accuracy": [1.0], "log_likelihood": [1.0, 2.0]}},
    {"reliability": [[1.0]]},
    {"reliability": [[1.0, 1.0, 1.0], [1.0]]},
    {"size": "2"},
    {"seeds": None},
    {"model": "\x1b[2J"},
    {"metrics": {"accuracy": [0.5], "\x1b[2J": [0.5]}},
)


@pytest.mark.parametrize(
    "change", [{"model": "a model of yore"}, {"metrics": {"r2": [1.0]}}, {"metrics": {"x": [1.0]}}]
)
def test_cells_of_other_models_and_metrics_are_ignored(tmp_path, change):
    line = json.loads(RESULTS.read_text("utf-8").splitlines()[0])
    (tmp_path / "r.jsonl").write_text("".join(json.dumps(each) + "\n" for each in (line, line | change)), "utf-8")
    assert len(read_cells(tmp_path / "r.jsonl")) == 2
    (cell,) = tables.measured_cells(tmp_path / "r.jsonl", SETS)
    assert cell.key == tuple(line[name] for name in ("data", "size", "model"))
    tables.draw([cell], tmp_path / "figure.png")


@pytest.mark.parametrize("change", [*CHANGED, "[" * 100_000, "9" * 5000, "null"], ids=lambda change: str(change)[:40])
def test_a_line_of_other_types_is_refused(tmp_path, change):
    line = json.loads(RESULTS.read_text("utf-8").splitlines()[0])
    text = change if isinstance(change, str) else json.dumps(line | change)
    (tmp_path / "r.jsonl").write_text(text + "\n", "utf-8")
    with pytest.raises(InvalidResults, match="not a benchmark result"):
        read_cells(tmp_path / "r.jsonl")


def test_a_folder_of_tables_is_measured_once(folder, tmp_path, monkeypatch):
    options = ["bench", "tables", "--dir", folder, "--results", tmp_path / "mine.jsonl", "--splits", 2]
    chosen = ["--only", "MetaFun", "--only", "ridge", "--only", "logistic regression"]
    done = metafun(*options, *chosen, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert list(found["regression"]) == ["MetaFun", "ridge"] and found["regression"]["ridge"]["r2_8"] > 0.8
    # Five rows of each of two classes are more than half of 18.
    assert [name for name in found["classification"]["MetaFun"] if "accuracy" in name] == ["accuracy_2"]
    assert f"--dir '{folder}'" in read_cells(tmp_path / "mine.jsonl")[0].command
    with monkeypatch.context() as patched:
        patched.setattr(tables, "measure", lambda *cell, **options: pytest.fail("it is in the results"))
        assert metafun(*options, *chosen).exit_code == 0
    np.savez(folder / "lines.npz", X=np.ones((30, 1)), y=np.arange(30.0))
    missing = tables.missing_cells(tmp_path / "mine.jsonl", 2, ["ridge"], open_folder(folder))
    assert set(missing) == {("lines", 8, "ridge")}, "the table is another one"


def test_categories_of_a_file_are_one_hot_for_the_others(folder):
    table = open_folder(folder)["balls"]
    x, y = table.load()
    assert table.categorical == (False, True) and np.isnan(x[:, 0]).sum() == 2 and set(y) == {"big", "small"}
    makers = models("classification")
    assert makers.pop("MetaFun")(y, table.categorical).fit(x[:12], y[:12]).predict_proba(x[12:]).shape == (6, 2)
    for name, make in makers.items():
        model = make(y[:20], table.categorical)
        prepared = model[:-1].fit_transform(x[:12])
        assert prepared.shape == (12, 3) and not np.isnan(prepared).any()
        if not name.endswith("tuned"):  # a search over the same models takes long
            assert model.fit(x[:12], y[:12]).predict_proba(x[12:]).shape == (6, 2)


def test_a_subfolder_says_what_is_predicted(folder):
    (folder / "regression").mkdir()
    (folder / "regression" / "grades.csv").write_text(
        "x,grade\n" + "\n".join(f"{i},{i % 4}" for i in range(40)), "utf-8"
    )
    assert {name: table.problem for name, table in open_folder(folder).items()} == {"grades": "regression"}
    assert open_folder(folder / "regression")["grades"].problem == "classification"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({}, "has no tables"),
        ({"a.npz": {"X": np.ones((9, 2))}}, "its array 'y' is missing"),
        ({"a.npz": {"X": np.ones((9, 2)), "y": np.ones(8)}}, "a number or text in y for each row"),
        (
            {"a.npz": {"X": np.ones((9, 2)), "y": np.array([b"a", b"b", b"c"] * 3)}},
            "a number or text in y for each row",
        ),
        ({"a.npz": {"X": np.ones((9, 2)), "y": np.full(9, np.nan)}}, "y is nan in row 0"),
        ({"a.npz": {"X": np.ones((9, 2)), "y": np.arange(9.0)}}, "too few to train on"),
        ({"a.npz": {"X": np.ones((9, 2)), "y": np.ones(9)}}, "y is 1 in every row"),
        ({"a.npz": {"X": np.ones((9, 0)), "y": np.arange(9.0)}}, "has no inputs"),
        ({"a.npz": {"X": np.full((9, 2), np.nan), "y": np.arange(9.0)}}, "has no inputs"),
        ({"a.npz": {"X": np.full((9, 2), -np.inf), "y": np.arange(9.0)}}, "its inputs hold -inf"),
        ({"a.npz": {"X": np.ones((9, 2)), "y": np.arange(9) * 1e200}}, "y hold 1e+200"),
        pytest.param(
            {"a\x1b.csv": "x,z\n1,2\n", "a?.csv": "x,z\n1,2\n"},
            "2 tables of the name 'a?'",
            marks=pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such names"),
        ),
        ({"a.npz": {"X": np.ones((9, 2)), "y": np.zeros(9, int)}}, "fewer than two have 3 rows"),
        ({"a.csv": "x,y\n1,2\n"}, "no column 'z'"),
        ({"a.csv": "z\n1\n"}, "no column beside 'z'"),
        ({"a.csv": "x,z\n1,2\n", "a.npz": {"X": np.ones((40, 2)), "y": np.ones(40)}}, "2 tables of the name 'a'"),
    ],
)
def test_folders_that_cannot_be_measured(tmp_path, files, reason):
    place = tmp_path / "tables"
    place.mkdir()
    for name, content in files.items():
        if isinstance(content, str):
            (place / name).write_text(content, "utf-8")
        else:
            np.savez(place / name, **content)
    refused = metafun("bench", "tables", "--dir", place, "--target", "z", "--results", tmp_path / "r.jsonl")
    assert refused.exit_code == 2 and reason in refused.stderr.replace("\n", " "), refused.stderr
    refused = metafun("bench", "tables", "--target", "z", "--results", tmp_path / "r.jsonl")
    assert refused.exit_code == 2 and "give that too" in refused.stderr
