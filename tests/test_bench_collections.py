"""The benchmark on collections of tasks: what is held out, what is measured, and who wins."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from typer.testing import CliRunner

from metafun.bench import collections as benchmark
from metafun.bench.collection_data import BUNDLED, Collection, Split, open_collection
from metafun.bench.collection_gpboost import GPBOOST
from metafun.bench.collection_methods import FOREST_GP, META_FIT, METHODS, SIMPLE
from metafun.bench.collection_results import CollectionCell, add_collection_cell, compare, read_collection_cells
from metafun.cli import app
from metafun.errors import InvalidConfig, InvalidData, InvalidResults
from tools.report.collection_benchmark import newest_cells, render_collection_benchmark
from tools.report.comparisons import _collections
from tools.report.records import missing_fields


def lines(tasks=12, points=8, seed=0):
    """Lines of slope 1 with an intercept of their own, and a little noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (tasks, points, 1))
    y = x[..., 0] + rng.normal(0, 0.5, (tasks, 1)) + rng.normal(0, 0.05, (tasks, points))
    return list(zip(x, y, strict=True))


def bench(folder, *arguments):
    words = ["bench", "collections", "--results", folder / "found.jsonl", *arguments]
    return CliRunner().invoke(app, [str(word) for word in words])


def rmse(method, tasks):
    split = Split(Collection("lines", "lines", tasks), 0)
    return benchmark._scores(METHODS[method](split.train, 0), split.contexts(3), split.deviation)


@pytest.mark.parametrize("name", list(BUNDLED))
def test_bundled_collections_are_the_same_every_time(name):
    first, second = (open_collection(name, "y", "task") for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert min(len(y) for _, y in first.tasks) > 6


def test_a_quarter_of_the_tasks_is_held_out_and_contexts_leave_targets():
    tasks = [(np.full((n, 1), float(i)), np.arange(n) + 10.0 * i) for i, n in enumerate((4, 5, 6, 7, 8, 9, 10, 3))]
    split = Split(Collection("sizes", "sizes", tasks), 0)
    assert len(split.train) == 6
    seen = {round(split.inputs.inverse(x)[0, 0]) for x, _ in split.train}
    for context in split.contexts(3):
        assert len(context.y) == 3 and len(context.y_target) >= 1
        assert round(split.inputs.inverse(context.x)[0, 0]) not in seen
        both = split.outputs.inverse(np.concatenate([context.y, context.y_target])[:, None])
        assert len(np.unique(both.round(6))) == len(both), "no point is context and target"
    assert all(
        len(y) > 3 for y in (c.y_target for c in Split(Collection("s", "s", tasks), 1).contexts(1)) if len(y) > 3
    )


def test_each_simple_method_does_what_it_is_for():
    scores = {name: rmse(name, lines(60)) for name in SIMPLE}
    errors = {name: found[0] for name, found in scores.items()}
    assert errors[FOREST_GP] < errors["pooled forest"] < errors["per-task mean"], "a shared slope, other constants"
    assert errors["per-task ridge"] < errors["per-task mean"]
    assert scores[FOREST_GP][1] > max(scores["per-task mean"][1], scores["pooled forest"][1]), "log-likelihood"
    assert 0.85 < scores[FOREST_GP][2] <= 1, "coverage"


def test_gpboost_conditions_on_the_context():
    pytest.importorskip("gpboost")
    error, likelihood, covered = rmse(GPBOOST, lines(60))
    assert error < rmse("pooled forest", lines(60))[0] / 2 and likelihood > 0 and 0.85 < covered <= 1


def test_gpboost_is_measured_where_it_is_installed(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert benchmark.check_methods(()) == [name for name in METHODS if name != GPBOOST]
    refused = bench(tmp_path, "growth", "--only", GPBOOST)
    assert refused.exit_code == 2 and "GPBoost is not installed; run pip install gpboost" in refused.stderr


def test_the_scores_are_those_of_the_definition():
    tasks = lines()
    split = Split(Collection("lines", "lines", tasks), 0)
    zero = benchmark._scores(lambda x, y, at: (np.zeros(len(at)), np.ones(len(at))), split.contexts(3), split.deviation)
    targets = np.concatenate([context.y_target for context in split.contexts(3)])
    deviation = np.concatenate([y for _, y in tasks]).std() / split.outputs.deviation[0]
    expected = np.sqrt(np.mean(targets**2)) / deviation, np.mean(-(targets**2) / 2 - np.log(2 * np.pi) / 2)
    np.testing.assert_allclose(zero[:2], expected)
    assert zero[2] == pytest.approx(np.mean(abs(targets) < 1.96), abs=0.02)


def test_the_command_measures_each_cell_once(tmp_path):
    rows = [(f"t{i}", x[0], y) for i, task in enumerate(lines(8)) for x, y in zip(*task, strict=True)]
    text = "\n".join(["id,x,y", *(f"{i},{x},{y}" for i, x, y in rows)])
    (tmp_path / "lines.csv").write_text(text)
    words = [tmp_path / "lines.csv", "--task", "id", "--splits", 2, "--only", "per-task mean", "--only", FOREST_GP]
    done = bench(tmp_path, *words, "--points", 3, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["cells"]
    assert [cell["method"] for cell in found] == ["per-task mean", FOREST_GP]
    assert all(len(cell["metrics"]["rmse"]) == 2 and not missing_fields(cell) for cell in found)
    assert (tmp_path / "found.png").exists()
    again = bench(tmp_path, *words, "--points", 3)
    assert "[1/" not in again.stderr and "RMSE / std" in again.stdout
    assert "[1/1]" in bench(tmp_path, *words[:4], 3, *words[5:7], "--points", 3).stderr, "more splits"


def test_the_same_arrays_from_npz(tmp_path):
    tasks = lines(6)
    x, y = (np.concatenate(arrays) for arrays in zip(*tasks, strict=True))
    np.savez(tmp_path / "a.npz", x=x, y=y, task=np.repeat(np.arange(6), 8))
    assert open_collection(str(tmp_path / "a.npz"), "y", "task").fingerprint == Collection("", "", tasks).fingerprint


def test_text_dates_and_gaps_of_a_csv_file_are_encoded(tmp_path):
    rows = [f"t{i},2026-01-0{j + 1},{'ab'[j % 2]},{j if i else ''},{j}" for i in range(4) for j in range(3)]
    (tmp_path / "a.csv").write_text("\n".join(["task,day,kind,x,y", *rows]))
    first, second = open_collection(str(tmp_path / "a.csv"), "y", "task").tasks[:2]
    np.testing.assert_allclose(first[0][:, :2], [[0, 0], [1, 1], [2, 0]])
    np.testing.assert_allclose(first[0][:, 2:], [[1, 1]] * 3, err_msg="the mean of x, and the mark of a gap")
    np.testing.assert_allclose(second[0][:, 2:], [[0, 0], [1, 0], [2, 0]])


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("task,x,y\n" + "a,1,1\na,2,2\nb,1,1\nb,2,2\n", [], "has 2 tasks of two points or more"),
        ("task,x,y\n" + "".join(f"{i},{j},nan\n" for i in range(5) for j in range(9)), [], "'y' is 'nan'; fill it"),
        ("task,x,y\n" + "".join(f"{i},{j},{j}\n" for i in range(5) for j in range(4)), [], "--points 6 leaves none"),
        ("task,x,y\n" + "".join(f"{i},{j},1\n" for i in range(5) for j in range(9)), [], "output is 1 in every row"),
        ("task,x,y\n" + "".join(f"{i},{j},1\n" for i in range(5) for j in range(9)), ["--task", "id"], "id"),
        (None, ["grwth"], "did you mean 'growth'"),
        (None, ["growth", "--only", "meta-fit"], "did you mean 'meta_fit'"),
    ],
)
def test_mistakes_are_reported_in_a_line(tmp_path, text, words, message):
    if text is not None:
        (tmp_path / "data.csv").write_text(text)
        words = [tmp_path / "data.csv", *words]
    refused = bench(tmp_path, *words)
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1, refused.output
    assert message in refused.stderr


def test_an_exact_method_has_a_result():
    """The mean of the context is exact where each task is constant."""
    tasks = [(np.arange(5.0)[:, None], np.full(5, float(i))) for i in range(8)]
    (cell,) = benchmark.measure(benchmark.Job(Collection("levels", "levels", tasks), "per-task mean", (2,), 1))
    assert 0 < cell.mean("rmse") < 1e-5


def test_every_split_must_hold_out_a_task_large_enough():
    tasks = [(np.arange(n)[:, None], np.arange(n) + 0.5 * i) for i, n in enumerate((4,) * 7 + (10,))]
    with pytest.raises(InvalidConfig, match=r"held out in split \d have at most 4 points; --points 5 leaves none"):
        benchmark.check_points(Collection("sizes", "sizes", tasks), (5,), 5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.array(["a"] * 8)}, r"'y' holds text \[8\]; expected numbers for each row"),
        ({"X": np.array(1.0)}, r"'X' holds numbers \[\]; expected numbers for each row"),
        ({"X": np.full((8, 1), 1e300)}, r"numbers beyond 1e\+100; rescale them"),
        ({"y": np.full(8, -1e200)}, r"numbers beyond 1e\+100; rescale them"),
        ({"y": 1e-320 * np.arange(8)}, r"the outputs differ by 7e-320; rescale them"),
        ({"y": np.full(8, 2.5)}, r"the output is 2.5 in every row; there is nothing to predict"),
        ({"task": np.zeros((8, 2))}, r"'task' holds numbers \[8, 2\]; expected a name or number for each row"),
    ],
)
def test_arrays_that_are_no_collection(tmp_path, changes, message):
    arrays = {"X": np.zeros((8, 1)), "y": np.arange(8), "task": np.arange(8) // 2}
    np.savez(tmp_path / "a.npz", **(arrays | changes))
    with pytest.raises(InvalidData, match=message):
        open_collection(str(tmp_path / "a.npz"), "y", "task")


@pytest.mark.parametrize("change", [{"metrics": {}}, {"rmse": [0.0]}, {"rmse": []}, {"rmse": [1.0] * 9}], ids=str)
def test_a_line_of_other_metrics_is_refused(tmp_path, change):
    line = asdict(cell("growth", "ridge", 1.0))
    line["metrics"] = change.get("metrics", line["metrics"] | change)
    (tmp_path / "r.jsonl").write_text(json.dumps(line) + "\n", "utf-8")
    with pytest.raises(InvalidResults, match="its metrics are missing"):
        read_collection_cells(tmp_path / "r.jsonl")


def test_a_collection_without_inputs_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("task,y\n" + "".join(f"{i // 6},{i}\n" for i in range(60)), "utf-8")
    with pytest.raises(InvalidData, match=r"a.csv has no column beside 'y' and 'task' to predict from"):
        open_collection(str(tmp_path / "a.csv"), "y", "task")


def cell(data, method, error, likelihood=0.0, fingerprint=""):
    metrics = {"rmse": (error,), "log_likelihood": (likelihood,), "coverage": (0.95,)}
    return CollectionCell(
        data, 3, method, metrics, 1.0, 12, fingerprint or data, (0,), "metafun", "cpu", "0", "2026-01-01"
    )


def test_collections_of_one_name_are_told_apart(tmp_path):
    cells = [cell("storms", name, 0.5, fingerprint=each) for each in ("old", "new") for name in SIMPLE]
    cells += [cell("storms", META_FIT, 0.4, fingerprint="new"), cell("storms", META_FIT, 0.6, fingerprint="old")]
    assert compare(cells)[0].ratios == pytest.approx({"storms new": 0.8, "storms old": 1.2})
    cells += [cell("storms", META_FIT, 0.3, fingerprint="new")]
    for each in cells:
        add_collection_cell(tmp_path / "collections.jsonl", each)
    assert {each.fingerprint for each in newest_cells(tmp_path)} == {"new"}


def test_bundled_collections_do_not_count_as_public(tmp_path):
    for data, error in (("growth", 0.1), ("storms", 0.4), ("rats", 0.3)):
        for method in (*SIMPLE, META_FIT):
            each = cell(data, method, error if method == META_FIT else 0.5)
            add_collection_cell(tmp_path / "collections.jsonl", each)
    found = _collections(tmp_path)
    assert found.where.startswith("2 public collections") and found.ours == "0.70"


def test_the_sentence_says_who_wins(tmp_path):
    cells = [cell(data, name, 0.5) for data in "ab" for name in SIMPLE]
    assert compare(cells) == []
    cells += [cell("a", META_FIT, 0.4, 1.0), cell("b", META_FIT, 0.6, -1.0)]
    (comparison,) = compare(cells)
    assert comparison.ratios == pytest.approx({"a": 0.8, "b": 1.2}) and comparison.likelier == 1
    assert "on 1 of 2 collections; the median ratio to the best is 1.00 and the worst 1.20 (b)" in str(comparison)
    assert "not measured yet" in render_collection_benchmark(tmp_path)
    for each in cells:
        add_collection_cell(tmp_path / "collections.jsonl", each)
    assert read_collection_cells(tmp_path / "collections.jsonl") == cells
    rendered = render_collection_benchmark(tmp_path)
    assert str(comparison) in rendered and "| a | 12 | 0.500 |" in rendered and GPBOOST not in str(comparison)
    (comparison,) = compare([*cells, cell("a", GPBOOST, 0.3)])
    assert str(comparison).endswith("Against GPBoost, its RMSE is lower on 0 of 1, its log-likelihood higher on 1.")
