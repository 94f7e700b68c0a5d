"""The benchmark on features: every method by the paper's protocol, no cell measured twice, complete lines."""

import json
import shlex
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from examples import TINY_EPISODES, clusters
from metafun.bench import feature_cases, features
from metafun.bench.feature_cases import OPTIONS, Contender, Setup, configure, contenders, plan
from metafun.bench.feature_results import add_feature_cell, latest_cells, read_feature_cells
from metafun.cli import app
from metafun.config import has_setting, load_config
from metafun.data.table_folder import save_table
from metafun.errors import Diverged, InvalidConfig, InvalidResults
from metafun.files import locked
from metafun.training.run import Run
from tools.report import render_page
from tools.report.feature_benchmark import render_feature_benchmark
from tools.report.records import missing_fields

ROOT = Path(__file__).parent.parent
SETTINGS = [setting for setting in TINY_EPISODES if setting.partition("=")[0] not in OPTIONS]
TINY = [word for setting in SETTINGS for word in ("--set", setting)]
# Two methods stand for all: compilation dominates.
METHODS = ("nearest class mean", "MetaFun")
ONLY = [word for name in METHODS for word in ("--only", name)]
SIZES = ["--ways", 3, "--seeds", 2, "--tasks", 40]


def bench(folder, *arguments):
    """The command with tiny models, and its files in a folder."""
    files = ["--results", folder / "features.jsonl", "--out", folder / "runs"]
    words = ["bench", "features", *files, *SIZES, *TINY, *arguments]
    return CliRunner().invoke(app, [str(word) for word in words])


def fails(folder, *arguments) -> str:
    refused = bench(folder, *arguments)
    assert refused.exit_code == 2 and refused.stderr.count("\n") == 1, refused.output
    assert not (folder / "runs").exists(), "nothing is trained before all is checked"
    return refused.stderr


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    save_table(clusters(), folder, "a test")
    save_table(clusters(spread=0.5, name="other"), folder, "a test")
    return folder


@pytest.fixture(autouse=True)
def found_tables(data, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(data))


@pytest.fixture(scope="module")
def measured(data, tmp_path_factory):
    """Two methods on one table."""
    folder = tmp_path_factory.mktemp("measured")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAFUN_DATA", str(data))
        done = bench(folder, "--data", "clusters", "--shots", 1, *ONLY, "--json")
    assert done.exit_code == 0, done.output
    return SimpleNamespace(
        folder=folder, found=json.loads(done.stdout), cells=read_feature_cells(folder / "features.jsonl")
    )


@pytest.fixture
def copy(measured, tmp_path):
    """A folder with the results of `measured`, to be changed."""
    shutil.copy(measured.folder / "features.jsonl", tmp_path)
    return tmp_path


def test_methods_are_measured_by_the_protocol(measured):
    assert [cell["method"] for cell in measured.found] == list(METHODS)
    for cell in measured.found:
        assert set(cell["metrics"]) == {"accuracy", "log_likelihood", "ece"}
        assert all(len(values) == 2 for values in cell["metrics"].values()) and cell["seeds"] == [0, 1]
        assert cell["intervals"]["accuracy"] is not None and cell["tasks"] == 40 and cell["seconds"] > 0
        assert cell["broke_away"] == [None, None]
    nearest, ours = measured.cells
    assert nearest.metrics != ours.metrics, "they are different models"
    folder = measured.folder / "runs" / f"{nearest.job}-{nearest.fingerprint[:12]}" / "2-seeds"
    assert nearest.steps == Run(folder / "final").record.step
    trained = [Run(folder / name).record.seconds for name in ("tune", "final")]
    assert nearest.seconds == pytest.approx(sum(trained), abs=0.01)
    assert (measured.folder / "features.png").read_bytes()[:4] == b"\x89PNG"


def test_a_line_says_how_to_repeat_it(measured):
    for line in map(json.loads, (measured.folder / "features.jsonl").read_text("utf-8").splitlines()):
        assert missing_fields(line) == [] and line["beside"] == 0 and len(line["fingerprint"]) == 64
    words = shlex.split(measured.cells[-1].command)
    assert words[:7] == ["metafun", "bench", "features", "--data", "clusters", "--only", "MetaFun"]
    again = CliRunner().invoke(app, [*words[1:], "--results", str(measured.folder / "features.jsonl")])
    assert again.exit_code == 0 and "1 of 1 cells are measured" in again.stderr, again.output


def test_no_cell_is_measured_twice(copy, monkeypatch):
    monkeypatch.setattr(features, "run_protocol", lambda *_, **__: pytest.fail("it is in the results"))
    shown = bench(copy, "--data", "clusters", "--shots", 1, *ONLY)
    assert shown.exit_code == 0 and "2 of 2 cells are measured, 0 are missing" in shown.stderr
    for text in ("clusters, 3-way 1-shot: 40 test tasks, 2 seeds", "nearest class mean", "log-likelihood", "ece"):
        assert text in shown.stdout
    fewer = bench(copy, "--data", "clusters", "--shots", 1, "--seeds", 1, "--only", "MetaFun", "--json")
    assert [cell["seeds"] for cell in json.loads(fewer.stdout)] == [[0, 1]]


def test_other_settings_seeds_or_data_are_measured_again(measured, data, tmp_path):
    def missing(*settings, table="clusters", **changes):
        setup = Setup(**{"ways": 3, "shots": 1, "seeds": 2, "tasks": 40, "settings": (*SETTINGS, *settings)} | changes)
        benchmark = features.FeatureBenchmark(tmp_path, measured.folder / "features.jsonl", console=None)
        return len(benchmark.missing(plan([table], [1], setup, METHODS)))

    assert missing() == 0 and missing(seeds=1) == 0
    assert missing(seeds=3) == 2 and missing(tasks=41) == 2 and missing(ways=2) == 2
    assert missing("model.representation=4") == 1, "a setting of MetaFun alone"
    assert missing(table="other") == 2
    shutil.copytree(data / "clusters", tmp_path / "moved")
    assert missing(table=str(tmp_path / "moved")) == 0, "the same rows under another path"


def test_an_interrupted_training_continues(copy, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    arguments = ("--data", "other", "--only", "MetaFun", "--shots", 2)
    with monkeypatch.context() as patch:
        patch.setattr(features, "measure", stop)
        assert bench(copy, *arguments).exit_code == 130
    (run,) = copy.glob("runs/*-*/2-seeds/final")
    before = Run(run).checkpoint_file.stat().st_mtime_ns
    assert bench(copy, *arguments).exit_code == 0
    assert Run(run).checkpoint_file.stat().st_mtime_ns == before, "it was trained already"
    kinds = [(cell.data, cell.shots) for cell in latest_cells(read_feature_cells(copy / "features.jsonl"))]
    assert kinds == [("clusters", 1)] * 2 + [("other", 2)]


def test_a_cell_that_cannot_be_measured_does_not_stop_the_others(copy, monkeypatch):
    def diverge(*_, **__):
        raise Diverged("the loss is not finite")

    arguments = ("--data", "other", "--only", "MetaFun", "--shots", 1, "--json")
    with monkeypatch.context() as patch:
        patch.setattr(features, "run_protocol", diverge)
        skipped = bench(copy, *arguments)
    assert skipped.exit_code == 0 and json.loads(skipped.stdout) == [] and "skipped: the loss" in skipped.stderr
    (folder,) = copy.glob("runs/*-*")
    with locked(folder):
        busy = bench(copy, *arguments)
    assert busy.exit_code == 0 and "another process is measuring it" in busy.stderr


def test_mistakes_on_the_command_line(tmp_path, data):
    assert "did you mean 'clusters'" in fails(tmp_path, "--data", "cluster")
    assert "did you mean 'SimpleShot'" in fails(tmp_path, "--data", "clusters", "--only", "simpleshot")
    assert "ways need as many classes" in fails(tmp_path, "--data", "clusters", "--ways", 6)
    assert "rows of each class" in fails(tmp_path, "--data", "clusters", "--shots", 8)
    assert "give --ways instead" in fails(tmp_path, "--data", "clusters", "--set", "tasks.ways=3")
    assert "none of the methods" in fails(tmp_path, "--data", "clusters", "--set", "model.poling.width=3")
    assert "must not be 0" in fails(tmp_path, "--data", "clusters", "--set", "training.validate_every=0")
    assert "--figure x.txt" in fails(tmp_path, "--data", "clusters", "--figure", "x.txt")
    assert "there is no folder" in fails(tmp_path, "--data", "clusters", "--results", tmp_path / "no" / "r.jsonl")
    assert "Missing option '--data'" in bench(tmp_path).stderr and bench(tmp_path).exit_code == 2
    shutil.copytree(data / "clusters", tmp_path / "clusters")
    assert "are both called 'clusters'" in fails(tmp_path, "--data", "clusters", "--data", tmp_path / "clusters")
    (tmp_path / "features.jsonl").write_text('{"data": "clusters"}\n', "utf-8")
    assert "a line that is not a benchmark result" in fails(tmp_path, "--data", "clusters")


def test_a_table_without_enough_test_classes_is_not_trained_on(tmp_path):
    save_table(clusters(classes=(5, 5, 2), name="few"), tmp_path, "a test")
    assert "data 'few', test: 3 ways" in fails(tmp_path, "--data", tmp_path / "few")


def test_methods_are_data(monkeypatch):
    """Another recipe is one more entry; all are trained by the same protocol with the same sizes."""
    planned = plan(["clusters"], [1, 2], Setup(3, 1, 1, 40, ("tasks.queries=4",)))
    assert [case.contender.name for case in planned] == [*contenders()] * 2
    for contender in contenders().values():
        config = configure(contender, Setup(4, 3, 2, 100))
        assert (config.tasks.ways, config.tasks.shots, config.evaluation.tasks) == (4, 3, 100)
        assert config.training.seeds == (0, 1) and config.tasks.splits_classes
        assert f"`{contender.preset}`" in (ROOT / "docs" / "features.md").read_text("utf-8")
    assert [each.name for each in contenders().values() if each.ours] == ["MetaFun"]
    wide = Contender("wide", "features", ("model.representation=256",))
    monkeypatch.setattr(feature_cases, "contenders", lambda: {"wide": wide})
    (case,) = plan(["clusters"], [1], Setup(3, 1, 1, 40, ("tasks.queries=4",)))
    assert case.experiment.config.model.representation == 256 and case.setup.settings == ("tasks.queries=4",)


def test_what_a_configuration_has():
    config = load_config("features")
    assert all(has_setting(config, key) for key in ("model.update.width", "tasks.val_share", "embedding.kind"))
    assert not any(has_setting(config, key) for key in ("model.width", "training.steps.more", "nothing"))


def test_results_are_rendered(measured, tmp_path):
    page = "<!-- results: feature-benchmark -->\n<!-- /results -->\n"
    assert "The benchmark is not measured yet." in render_page(page, tmp_path)
    (tmp_path / "features.jsonl").touch()
    assert "The benchmark is not measured yet." in render_page(page, tmp_path)
    for cell in measured.cells[1:]:  # all but the nearest class mean
        add_feature_cell(tmp_path / "features.jsonl", replace(cell, device="NVIDIA H200", seconds=12.3))
    rendered = render_feature_benchmark(tmp_path)
    assert (
        f"**clusters**, 3-way; 40 test tasks, 2 seeds, NVIDIA H200, SHA-256 `{measured.cells[0].fingerprint}`"
        in rendered
    )
    rows = {line.split(" | ")[0].strip("| "): line for line in rendered.splitlines() if line.startswith("|")}
    assert "not measured yet" in rows["nearest class mean"] and "| 12 |" in rows["MetaFun"]
    assert "earlier settings" not in rendered and "features.png" not in rendered
    mean = 50 * sum(measured.cells[-1].metrics["accuracy"])
    assert f"| {mean:.2f} ±" in rows["MetaFun"]
    (tmp_path / "features.png").touch()
    add_feature_cell(tmp_path / "features.jsonl", replace(measured.cells[1], job="another"))
    later = render_feature_benchmark(tmp_path)
    assert later.count("earlier settings") == 1 and "(../results/features.png)" in later
    assert "broke away" not in later
    add_feature_cell(tmp_path / "features.jsonl", replace(measured.cells[1], job="a third", broke_away=(None, 30)))
    assert "; 1 of 2 seeds broke away" in render_feature_benchmark(tmp_path)


def test_values_that_are_not_finite_are_shown_as_such(measured, tmp_path):
    metrics = {name: (None, 0.5) for name in measured.cells[0].metrics}
    add_feature_cell(tmp_path / "features.jsonl", replace(measured.cells[0], metrics=metrics, job="another"))
    (cell,) = read_feature_cells(tmp_path / "features.jsonl")
    assert cell.mean_std("accuracy") is None and "not finite" in render_feature_benchmark(tmp_path)
    features.draw_accuracies([cell, measured.cells[1]], tmp_path / "figure.png")


@pytest.mark.parametrize("change", [{"metrics": {}}, {"metrics": {"accuracy": [0.5]}}, {"data": "\x1b[2J"}])
def test_a_damaged_line_is_refused(measured, tmp_path, change):
    (tmp_path / "features.jsonl").write_text(json.dumps(asdict(measured.cells[0]) | change) + "\n", "utf-8")
    with pytest.raises(InvalidResults, match="not a benchmark result"):
        read_feature_cells(tmp_path / "features.jsonl")


def test_a_method_that_is_gone_is_still_shown(measured):
    gone = replace(measured.cells[0], method="an older one")
    assert not gone.is_current and latest_cells([gone, *measured.cells])[-1] == gone
    with pytest.raises(InvalidConfig, match="method 'an older one' is not known"):
        plan(["clusters"], [1], Setup(3, 1, 1, 40), ["an older one"])
