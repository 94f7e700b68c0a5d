"""A user's arrays and files: meta_fit, save, load and export; metafun fit, predict and export."""

import csv
import json
import pickle
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from jax import export
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from typer.testing import CliRunner

from metafun import MetaFunClassifier, MetaFunRegressor
from metafun.cli import app
from metafun.data.csv_columns import read_csv
from metafun.errors import InvalidCheckpoint, InvalidConfig, InvalidData, InvalidTask
from metafun.estimators import meta_fit
from metafun.estimators.meta_fit import classification_data
from metafun.estimators.task_rows import tasks_of_groups, tasks_of_pairs

SMALL = {
    "model.iterations": 2,
    "model.representation": 8,
    "model.pooling.layers": 1,
    "model.pooling.width": 8,
    "model.update.width": 8,
    "training.batch": 4,
    "training.validation_tasks": 10,
}
LINES = {**SMALL, "model.pooling.heads": 2, "model.decoder.width": 8}


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def lines(count=12, seed=0):
    """Tasks of different sizes: straight lines with inputs and outputs far from unit scale."""
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(0, 1000, (n, 1)) for n in rng.integers(4, 9, count)]
    return [(x, 5e4 + rng.normal() * x[:, 0]) for x in inputs]


def blobs(classes=8, rows=6, dx=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat([f"kind {i}" for i in range(classes)], rows)
    return np.repeat(rng.normal(size=(classes, dx)), rows, axis=0) + 0.2 * rng.normal(size=(classes * rows, dx)), labels


@pytest.fixture(scope="module")
def regressor():
    return MetaFunRegressor().meta_fit(lines(), steps=20, settings=LINES, progress=False)


@pytest.fixture(scope="module")
def classifier():
    return MetaFunClassifier().meta_fit(*blobs(), steps=20, settings=SMALL, progress=False)


def test_meta_fit_learns_from_tasks_of_different_sizes():
    wide = {f"model.{part}": 32 for part in ("representation", "pooling.width", "update.width", "decoder.width")}
    settings = {**LINES, **wide, "training.batch": 16, "training.validation_tasks": 100}
    model = MetaFunRegressor().meta_fit(lines(100), steps=200, settings=settings, progress=False)
    errors, constant = [], []
    for x, y in lines(20, seed=1):
        errors.append(np.abs(clone(model).fit(x[:3], y[:3]).predict(x[3:]) - y[3:]).mean())
        constant.append(np.abs(y[:3].mean() - y[3:]).mean())
    assert np.mean(errors) < np.mean(constant) / 2, "in the units of y, with inputs far from unit scale"


def test_the_trained_model_is_kept_by_clone_pickle_and_cross_validation(regressor, classifier):
    x, y = lines()[0]
    copy = clone(regressor)
    assert copy.get_params()["checkpoint"] is regressor.checkpoint
    assert len(cross_val_score(regressor, x, y, cv=2)) == 2
    fitted = copy.fit(x, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(x), fitted.predict(x))
    rebuild, (config, arrays, _) = fitted.checkpoint.__reduce__()
    assert rebuild(config, arrays).experiment == fitted.checkpoint.experiment, "pickles of 0.1.0 have no record"
    x, y = blobs(3, seed=1)
    assert set(classifier.fit(x, y).predict(x)) <= set(y)


def test_saved_and_loaded(regressor, classifier, tmp_path):
    path = tmp_path / "model.safetensors"
    for model, (x, y) in ((regressor, lines()[0]), (classifier, blobs(3, seed=1))):
        model = clone(model)
        model.save(path)
        unfitted = type(model).load(path)
        assert not hasattr(unfitted, "X_")
        model.fit(x, y).save(path)
        np.testing.assert_array_equal(type(model).load(path).predict(x), model.predict(x))
    with pytest.raises(InvalidCheckpoint, match="is a model for classification; this estimator is for regression"):
        MetaFunRegressor.load(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidCheckpoint, match="is truncated or not a safetensors file"):
        MetaFunClassifier.load(path)


def test_a_saved_context_that_contradicts_its_labels_is_refused(classifier, tmp_path):
    classifier.fit(*blobs(3, seed=1))
    classifier.classes_ = classifier.classes_[:1]
    classifier.save(tmp_path / "model.safetensors")
    with pytest.raises(InvalidCheckpoint, match="has a damaged context"):
        MetaFunClassifier.load(tmp_path / "model.safetensors")


def test_an_exported_program_gives_the_same_numbers(regressor, classifier, tmp_path):
    x, y = lines()[0]
    regressor.fit(x, y).export(tmp_path / "line")
    program = export.deserialize(bytearray((tmp_path / "line").read_bytes()))
    for rows in (x, x[:2]):
        mean, std = program.call(rows.astype(np.float32))
        expected, spread = regressor.predict(rows, return_std=True)
        np.testing.assert_allclose(mean[:, 0], expected, rtol=1e-4)
        # Lines without noise: float32 rounds what remains of a variance that is 10,000 times as large.
        np.testing.assert_allclose(std[:, 0], spread, rtol=5e-3)
    assert set(program.platforms) == {"cpu", "cuda"}
    x, y = blobs(3, seed=1)
    classifier.fit(x, y).export(tmp_path / "classes")
    found = export.deserialize(bytearray((tmp_path / "classes").read_bytes())).call(x.astype(np.float32))
    np.testing.assert_allclose(found, classifier.predict_proba(x), atol=1e-5)


def test_an_interrupted_training_resumes(tmp_path, monkeypatch):
    watched = meta_fit.watched

    def interrupted(*arguments):
        for chunk, metrics in enumerate(watched(*arguments)):
            yield metrics
            if chunk == 3:
                raise KeyboardInterrupt

    options = {"steps": 20, "settings": LINES, "progress": False, "folder": tmp_path / "a"}
    # Not the fixture: programs that draw its weights may have been compiled by a test with optimisations.
    whole = MetaFunRegressor().meta_fit(lines(), **{**options, "folder": tmp_path / "whole"})
    monkeypatch.setattr(meta_fit, "watched", interrupted)
    with pytest.raises(KeyboardInterrupt):
        MetaFunRegressor().meta_fit(lines(), **options)
    monkeypatch.undo()
    resumed = MetaFunRegressor().meta_fit(lines(), **options)
    steps = [json.loads(line)["step"] for line in (tmp_path / "a" / "run" / "metrics.jsonl").read_text().splitlines()]
    assert steps == list(range(2, 21, 2))
    leaves = zip(*(jax.tree.leaves(model.checkpoint.model) for model in (whole, resumed)), strict=True)
    assert all(np.array_equal(a, b) for a, b in leaves), "as without an interruption"
    assert MetaFunRegressor(tmp_path / "a").fit(*lines()[0]).predict([[3.0]]).shape == (1,), "a folder is a checkpoint"
    with pytest.raises(InvalidData, match="holds a training on other arrays or with other settings"):
        MetaFunRegressor().meta_fit(lines(seed=1), **options)


def test_files_and_pickles_of_version_0_1_still_load():
    """The files were written by `save` when metafun.estimators was one module."""
    folder = Path(__file__).parent / "saved_by_0_1"
    mean, std = MetaFunRegressor.load(folder / "regressor.safetensors").predict([[100.0], [900.0]], return_std=True)
    np.testing.assert_allclose(mean, [50048.613, 49989.0126], rtol=1e-6)
    np.testing.assert_allclose(std, [425.290, 411.865], rtol=1e-4)
    classifier = MetaFunClassifier.load(folder / "classifier.safetensors")
    assert classifier.classes_.tolist() == ["kind 0", "kind 1", "kind 2"]
    expected = [[0.049071, 0.921308, 0.029621], [0.706471, 0.194237, 0.099293]]
    np.testing.assert_allclose(classifier.predict_proba(np.eye(5)[:2]), expected, atol=1e-5)
    for estimator in (MetaFunRegressor, MetaFunClassifier):
        assert pickle.loads(f"cmetafun.estimators\n{estimator.__name__}\n.".encode()) is estimator


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (lines(2), "got 2 tasks; meta-learning needs many, at least 3"),
        (
            [*lines(3), (np.ones((3, 2)), np.ones(3))],
            "task 3 has 2 inputs and 1 output, but task 0 1 input and 1 output; give all",
        ),
        ([*lines(3), (np.ones((3, 1, 1)), np.ones(3))], "task 3: Found array with dim 3"),
        ([*lines(3), (np.full((3, 1), np.inf), np.ones(3))], "task 3: Input X contains infinity"),
        (
            [*lines(3), (np.ones((3, 1)), [1, np.nan, 2])],
            "task 3: y is missing in row 1; leave out rows without a finite y .1 such row",
        ),
        ([*lines(3), (np.ones((3, 1)), ["a", "b", "c"])], "task 3: could not convert string to float"),
        ([*lines(3), (np.ones((3, 1)), np.ones(2))], "task 3: .* inconsistent numbers of samples"),
        ([(x, np.ones(len(x))) for x, _ in lines(4)], "y is 1 in all rows of all tasks"),
        ([*lines(3), 7], "task 3: cannot unpack"),
        (None, "tasks must be a list of pairs"),
        ("abc", "tasks must be a list of pairs"),
    ],
)
def test_invalid_tasks_are_refused(tasks, message):
    with pytest.raises(ValueError, match=message):
        MetaFunRegressor().meta_fit(tasks)


def test_a_single_input_needs_no_second_axis():
    expected, tasks = tasks_of_pairs(lines()), [(x[:, 0], y) for x, y in lines()]
    x, y = map(np.concatenate, zip(*tasks, strict=True))
    for rows in (tasks_of_pairs(tasks), tasks_of_groups(x, y, expected.codes)):
        np.testing.assert_array_equal(rows.x, expected.x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x[:12], y[:12]), "y has 2 classes; meta-learning needs many, at least 4"),
        (lambda x, y: (x[:-5], y[:-5]), "class 'kind 7' has one row"),
        (lambda x, y: (np.where(x > 0, x, np.inf), y), "contains infinity"),
        (lambda x, y: (x, np.linspace(0, 1, len(x))), "continuous"),
    ],
)
def test_invalid_classes_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        MetaFunClassifier().meta_fit(*change(*blobs()))


def test_a_mistyped_checkpoint_name_gets_a_suggestion():
    with pytest.raises(InvalidCheckpoint, match="no checkpoint of that name is shipped; did you mean 'sinusoid'"):
        MetaFunRegressor("sinusiod").fit(*lines()[0])


def write(path: Path, names, *columns) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))
    return path


def settings(values):
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def planes(tmp_path_factory):
    """A file of tasks z = a x + b y with named columns, and the model that `metafun fit` trained on it."""
    folder, rng = tmp_path_factory.mktemp("planes"), np.random.default_rng(0)
    rows = [(f"t{i}", *point) for i in range(12) for point in rng.normal(size=(6, 3))]
    data, model = folder / "planes.csv", folder / "planes.safetensors"
    write(data, ["task", "x", "y", "z"], *zip(*rows, strict=True))
    done = metafun("fit", data, "--target", "z", "--task", "task", "--out", model, "--steps", 20, *settings(LINES))
    assert done.exit_code == 0, done.output
    assert "held-out tasks" in done.stderr
    return model


def test_tasks_in_a_file_become_predictions_in_a_file(planes, tmp_path):
    (x, y, z), out = np.random.default_rng(1).normal(size=(3, 5)), tmp_path / "predictions.csv"
    known = write(tmp_path / "known.csv", ["x", "y", "z"], x, y, z)
    asked = write(tmp_path / "asked.csv", ["place", "x", "y"], ["here", "there"], x[:2], y[:2])
    options = ["--model", planes, "--context", known]
    done = metafun("predict", asked, *options, "--out", out)
    assert done.exit_code == 0, done.output
    found = read_csv(out)
    assert found.names == ["place", "x", "y", "z", "z_std"] and found.entries["place"] == ["here", "there"]
    expected = MetaFunRegressor(planes).fit(np.c_[x, y], z).predict(np.c_[x, y][:2], return_std=True)
    np.testing.assert_allclose(found.numbers(["z", "z_std"]).T, expected, rtol=1e-6)

    again = metafun("predict", asked, *options, "--out", out)
    assert again.exit_code == 2 and "exists already" in again.stderr
    as_json = metafun("predict", asked, *options, "--json")
    np.testing.assert_allclose(json.loads(as_json.stdout)["z"], expected[0], rtol=1e-6)
    done = metafun("export", *options, "--out", tmp_path / "program")
    assert done.exit_code == 0 and (tmp_path / "program").exists()
    one = write(tmp_path / "one.csv", ["task", "x", "y", "z"], ["a"] * 5, x, y, z)
    for tasks, message in ((["a", "b"], "has rows of 2 tasks in 'task'"), (["b", "b"], "has rows of 'b', but ")):
        asked = write(tmp_path / f"{tasks}.csv", ["task", "x", "y"], tasks, x[:2], y[:2])
        refused = metafun("predict", asked, "--model", planes, "--context", one, "--json")
        assert refused.exit_code == 2 and message in refused.stderr


def test_a_model_is_replaced_with_overwrite_only(planes, tmp_path):
    shutil.copytree(planes.parent, tmp_path, dirs_exist_ok=True)
    before = planes.read_bytes()
    command = ["fit", tmp_path / planes.with_suffix(".csv").name, "--target", "z", "--task", "task"]
    command += ["--out", tmp_path / planes.name, "--steps", 10, *settings(LINES)]
    refused = metafun(*command)
    assert refused.exit_code == 2 and "replace it with --overwrite" in refused.stderr
    assert (tmp_path / planes.name).read_bytes() == before
    assert metafun(*command, "--overwrite").exit_code == 0, "with other settings"
    assert (tmp_path / planes.name).read_bytes() != before


def test_columns_are_matched_by_the_names_in_training(planes, tmp_path):
    x, y, z = np.random.default_rng(1).normal(size=(3, 5))
    asked = write(tmp_path / "asked.csv", ["y", "x", "z"], y, x, z)
    answers = []
    for i, (names, columns) in enumerate(
        ((["x", "y", "z"], (x, y, z)), (["y", "z", "x"], (y, z, x)), (["task", "z", "x", "y"], (["new"] * 5, z, x, y)))
    ):
        known = write(tmp_path / f"known{i}.csv", names, *columns)
        done = metafun("predict", asked, "--model", planes, "--context", known, "--json")
        assert done.exit_code == 0, done.output
        answers.append(json.loads(done.stdout)["z (predicted)"])
    assert answers[0] == answers[1] == answers[2], "in any order, with any other columns"
    lacking = write(tmp_path / "lacking.csv", ["x", "z"], x, z)
    refused = metafun("predict", asked, "--model", planes, "--context", lacking, "--json")
    assert refused.exit_code == 2 and "has no column 'y'" in refused.stderr
    unlabelled = write(tmp_path / "unlabelled.csv", ["x", "y"], x, y)
    refused = metafun("predict", asked, "--model", planes, "--context", unlabelled, "--json")
    assert (
        refused.exit_code == 2
        and "has no column 'z', which the model predicts, for --target; known: x, y." in refused.stderr
    )


def test_all_columns_of_the_target_file_are_kept(planes, tmp_path):
    x, y, z = np.random.default_rng(1).normal(size=(3, 5))
    known = write(tmp_path / "known.csv", ["x", "y", "z"], x, y, z)
    done = metafun("predict", known, "--model", planes, "--context", known, "--out", tmp_path / "out.csv")
    assert done.exit_code == 0, done.output
    found = read_csv(tmp_path / "out.csv")
    assert found.names == ["x", "y", "z", "z (predicted)", "z_std"]
    np.testing.assert_array_equal(found.numbers(["z"])[:, 0], z)
    refused = metafun("predict", known, "--model", planes, "--context", known, "--out", tmp_path / "no/p.csv")
    assert refused.exit_code == 2 and "there is no folder" in refused.stderr


def test_warnings_are_printed_in_a_line_each(tmp_path):
    known = write(tmp_path / "known.csv", ["x", "y"], [0.0, 70.0], [300.0, 301.0])
    done = metafun("predict", known, "--model", "gp-rbf", "--context", known, "--json")
    assert done.exit_code == 0 and "warning: " in done.stderr and "scale X" in done.stderr and "scale y" in done.stderr


def test_a_larger_share_of_few_classes_is_held_out():
    table = classification_data(*blobs(10)).table
    assert len(table.split("val")) == 3 and len(table.split("train")) == 7
    assert len(classification_data(*blobs(100)).table.split("val")) == 20


def test_numbers_that_are_too_large_are_refused():
    with pytest.raises(InvalidTask, match="too large to compute with; scale them"):
        MetaFunRegressor().meta_fit([(1e35 * x, y) for x, y in lines()])
    with pytest.raises(InvalidTask, match="too large to compute with; scale them"):
        MetaFunClassifier().meta_fit(1e300 * blobs()[0], blobs()[1])


def test_classes_in_a_file_become_probabilities_in_a_file(tmp_path):
    (x, y), model, out = blobs(), tmp_path / "kinds.safetensors", tmp_path / "predictions.csv"
    np.savez(tmp_path / "rows.npz", X=x, y=y)
    done = metafun("fit", tmp_path / "rows.npz", "--target", "y", "--out", model, "--steps", 20, *settings(SMALL))
    assert done.exit_code == 0 and "on held-out classes" in done.stderr, done.output
    x, y = blobs(3, 2, seed=1)
    names = [f"f{i}" for i in range(x.shape[1])]
    known = write(tmp_path / "known.csv", [*names, "kind"], *x.T, y)
    done = metafun("predict", known, "--model", model, "--context", known, "--out", out)
    assert done.exit_code == 0, done.output
    found = read_csv(out)
    assert found.names == [*names, "kind", "kind (predicted)", "P(kind 0)", "P(kind 1)", "P(kind 2)"]
    np.testing.assert_allclose(found.numbers(found.names[-3:]).sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it has no rows below the names"),
        ("x,y\n", "it has no rows below the names"),
        ("1,2\n3,4\n", "numbers instead of column names"),
        ("x,y\n1\n", "row 1 has 1 field for 2 columns"),
        ("x,x\n1,2\n", "each needs a different name"),
        ("x,\x1b[2J\n1,2\n", "each needs a different name"),
        ('x,y\n"1,2\n', "is refused"),
        ("x,y\n" + "9" * 100_000 + ",1\n", "is refused"),
        ("x,y\none,2\n", "row 1: 'x' is 'one', not a number"),
        ("x,z\n1,2\n", "has no column 'y'"),
    ],
)
def test_invalid_csv_files_are_refused(tmp_path, text, message):
    path = tmp_path / "rows.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidData, match=message):
        read_csv(path).numbers(["x", "y"])
    refused = metafun("fit", path, "--target", "y", "--task", "x", "--out", tmp_path / "model.safetensors")
    assert refused.exit_code == 2 and "Traceback" not in refused.output
    assert not list(tmp_path.glob("model*"))


def test_targets_that_are_not_classes_are_refused(tmp_path):
    path = write(tmp_path / "rows.csv", ["x", "y"], range(20), np.linspace(0, 1, 20))
    refused = metafun("fit", path, "--target", "y", "--out", tmp_path / "model.safetensors")
    assert refused.exit_code == 2 and "--task COLUMN" in refused.stderr
    binary = tmp_path / "image.csv"
    binary.write_bytes(bytes(range(256)))
    assert metafun("fit", binary, "--target", "y", "--out", tmp_path / "m.safetensors").exit_code == 2


def test_an_unknown_setting_is_refused():
    with pytest.raises(InvalidConfig, match=r"unknown key 'model\.iteration'"):
        MetaFunRegressor().meta_fit(lines(), settings={"model.iteration": 3})


@pytest.mark.parametrize("rate", [1e-3, 0.3])
def test_a_classifier_is_not_worse_than_the_nearest_class_mean(capsys, rate):
    """Also where training does harm: the untrained model is a candidate."""
    settings = {**SMALL, "training.learning_rate": rate, "training.validation_tasks": 100}
    model = MetaFunClassifier().meta_fit(*blobs(), steps=20, settings=settings)
    record = model.checkpoint.record
    assert record["best_error"][0] <= record["first_error"][0] < 1
    words = " ".join(capsys.readouterr().err.split())
    nearest = float(re.search(r"nearest class mean ([01]\.\d+)", words)[1])
    tasks = model.checkpoint.experiment.tasks
    assert tasks.discriminant or nearest == pytest.approx(1 - record["first_error"][0], abs=1e-4)
    assert nearest <= 1 - record["best_error"][0] + 1e-4


def test_meta_fit_without_validation(capsys):
    settings = {**SMALL, "training.validate_every": 0, "training.patience": None}
    MetaFunClassifier().meta_fit(*blobs(), steps=20, settings=settings)
    assert "not validated, since training.validate_every = 0" in capsys.readouterr().err
