"""metafun predict on a folder: file by file, resumable, in pieces, on the workers of a cluster."""

import json
import os
import shutil
import signal
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from metafun import MetaFunClassifier, MetaFunRegressor, predict_folder
from metafun.data import pieces
from metafun.data.csv_columns import csv_pieces, read_csv
from metafun.errors import InvalidData, InvalidTask
from metafun.estimators import predict_folder as folders
from metafun.estimators.notes import Notes
from metafun.estimators.predict_files import FilePredictor
from metafun.estimators.predict_folder import FolderPlan, watched
from test_files import csv_file, metafun, refused

needs_parquet = pytest.mark.skipif(find_spec("pyarrow") is None, reason='needs pyarrow: pip install "metafun[dask]"')
needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason='needs Dask: pip install "metafun[dask]"')
MODEL = ["--model", "gp-rbf"]


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame({"id": [f"row {i}" for i in range(n)], "x": rng.uniform(-2, 2, n).round(3)})


@pytest.fixture
def parts(tmp_path):
    """A context, and a folder with files in two levels."""
    known = rows(12)[["x"]].assign(y=lambda frame: np.sin(2 * frame.x))
    known.to_csv(tmp_path / "known.csv", index=False)
    for i, name in enumerate(["a.csv", "b.csv", "more/c.csv"]):
        path = tmp_path / "new" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rows(20, i + 1).to_csv(path, index=False)
    return tmp_path


def predict(parts, *options, out="out"):
    given = ["predict", parts / "new", *MODEL, "--context", parts / "known.csv", "--out", parts / out, *options]
    return metafun(*given)


def summary(parts, *options):
    result = predict(parts, "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def names(parts, paths):
    return sorted(os.path.relpath(path, parts / "new").replace(os.sep, "/") for path in paths)


def fitted(parts):
    known = pd.read_csv(parts / "known.csv")
    return MetaFunRegressor("gp-rbf").fit(known[["x"]], known.y)


def test_a_file_in_a_folder_is_predicted_as_a_file_alone(parts):
    result = predict(parts, "--quantiles", "0.1,0.9")
    assert result.exit_code == 0 and "60 rows in 3 files from 12 labelled ones" in result.stdout
    for name in ("a.csv", "b.csv", "more/c.csv"):
        alone = [parts / "new" / name, *MODEL, "--context", parts / "known.csv", "--out", parts / "alone.csv"]
        assert metafun("predict", *alone, "--overwrite", "--quantiles", "0.1,0.9").exit_code == 0
        assert (parts / "out" / name).read_bytes() == (parts / "alone.csv").read_bytes()
    assert not list((parts / "out").rglob("*.tmp"))


def test_the_same_command_predicts_what_is_left(parts):
    assert names(parts, summary(parts)["predicted"]) == ["a.csv", "b.csv", "more/c.csv"]
    before = {path: path.stat().st_mtime_ns for path in (parts / "out").rglob("*.csv")}
    again = summary(parts)
    assert again["predicted"] == [] and again["finished_before"] == 3
    (parts / "out" / "a.csv").unlink()
    changed = parts / "new" / "b.csv"
    rows(5, 9).to_csv(changed, index=False)
    os.utime(changed, ns=(changed.stat().st_atime_ns, before[parts / "out" / "b.csv"] + 10**9))
    assert names(parts, summary(parts)["predicted"]) == ["a.csv", "b.csv"]
    assert len(read_csv(parts / "out" / "b.csv")) == 5
    untouched = parts / "out" / "more" / "c.csv"
    assert untouched.stat().st_mtime_ns == before[untouched]


def test_an_interruption_leaves_whole_files_only(parts, monkeypatch):
    class Stopped(FilePredictor):
        def _predict(self, piece, notes):
            if piece.path.name == "b.csv":
                raise KeyboardInterrupt
            return super()._predict(piece, notes)

    monkeypatch.setattr("metafun.estimators.predict_files.FilePredictor", Stopped)
    stopped = predict(parts)
    assert stopped.exit_code == 130 and "stopped after 1 files; the same command predicts the rest" in stopped.stderr
    found = sorted(path.name for path in (parts / "out").rglob("*") if path.is_file())
    assert found == [".lock", ".metafun.json", "a.csv"]
    # What a kill leaves is removed by the next command.
    (parts / "out" / f"b.csv.{'0' * 32}.tmp").write_text("half")
    monkeypatch.undo()
    assert names(parts, summary(parts)["predicted"]) == ["b.csv", "more/c.csv"]
    assert not list((parts / "out").rglob("*.tmp"))


def test_predictions_of_another_context_are_not_mixed(parts):
    summary(parts)
    old = (parts / "out" / "a.csv").read_bytes()
    known = pd.read_csv(parts / "known.csv")
    known.assign(y=-known.y).to_csv(parts / "known.csv", index=False)
    result = predict(parts)
    assert result.exit_code == 2 and "predictions of another model, context or target" in result.stderr
    assert (parts / "out" / "a.csv").read_bytes() == old
    assert len(summary(parts, "--overwrite")["predicted"]) == 3
    assert (parts / "out" / "a.csv").read_bytes() != old
    # A folder of somebody else is not taken over.
    csv_file(parts / "new" / "d.csv", "x\n1\n")
    (parts / "theirs").mkdir()
    csv_file(parts / "theirs" / "d.csv", "mine\n")
    result = predict(parts, out="theirs")
    assert result.exit_code == 2 and "d.csv exists already" in result.stderr
    assert (parts / "theirs" / "d.csv").read_text() == "mine\n"


def test_a_bad_file_is_named_and_the_others_go_on(parts):
    csv_file(parts / "new" / "b.csv", "id,x\nrow 0,0.5\nrow 1,oops\n")
    csv_file(parts / "new" / "columns.csv", "id,z\nrow 0,0.5\n")
    result = predict(parts, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 2 and "2 files failed, the other 2 are written" in result.stderr
    assert names(parts, found["predicted"]) == ["a.csv", "more/c.csv"]
    assert names(parts, found["failed"]) == ["b.csv", "columns.csv"]
    assert f"{parts / 'new' / 'b.csv'}, row 2: 'x' is 'oops', not a number" in result.stderr
    assert f"{parts / 'new' / 'columns.csv'} has no column 'x'" in result.stderr
    csv_file(parts / "new" / "b.csv", "id,x\nrow 0,0.5\nrow 1,0.7\n")
    (parts / "new" / "columns.csv").unlink()
    assert names(parts, summary(parts)["predicted"]) == ["b.csv"]


def test_files_without_rows_give_files_without_rows(parts):
    csv_file(parts / "new" / "empty.csv", "id,x\n")
    predict(parts)
    assert (parts / "out" / "empty.csv").read_text().split() == ["id,x,y,y_std"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes in folders")
def test_links_and_pipes_in_the_folder_are_not_read(parts):
    os.mkfifo(parts / "new" / "pipe.csv")
    (parts / "secret.csv").write_text("id,x\nsecret,1\n")
    (parts / "new" / "link.csv").symlink_to(parts / "secret.csv")
    (parts / "new" / "up").symlink_to(parts)
    (parts / "new" / "_temporary").mkdir()
    shutil.copy(parts / "new" / "a.csv", parts / "new" / "_temporary")
    (parts / "new" / "notes.txt").write_text("hello")
    result = predict(parts, "--json")
    assert result.exit_code == 2 and "pipe.csv does not exist or is not a file" in result.stderr
    assert "link.csv: a link that leads out" in result.stderr and "notes.txt: neither .csv nor" in result.stderr
    assert names(parts, json.loads(result.stdout)["predicted"]) == ["a.csv", "b.csv", "more/c.csv"]
    (parts / "elsewhere").mkdir()
    (parts / "received").mkdir()
    (parts / "received" / "more").symlink_to(parts / "elsewhere")
    result = predict(parts, out="received")
    assert result.exit_code == 2 and "is a link to another folder" in result.stderr
    assert not list((parts / "elsewhere").iterdir())


def test_mistakes_are_answered_in_one_line(parts, monkeypatch):
    given = ["predict", parts / "new", *MODEL, "--context", parts / "known.csv"]
    assert "contain one another" in refused(*given, "--out", parts / "new" / "out")
    (parts / "none").mkdir()
    assert "no files that end in .csv or .parquet" in refused("predict", parts / "none", *given[2:])
    assert "for a folder of tables" in refused("predict", parts / "new" / "a.csv", *given[2:], "--workers", "2")
    monkeypatch.chdir(parts)
    assert "give one of them" in refused(*given, "--workers", "2", "--scheduler", "tcp://127.0.0.1:1")
    monkeypatch.setattr(folders, "find_spec", lambda name: None)
    assert 'pip install "metafun[dask]"' in refused(*given, "--workers", "2")
    monkeypatch.setattr(pieces, "find_spec", lambda name: None)
    csv_file(parts / "new" / "d.parquet", "")
    assert "Parquet files need pyarrow" in refused(*given)


def test_an_estimator_predicts_a_folder(parts):
    model = fitted(parts)
    results = predict_folder(model, parts / "new", parts / "out", "height", progress=False)
    assert [result.rows for result in results] == [20] * 3 and not any(result.warnings for result in results)
    given = pd.read_csv(parts / "new" / "a.csv")
    mean, std = model.predict(given[["x"]], return_std=True)
    found = pd.read_csv(parts / "out" / "a.csv")
    np.testing.assert_array_equal(found[["height", "height_std"]], np.stack([mean, std], 1))
    with pytest.raises(InvalidTask, match="fit it to a data frame"):
        predict_folder(MetaFunRegressor("gp-rbf").fit(model.X_, model.y_), parts / "new", parts / "out2")
    csv_file(parts / "new" / "far.csv", "x\n7\n")
    (result,) = predict_folder(model, parts / "new", parts / "out", "height", progress=False)
    assert "far.csv: X ranges from 7 to 7" in result.warnings[0]


def test_pieces_of_a_csv_file_are_the_whole(parts, monkeypatch):
    path = parts / "new" / "a.csv"
    found = list(csv_pieces(path, 6))
    assert [(piece.first_row, len(piece)) for piece in found] == [(0, 6), (6, 6), (12, 6), (18, 2)]
    whole = read_csv(path)
    for name in whole.names:
        assert [entry for piece in found for entry in piece.entries[name]] == whole.entries[name]
    monkeypatch.setattr("metafun.data.csv_columns.MAX_PIECE_CHARACTERS", 30)
    assert max(map(len, csv_pieces(path, 1000))) < 5, "long rows make short pieces"
    monkeypatch.undo()
    predict(parts)
    monkeypatch.setattr(pieces, "MAX_ROWS", 6)
    predict(parts, out="in pieces")
    for name in ("a.csv", "more/c.csv"):
        columns = [read_csv(parts / out / name) for out in ("out", "in pieces")]
        assert columns[0].names == columns[1].names and columns[0].entries["id"] == columns[1].entries["id"]
        np.testing.assert_allclose(*(c.numbers(["x", "y", "y_std"]) for c in columns), rtol=1e-4, atol=1e-5)
    rows(20).astype({"x": object}).assign(x=lambda f: f.x.where(f.index != 13, "oops")).to_csv(path, index=False)
    with pytest.raises(InvalidData, match="row 14: 'x' is 'oops'"):
        predict_folder(fitted(parts), parts / "new", parts / "third", progress=False)


@needs_parquet
def test_parquet_keeps_its_columns(parts, monkeypatch):
    known = rows(30).assign(when=pd.date_range("2024-01-01", periods=30), kind=["a", "b", None] * 10)
    model = MetaFunClassifier().fit(known[["x", "when", "kind"]], np.where(known.x > 0, "up", "down"))
    new = known.assign(nested=[[1, 2]] * 30)
    folder = parts / "tables"
    folder.mkdir()
    new.to_parquet(folder / "a.parquet", row_group_size=8)
    new.astype({"when": str}).to_parquet(folder / "text.parquet")
    new[:0].to_parquet(folder / "none.parquet")
    expected = model.predict_proba(new[["x", "when", "kind"]])
    monkeypatch.setattr(pieces, "MAX_ROWS", 7)
    predict_folder(model, folder, parts / "out", "way", progress=False)
    for name in ("a", "text"):
        found = pd.read_parquet(parts / "out" / f"{name}.parquet")
        np.testing.assert_allclose(found[["P(down)", "P(up)"]], expected, rtol=1e-3, atol=1e-4)
        assert (found["way"] == np.where(expected[:, 1] > 0.5, "up", "down")).all()
    given = pd.read_parquet(parts / "out" / "a.parquet")[list(new)]
    pd.testing.assert_frame_equal(given, pd.read_parquet(folder / "a.parquet"))
    none = pd.read_parquet(parts / "out" / "none.parquet")
    assert len(none) == 0 and list(none) == list(found)


@needs_parquet
def test_damaged_parquet_files_are_refused(parts):
    model, folder = fitted(parts), parts / "tables"
    folder.mkdir()
    rows(50).to_parquet(parts / "good.parquet")
    good = (parts / "good.parquet").read_bytes()
    (folder / "cut.parquet").write_bytes(good[:-20])
    (folder / "noise.parquet").write_bytes(good[:4] + bytes(len(good) - 12) + good[-8:])
    (folder / "text.parquet").write_text("x\n1\n")
    rows(9).assign(x=["1"] * 8 + ["oops"]).to_parquet(folder / "words.parquet")
    rows(9).assign(x=[[1]] * 9).to_parquet(folder / "lists.parquet")
    with pytest.raises(InvalidData, match="5 files failed, the other 0"):
        predict_folder(model, folder, parts / "out", progress=False)
    for name, words in {"words": "row 9: 'x' is 'oops', not a number", "lists": "column 'x' holds"}.items():
        predictor = FilePredictor(model, ["y"])
        assert words in predictor(folder / f"{name}.parquet", parts / "out" / "p.parquet").problem


@needs_dask
@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_a_killed_worker_loses_nothing(parts):
    """Two workers, one of which is killed while it predicts: every file is there once, as from a single process."""
    from distributed import Client, LocalCluster

    from metafun.estimators.cluster import dask_engine

    for i in range(10):
        rows(3000, i).to_csv(parts / "new" / f"{i}.csv", index=False)
    predictor = FilePredictor(fitted(parts), ["y"])
    predict_folder(fitted(parts), parts / "new", parts / "alone", progress=False)
    plan = FolderPlan.of(predictor, parts / "new", parts / "out", Notes())
    with (
        LocalCluster(2, threads_per_worker=1, dashboard_address=None, silence_logs="CRITICAL") as cluster,
        Client(cluster) as client,
        dask_engine(None, cluster.scheduler_address) as engine,
        plan.opened() as left,
    ):
        workers = client.run(os.getpid)
        results = []
        for result in watched(len(left), engine(predictor, left), Console(quiet=True)):
            if not results:
                os.kill(next(iter(workers.values())), signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL)
            results.append(result)
        assert set(client.run(os.getpid).values()) != set(workers.values()), "none was killed"
    assert not any(result.problem for result in results)
    assert names(parts, [result.path for result in results]) == sorted(path.as_posix() for path in plan.names)
    for name in plan.names:
        assert (parts / "out" / name).read_bytes() == (parts / "alone" / name).read_bytes()
    assert not list((parts / "out").rglob("*.tmp"))


@needs_dask
def test_a_cluster_that_is_not_there(parts, monkeypatch):
    from metafun.estimators import cluster

    monkeypatch.setattr(cluster, "SECONDS_TO_CONNECT", 0.5)
    given = ["predict", parts / "new", *MODEL, "--context", parts / "known.csv", "--out", parts / "out"]
    assert "tcp://127.0.0.1:9" in refused(*given, "--scheduler", "tcp://127.0.0.1:9")
    assert not (parts / "out").exists()
