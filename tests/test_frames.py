"""Data frames as people have them: columns of numbers, text, booleans and times, with gaps, in any estimator."""

import datetime
import decimal
import fractions
import json
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from examples import TINY, untrained
from metafun import MetaFunClassifier, MetaFunRegressor
from metafun.data.encoding import MAX_ONE_HOT, VERSION, Encoding
from metafun.data.frames import frame_columns, is_frame, join_columns
from metafun.errors import InvalidCheckpoint, InvalidData, MetaFunError
from metafun.estimators.trained import Trained, open_trained
from metafun.training import checkpoint

DAY = 86400


def people(n=24, seed=0):
    """Rows with every kind of column and with gaps; whether someone is from Rome decides the class."""
    rng = np.random.default_rng(seed)
    rows = {
        "city": rng.choice(["Berlin", "Rome", "Paris"], n).tolist(),
        "age": rng.normal(40, 10, n).round().tolist(),
        "member": (rng.random(n) > 0.5).tolist(),
        "joined": [datetime.datetime(2024, 1, 1) + datetime.timedelta(days=int(d)) for d in rng.integers(0, 300, n)],
    }
    y = np.array(["yes" if city == "Rome" else "no" for city in rows["city"]])
    rows["age"][3], rows["city"][5], rows["joined"][6] = None, None, None
    return rows, y


FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame}


@pytest.mark.parametrize("library", FRAMES)
def test_an_estimator_encodes_the_columns_of_a_frame(library, tmp_path):
    rows, y = people()
    frame = FRAMES[library](rows)
    model = MetaFunClassifier().fit(frame, y)
    assert model.feature_names_in_.tolist() == list(rows) and model.n_features_in_ == 4
    assert model.score(frame, y) > 0.9, "the class is a function of the city"
    probabilities = model.predict_proba(frame)
    model.save(tmp_path / "model.safetensors")
    for other in (MetaFunClassifier.load(tmp_path / "model.safetensors"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict_proba(frame), probabilities)
        assert other.feature_names_in_.tolist() == list(rows) and other.n_features_in_ == 4
        with pytest.raises(ValueError, match="should match those that were passed during fit"):
            other.predict(frame[list(rows)[::-1]])
    assert np.isfinite(MetaFunRegressor().fit(frame, np.arange(len(y))).predict(frame)).all()


def test_both_libraries_give_the_same_numbers():
    rows, y = people()
    answers = [MetaFunClassifier().fit(frame(rows), y).predict_proba(frame(rows)) for frame in FRAMES.values()]
    np.testing.assert_array_equal(*answers)


def test_what_fit_has_not_seen():
    rows, y = people()
    frame = pd.DataFrame(rows)
    model = MetaFunClassifier().fit(frame, y)
    with pytest.warns(UserWarning, match="column 'city' has a new category, 'Oslo', which counts as unknown"):
        new = model.predict_proba(frame.assign(city="Oslo"))
    gap = model.predict_proba(frame.assign(city=None))
    np.testing.assert_array_equal(new, gap)
    with pytest.raises(InvalidData, match="'age' held numbers before, but now holds text, such as 'old'; convert it"):
        model.predict(frame.assign(age="old"))
    with pytest.raises(InvalidData, match="column 'age' is infinite in row 0"):
        model.predict(frame.assign(age=np.inf))
    with pytest.raises(ValueError, match="now missing:\n- age"):
        model.predict(frame.drop(columns="age"))
    numbers = MetaFunClassifier().fit(frame[["age", "member"]], y)
    array = frame[["age", "member"]].to_numpy(float)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        np.testing.assert_array_equal(numbers.predict(array), numbers.predict(frame[["age", "member"]]))
    with pytest.warns(UserWarning, match="valid feature names"), pytest.raises(InvalidData, match="'city' held text"):
        model.predict(np.ones((2, 4)))


@pytest.mark.parametrize("one_hot", [False, True])
def test_a_column_may_have_no_entry_at_all_in_new_rows(one_hot):
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "c": ["x", "y", "x", "y"]})
    encoding = Encoding.of(frame_columns(frame), keeps_missing=not one_hot)
    found = encoding(frame_columns(pd.DataFrame({"a": [1.0], "c": [np.nan]})))
    assert found.shape == (1, encoding(frame_columns(frame)).shape[1])
    nothing = encoding(frame_columns(frame.assign(c=[None, "x", "y", "x"])))[0]
    np.testing.assert_array_equal(found[0], nothing)


def test_a_frame_of_numbers_is_what_its_array_is():
    x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    frame = pd.DataFrame(x, columns=list("abc"))
    np.testing.assert_array_equal(
        MetaFunClassifier().fit(frame, y).predict_proba(frame), MetaFunClassifier().fit(x, y).predict_proba(x)
    )
    unnamed = pd.DataFrame(x)
    np.testing.assert_array_equal(
        MetaFunClassifier().fit(unnamed, y).predict_proba(unnamed), MetaFunClassifier().fit(x, y).predict_proba(x)
    )


def test_arrays_of_text_keep_scikit_learns_error():
    with pytest.raises(ValueError, match="could not convert string to float: 'Berlin'"):
        MetaFunClassifier().fit(np.array([["Berlin", 1], ["Rome", 2]], object), [0, 1])


def test_partial_fit_adds_rows_of_a_frame():
    rows, y = people()
    frame = pd.DataFrame(rows)
    apart = MetaFunClassifier().partial_fit(frame[:16], y[:16]).partial_fit(frame[16:], y[16:])
    assert len(apart.X_) == len(y) and apart.score(frame, y) > 0.9


def test_a_model_that_takes_numbers_names_the_column_that_holds_none():
    model = MetaFunRegressor(untrained("sinusoid", *TINY))
    with pytest.raises(InvalidData, match="column 'city' holds text, but the model was trained on numbers"):
        model.fit(pd.DataFrame({"city": ["a", "b", "a"]}), [1, 2, 3])
    model.fit(pd.DataFrame({"x": [0.1, 0.2]}), [1, 2])
    assert model.predict(pd.DataFrame({"x": [0.1]})).shape == (1,)


def encoded(values, keeps_missing=True):
    columns = frame_columns(pd.DataFrame({"c": values}))
    encoding = Encoding.of(columns, keeps_missing=keeps_missing)
    return encoding, encoding(columns)


def test_categories_become_codes_or_columns():
    """Codes for a model of any table, in natural order; columns of 0 and 1 for a model that is trained on them."""
    encoding, rows = encoded(["9", "10", "9", None, "a"])
    assert encoding.columns[0].categories == ("9", "10", "a")
    np.testing.assert_array_equal(rows[:, 0], [0, 1, 0, np.nan, 2])
    encoding, rows = encoded(["9", "10", "9", None, "a"], keeps_missing=False)
    assert encoding.outputs == ["c=9", "c=10", "c=a"]
    np.testing.assert_array_equal(rows, [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    encoding, rows = encoded(["n", "y", None, "y"], keeps_missing=False)
    assert encoding.outputs == ["c", "c is missing"]
    np.testing.assert_allclose(rows, [[0, 0], [1, 0], [2 / 3, 1], [1, 0]])
    sizes = pd.Categorical(["small", "large", None], categories=["small", "medium", "large"], ordered=True)
    np.testing.assert_array_equal(encoded(sizes)[1][:, 0], [0, 2, np.nan])


def test_gaps_in_numbers_and_times_are_filled_and_marked_for_a_model_that_takes_none():
    rows = encoded([1.0, np.nan, 3.0], keeps_missing=False)[1]
    np.testing.assert_array_equal(rows, [[1, 0], [2, 1], [3, 0]])
    complete = Encoding.of(frame_columns(pd.DataFrame({"c": [1.0, 2.0]})), keeps_missing=False)
    with pytest.raises(InvalidData, match="column 'c' is missing in row 1, but was complete in training"):
        complete(frame_columns(pd.DataFrame({"c": [1.0, None]})))
    times = pd.to_datetime(["2024-01-01", "2024-01-03", None])
    np.testing.assert_array_equal(encoded(times)[1][:, 0], [0, 2, np.nan])


def test_many_categories_are_bounded_and_ids_left_out():
    many = [f"c{i}" for i in range(50)] * 3 + ["c7"] * 9
    assert len(encoded(many, keeps_missing=False)[0].outputs) == MAX_ONE_HOT
    with pytest.warns(
        UserWarning, match="'name' has 30 different texts in 30 rows, like ids or free text, and is left"
    ):
        columns = frame_columns(pd.DataFrame({"name": [f"n{i}" for i in range(30)], "x": range(30)}))
        assert Encoding.of(columns, keeps_missing=True).outputs == ["x"]
    with pytest.warns(UserWarning), pytest.raises(InvalidData, match="1 column, but each has a different text"):
        Encoding.of(columns[:1], keeps_missing=True)


@pytest.mark.parametrize(
    ("values", "kind", "first"),
    [
        (pd.array([1, None, 3], dtype="Int64"), "number", 1),
        (pd.array([True, None, False], dtype="boolean"), "number", 1),
        (pd.Series([True, None, False], dtype=object), "number", 1),
        ([decimal.Decimal("1.5"), None, decimal.Decimal(2)], "number", 1.5),
        (pd.to_timedelta([1, None, 2], unit="h"), "number", 3600),
        (pd.arrays.SparseArray([2.0, 0, 0]), "number", 2),
        (pd.Categorical([1, None, 2]), "category", "1"),
        (pd.Series(["a", np.nan, "b"], dtype=object), "category", "a"),
        (pd.Series(["a", None, "b"], dtype="string"), "category", "a"),
        ([datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 3)], "time", DAY),
        (pd.to_datetime(["1970-01-02", None, "1970-01-03"]).tz_localize("Europe/Berlin"), "time", DAY - 3600),
        (pl.Series([datetime.time(1), None, datetime.time(2)]), "number", 3600),
        (pl.Series([datetime.date(1970, 1, 2), None, datetime.date(1970, 1, 3)]), "time", DAY),
        (pl.Series(["a", None, "b"], dtype=pl.Enum(["b", "a"])), "category", "a"),
        (pl.Series([None, None, None]), "number", np.nan),
    ],
)
def test_the_kind_of_a_column(values, kind, first):
    frame = pl.DataFrame({"c": values}) if isinstance(values, pl.Series) else pd.DataFrame({"c": values})
    (column,) = frame_columns(frame)
    assert column.kind == kind
    np.testing.assert_equal(column.values[0], first)
    assert column.missing[1] == (not isinstance(values, pd.arrays.SparseArray))


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"c": [1, "a"]}), r"column 'c' mixes int and str \(1, 'a'\); make it numbers"),
        (pd.DataFrame({"c": pd.period_range("2020", periods=2, freq="D")}), "column 'c' holds entries of type Period"),
        (pd.DataFrame({"c": [1j, 2]}), "column 'c' holds entries of type complex"),
        (pd.DataFrame({"c": [10**400, 1]}), "column 'c' is infinite in row 0"),
        (pd.DataFrame({"c": [1, fractions.Fraction(-(10**400))]}), "column 'c' is infinite in row 1"),
        (pl.DataFrame({"c": [[1], [2]]}), "column 'c' holds entries of type list"),
        (pd.DataFrame(np.ones((2, 2)), columns=["a", "a"]), "several columns of one name"),
    ],
)
def test_columns_that_cannot_be_read_are_named(frame, message):
    with pytest.raises(InvalidData, match=message):
        MetaFunRegressor().fit(frame, [1.0, 2.0])


def test_a_lazy_frame_is_refused():
    with pytest.raises(InvalidData, match=r"pass X.collect\(\)"):
        is_frame(pl.LazyFrame({"a": [1]}))


def test_parts_of_a_table_are_joined():
    parts = [frame_columns(pd.DataFrame({"c": part})) for part in (["a", "b"], [None, None])]
    assert join_columns(parts)[0].values.tolist() == ["a", "b", None, None]
    with pytest.raises(InvalidData, match="'c' holds text in some rows and numbers in others"):
        join_columns([parts[0], frame_columns(pd.DataFrame({"c": [1, 2]}))])


DAMAGE = {
    "no table": lambda table: [],
    "no columns": lambda table: table | {"columns": []},
    "a later version": lambda table: table | {"version": VERSION + 1},
    "an unknown key": lambda table: table | {"code": "import os"},
    "two of one name": lambda table: table | {"columns": table["columns"] * 2},
    "an unknown kind": lambda table: _changed(table, kind="pickle"),
    "equal categories": lambda table: _changed(table, categories=["a", "a"]),
    "too many categories": lambda table: _changed(table, categories=list(map(str, range(2000)))),
    "a control character": lambda table: _changed(table, name="\x1b[2J"),
    "an infinite fill": lambda table: _changed(table, fill=float("inf")),
    "text as a number": lambda table: _changed(table, origin="1"),
    "another width": lambda table: _changed(table, one_hot=True),
}


def _changed(table, **values):
    return table | {"columns": [table["columns"][0] | values, *table["columns"][1:]]}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_encoding_in_a_file_is_refused(damage, tmp_path):
    rows, y = people()
    model = MetaFunClassifier().fit(pd.DataFrame(rows), y)
    table = json.loads(json.dumps(model.encoding_.table()))
    assert Encoding.restored(table) == model.encoding_
    path = tmp_path / "model.safetensors"
    record = {"labels": ["no", "yes"], "names": list(rows), "context_encoding": DAMAGE[damage](table)}
    arrays = {"context": {"X": model.X_, "y": np.searchsorted(model.classes_, y)}}
    open_trained("tables-classification").save(path, arrays, record)
    with pytest.raises(InvalidCheckpoint, match="has a damaged context"):
        MetaFunClassifier.load(path)


def test_a_damaged_encoding_of_a_model_is_refused(tmp_path):
    trained = untrained("sinusoid", *TINY)
    encoding = Encoding.of(frame_columns(pd.DataFrame({"a": [1, 2], "b": [1, 2]})), keeps_missing=False)
    for table in (encoding.table(), {"columns": 3}):
        Trained(trained.experiment, trained.model, {"encoding": table}).save(tmp_path / "m.safetensors")
        with pytest.raises(InvalidCheckpoint, match="damaged encoding"):
            MetaFunRegressor(tmp_path / "m.safetensors").fit([[1.0]], [1.0])
    assert checkpoint.FORMAT == "metafun-1"
    with pytest.raises(MetaFunError):
        Encoding.restored(None)
