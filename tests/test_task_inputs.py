"""meta_fit on data frames, groups and imperfect tasks; Ctrl-C, early stops, and what the model remembers."""

import json
import pickle
import shutil
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone

from metafun import MetaFunClassifier, MetaFunRegressor
from metafun.errors import Diverged, InvalidCheckpoint, InvalidData, InvalidTask
from metafun.estimators import meta_fit
from metafun.estimators.task_rows import group_codes, tasks_of_groups, tasks_of_pairs
from metafun.estimators.trained import open_trained
from metafun.model.population import CrossFitted
from test_meta_fit import LINES, SMALL, blobs, lines

OPTIONS = {"steps": 20, "settings": LINES, "progress": False}
# Without what is fitted after the training.
BARE = {**LINES, "model.population.trees": 0}


def sensors(tasks=12, seed=0):
    """Rows of several sensors: a time, a place with a gap, a load with gaps, and a height constant in each task."""
    rng, rows = np.random.default_rng(seed), []
    for task in range(tasks):
        height = float(rng.normal())
        for _ in range(6):
            time = pd.Timestamp("2024-03-01") + pd.Timedelta(minutes=int(rng.integers(0, 10_000)))
            load = rng.normal() if rng.random() > 0.1 else np.nan
            rows.append((f"s{task}", time, rng.choice(["roof", "yard", "cellar"]), load, height, height + 0.1 * load))
    frame = pd.DataFrame(rows, columns=["sensor", "time", "place", "load", "height", "temperature"])
    frame["temperature"] = frame.temperature.fillna(0.0)
    frame.loc[3, "place"] = None
    return frame


INPUTS = ["time", "place", "load", "height"]


@pytest.fixture(scope="module")
def model():
    frame = sensors()
    return MetaFunRegressor().meta_fit(
        frame[INPUTS], frame.temperature, groups=frame.sensor, **{**OPTIONS, "settings": BARE}
    )


def test_a_model_remembers_the_columns_it_was_trained_on(model, tmp_path):
    assert model.feature_names_in_.tolist() == INPUTS and model.n_features_in_ == 4
    new = sensors(1, seed=1)
    x, y = new[INPUTS], new.temperature
    expected = clone(model).fit(x[:3], y[:3]).predict(x)
    model.save(tmp_path / "model.safetensors")
    for other in (MetaFunRegressor.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(clone(model)))):
        np.testing.assert_array_equal(other.fit(x[:3], y[:3]).predict(x), expected)
        with pytest.raises(InvalidData, match=r"must be in the order of meta_fit; use X\[\['time', 'place'"):
            other.fit(x[INPUTS[::-1]], y)
        with pytest.raises(InvalidData, match=r"not those of meta_fit.*'load' missing, 'mass' new"):
            other.fit(x.rename(columns={"load": "mass"}), y)
    with pytest.raises(ValueError, match="must be in the same order"):
        clone(model).fit(x, y).predict(x[INPUTS[::-1]])
    with pytest.raises(InvalidData, match="X is an array, but column 'time' held times before"):
        clone(model).fit(np.ones((3, 4)), y[:3])
    with pytest.raises(InvalidData, match="column 'height' is missing in row 2, but was complete in training"):
        clone(model).fit(x.assign(height=[1, 1, None, 1, 1, 1]), y)
    with pytest.warns(UserWarning, match="new category, 'attic'"):
        clone(model).fit(x.assign(place="attic"), y)


def test_pairs_and_groups_are_the_same_tasks():
    frame = sensors()
    grouped = tasks_of_groups(frame[INPUTS], frame.temperature, frame.sensor)
    parts = [part for _, part in frame.groupby("sensor")]
    pairs = tasks_of_pairs([(part[INPUTS], part.temperature) for part in parts])
    order = np.argsort(grouped.codes, kind="stable")
    np.testing.assert_allclose(grouped.x[order], pairs.x, rtol=1e-12)
    assert pairs.encoding.outputs == grouped.encoding.outputs
    polar = pl.DataFrame({name: frame[name].tolist() for name in ("sensor", "height", "temperature")})
    again = tasks_of_groups(polar.select("height"), polar["temperature"], polar["sensor"])
    assert again.names == grouped.names and np.array_equal(again.codes, grouped.codes)


def test_gaps_several_outputs_and_a_task_of_constant_y_are_accepted():
    tasks = [(np.c_[x, np.where(x > 500, np.nan, 1.0)], np.c_[y, -y]) for x, y in lines()]
    tasks[0][1][:] = 5e4
    model = MetaFunRegressor().meta_fit(tasks, **OPTIONS)
    x, y = tasks[0]
    assert np.isfinite(model.fit(x, y).predict(x)).all() and model.n_features_in_ == 2
    assert model.predict(x[:2]).shape == (2, 2)
    assert model.predict_quantiles(x[:2], (0.1, 0.5, 0.9)).shape == (2, 2, 3)
    with pytest.raises(InvalidData, match="X has 1 features, but the model was trained on 2"):
        clone(model).fit(x[:, :1], y)


def test_a_classifier_learns_from_a_frame():
    x, y = blobs()
    frame = pd.DataFrame(x, columns=list("abcde")).assign(colour=np.where(x[:, 0] > 0, "red", "blue"))
    options = {"steps": 20, "settings": SMALL, "progress": False}
    model = MetaFunClassifier().meta_fit(frame, y, **options)
    assert model.fit(frame[:12], y[:12]).predict(frame[:3]).shape == (3,)
    with pytest.raises(InvalidData, match="not those of meta_fit"):
        clone(model).fit(frame.drop(columns="a"), y)


def test_tasks_of_one_row_are_left_out_with_a_warning():
    with pytest.warns(UserWarning, match="2 of 5 tasks have a single row, .* left out: 3, 4"):
        found = tasks_of_pairs([*lines(3), ([[1.0]], [1.0]), ([[2.0]], [2.0])])
    assert found.names == ["0", "1", "2"] and found.codes.max() == 2
    with (
        pytest.warns(UserWarning),
        pytest.raises(InvalidTask, match=r"got 2 tasks; .* at least 3\. For one task use fit"),
    ):
        tasks_of_pairs([*lines(2), ([[1.0]], [1.0])])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y, g: {"X": x, "y": y}, r"or X, y and groups.* use fit\(X, y\)"),
        (lambda x, y, g: {"X": x}, r"need y and groups: meta_fit\(X, y, groups="),
        (lambda x, y, g: {"X": x, "y": y, "groups": g[:-1]}, "X has 72 rows, y 72 and groups 71"),
        (lambda x, y, g: {"X": x, "y": y, "groups": g.where(g != "s1")}, r"row 6 has no task \(6 such rows\)"),
        (lambda x, y, g: {"X": x, "y": y, "groups": g.replace("s0", " ")}, "row 0 has no task"),
        (lambda x, y, g: {"X": x, "y": y, "groups": g.to_frame()}, r"groups of shape \[72, 1\]"),
        (lambda x, y, g: {"X": x, "y": y.where(g != "s1"), "groups": g}, "task 's1': y is missing in row 0"),
        (lambda x, y, g: {"X": x, "y": y.where(g != "s1", np.inf), "groups": g}, "task 's1': y is infinite in row 0"),
        (lambda x, y, g: {"X": [(x, y), (x, y), (x.iloc[:, :2], y)]}, "task 2: .* 'load' and 'height' missing"),
        (lambda x, y, g: {"X": [(x, y), (x, y), (np.ones((72, 4)), y)]}, "some X are data frames and others arrays"),
        (
            lambda x, y, g: {"X": [(x, y), (x, y), (x.assign(place=1), y)]},
            "'place' holds text in some rows and numbers",
        ),
        (lambda x, y, g: {"X": x[[]], "y": y, "groups": g}, "X has no columns"),
    ],
)
def test_bad_collections_are_refused(call, message):
    frame = sensors()
    estimator = MetaFunRegressor()
    with pytest.raises(InvalidTask, match=message):
        estimator.meta_fit(**call(frame[INPUTS], frame.temperature, frame.sensor))
    assert estimator.checkpoint is None, "a call that is refused changes nothing"


def test_ids_of_tasks_may_be_of_any_type():
    assert group_codes([10, 9, 10])[0] == ["'9'", "'10'"]
    assert group_codes(["b", 1, "b"])[0] == ["'1'", "'b'"]
    assert group_codes(np.array([0.5, 1.5]))[1].tolist() == [0, 1]
    assert group_codes([np.int64(10), np.int64(9)])[0] == ["'9'", "'10'"]
    for groups in ([1, None], ["a", float("nan")], np.array([0.5, np.nan])):
        with pytest.raises(InvalidTask, match="row 1 has no task"):
            group_codes(groups)


def interrupted_by(signals):
    """`watched` with signals after the third chunk."""
    watched = meta_fit.watched

    def interrupting(*arguments):
        for chunk, metrics in enumerate(watched(*arguments)):
            if chunk == 2:
                for _ in range(signals):
                    signal.raise_signal(signal.SIGINT)
            yield metrics

    return interrupting


def test_ctrl_c_keeps_the_best_so_far_and_says_how_to_go_on(monkeypatch, capsys):
    monkeypatch.setattr(meta_fit, "watched", interrupted_by(1))
    model = MetaFunRegressor().meta_fit(lines(), **OPTIONS)
    said = " ".join(capsys.readouterr().err.split())
    assert "stopped at step 6 of 20; the estimator has the parameters that are the best on held-out data so far" in said
    folder = said.split("folder='")[1].split("'")[0]
    assert "12 tasks" in repr(model.checkpoint) and folder not in repr(model)
    x, y = lines()[0]
    assert model.fit(x, y).predict(x).shape == y.shape
    monkeypatch.undo()
    resumed = MetaFunRegressor().meta_fit(lines(), folder=folder, **OPTIONS)
    whole = MetaFunRegressor().meta_fit(lines(), **OPTIONS)
    np.testing.assert_array_equal(resumed.fit(x, y).predict(x), whole.fit(x, y).predict(x))


def test_an_interrupted_estimator_does_not_use_another_model(monkeypatch):
    monkeypatch.setattr(meta_fit, "watched", interrupted_by(2))
    model = MetaFunRegressor()
    with pytest.raises(KeyboardInterrupt):
        model.meta_fit(lines(), **OPTIONS)
    assert "meta_fit was interrupted" in repr(model)
    for estimator in (model, clone(model)):
        with pytest.raises(InvalidCheckpoint, match="interrupted and gave no model; call it again, or choose"):
            estimator.fit(*lines()[0])
    assert model.set_params(checkpoint=None).fit(*lines()[0])


def test_a_context_of_another_size_is_dropped(model, monkeypatch):
    monkeypatch.setattr("metafun.estimators.base.meta_train", lambda *_, **__: open_trained("gp-rbf"))
    for columns, kept in ((1, True), (2, False)):
        x, y = np.random.default_rng(0).normal(size=(5, columns)), np.arange(5.0)
        estimator = MetaFunRegressor().fit(x, y).meta_fit(lines())
        assert hasattr(estimator, "X_") == kept
        assert estimator.fit(x[:, :1], y).predict(x[:, :1]).shape == (5,)


def test_a_training_that_diverges_says_where_it_is_kept(monkeypatch):
    def diverge(run, *_):
        (run.path / "checkpoint.safetensors").touch()
        raise Diverged("the loss is not finite.")

    monkeypatch.setattr(meta_fit, "_train_until_stopped", diverge)
    with pytest.raises(Diverged, match=r"Its folder is '.*'") as caught:
        MetaFunRegressor().meta_fit(lines(), **OPTIONS)
    kept = Path(str(caught.value).split("'")[1])
    assert (kept / "run" / "config.toml").exists()
    shutil.rmtree(kept)


def test_an_early_stop_says_so_and_progress_names_the_error(capsys):
    settings = {**BARE, "training.patience": 1, "training.learning_rate": 0.05}
    model = MetaFunRegressor().meta_fit(lines(), steps=200, settings=settings)
    assert isinstance(model.checkpoint.model, CrossFitted), "no trees"
    said = " ".join(capsys.readouterr().err.split())
    assert "stopped early at step" in said and "validations in a row were no better than that of step" in said
    assert "validation RMSE" in said and "meta-training on 12 tasks" in said and "metafun-" not in said
    assert "on held-out tasks, where y has a standard deviation of" in said


def test_a_description_that_is_damaged_is_refused(tmp_path):
    options = {**OPTIONS, "settings": BARE}
    MetaFunRegressor().meta_fit(lines(), folder=tmp_path / "a", **options)
    path = tmp_path / "a" / "description.json"
    assert json.loads(path.read_text())["trained_on"].startswith("12 tasks")
    x, y = lines()[0]
    path.write_text("{}")
    with pytest.raises(InvalidData, match="on other arrays or with other settings"):
        MetaFunRegressor().meta_fit(lines(), folder=tmp_path / "a", **{**options, "steps": 21})
    assert path.read_text() == "{}", "a call that is refused changes nothing"
    for content in ("[", "[]", '{"encoding": 3}', "[" * 100_000):
        path.write_text(content)
        (tmp_path / "a" / "run" / "checkpoint.safetensors").touch()
        with pytest.raises(InvalidCheckpoint, match="damaged"):
            MetaFunRegressor(tmp_path / "a").fit(x, y)
