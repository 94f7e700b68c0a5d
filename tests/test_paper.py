"""The paper as data, the file of results, and the commands that fill and render it."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from metafun.cli import app
from metafun.config import load_config
from metafun.config.losses import GaussianConfig
from metafun.errors import Diverged, InvalidConfig, InvalidResults
from metafun.files import locked
from metafun.paper import ITEMS, Address, Results, load_item, plan, runner
from metafun.paper.items import STAND_IN
from tools.report.__main__ import main as report
from tools.report.paper_page import render_paper_page


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def smoke(folder, *arguments):
    return metafun("reproduce", *arguments, "--smoke", "--results", folder / "results", "--out", folder / "runs")


@pytest.fixture(scope="module")
def measured_row(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one_row")
    done = smoke(folder, "table1", "--only", "original MAML")
    assert done.exit_code == 0, done.output
    return folder


@pytest.fixture
def one_row(measured_row, tmp_path):
    """A folder in which one row has been measured."""
    return Path(shutil.copytree(measured_row, tmp_path / "one_row"))


@pytest.mark.parametrize("name", ITEMS)
def test_every_cell_has_a_configuration(name):
    item = load_item(name)
    assert len({row.name for row in item.rows}) == len(item.rows), "rows are known by their names"
    for row in item.rows:
        assert row.cells or row.why, f"{row.name}: neither cells nor a reason"
    jobs = plan([name])
    assert {a.item for job in jobs for a in job.addresses} == {name}
    assert sum(len(job.addresses) for job in jobs) == sum(len(row.cells) for row in item.rows)


def test_what_the_paper_reports():
    table1, table2 = load_item("table1"), load_item("table2")
    assert {row.name: row.published for row in table1.rows}["MetaFun"] == ((0.040, 0.008), (0.017, 0.005))
    assert {row.name: row.published for row in table2.rows}["LEO"] == ((61.76, 0.08), (77.59, 0.12))
    assert len(load_item("table3").rows) == 6 and len(load_item("figure5").columns) == 6


def test_figure4_has_the_paper_s_model_on_the_curves_of_ours():
    ours = load_config("gp")
    for preset, pooling in (("gp-paper-dfp", "sinusoid-paper"), ("gp-paper-kfp", "sinusoid-paper-kfp")):
        config, paper = load_config(preset), load_config(pooling)
        assert config.tasks == ours.tasks and config.evaluation.shots == ours.evaluation.shots
        assert config.training == paper.training and replace(config.model, loss=paper.model.loss) == paper.model
        assert config.model.loss == GaussianConfig(min_std=0.1)
    assert [row.name for row in load_item("figure4").rows][:3] == [
        "MetaFun-KFP",
        "MetaFun-DFP",
        "MetaFun-KFP, our training",
    ]


def test_the_stand_in_is_a_table_of_its_own():
    jobs = plan(["tiered-standin"])
    assert {job.config.tasks.data for job in jobs} == {STAND_IN}
    assert not any(row.published for row in load_item("tiered-standin").rows)
    others = plan([name for name in ITEMS if name != "tiered-standin"])
    assert STAND_IN not in {job.config.tasks.data for job in others}
    assert not {job.key for job in jobs} & {job.key for job in others}


def test_the_overview_counts_the_cells_that_need_tieredimagenet():
    jobs = plan([name for name in ITEMS if name != "tiered-standin"])
    tiered = [a for job in jobs if job.config.tasks.data.startswith("tieredimagenet") for a in job.addresses]
    count = {name: sum(address.item == name for address in tiered) for name in ("table2", "table3", "figure5")}
    assert sum(count.values()) == len(tiered)
    sentence = (
        f"{len(tiered)} cells of the paper's tables and figures ({count['table2']} of Table 2, {count['table3']} of "
        f"Table 3 and {count['figure5']} of Figure 5)"
    )
    page = (Path(__file__).parent.parent / "docs" / "measured.md").read_text("utf-8")
    assert sentence in " ".join(page.split())


def test_cells_that_ask_for_the_same_share_one_training():
    alone, together = plan(["table1"]), plan(["table1", "figure3"])
    assert len(together) == len(alone)
    shared = next(job for job in together if job.addresses[0].row == "MetaFun")
    assert [(a.item, a.column) for a in shared.addresses] == [
        ("table1", "5-shot"),
        ("table1", "10-shot"),
        ("figure3", "5-shot"),
    ]


def test_a_job_is_known_by_what_is_trained():
    few, many = (plan(["table1"], seeds=seeds) for seeds in (1, 5))
    assert [job.key for job in few] == [job.key for job in many]
    keys = {plan(["table3"], trials=trials)[0].key for trials in (32, 64)}
    assert len(keys) == 2, "a larger search may choose something else"
    instead = plan(["table2"], only="LEO", data={"miniimagenet-center": "mine"})
    assert {job.config.tasks.data for job in instead} == {"mine"} and len(instead) == 2


def test_nothing_is_measured_twice(one_row):
    before = Results(one_row / "results").lines
    assert [(line.column, line.seed) for line in before] == [("5-shot", 0)], "in small, one cell of each kind of model"
    again = smoke(one_row, "table1", "--only", "original MAML")
    assert again.exit_code == 0 and Results(one_row / "results").lines == before


def test_interrupted_it_goes_on_where_it_was(tmp_path, monkeypatch):
    measure = runner.measure
    with monkeypatch.context() as patch:
        calls = iter([measure])
        patch.setattr(runner, "measure", lambda run, console: next(calls, interrupt)(run, console))
        assert smoke(tmp_path, "table1").exit_code == 130
    assert len(Results(tmp_path / "results").lines) == 1
    trained = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("checkpoint.safetensors")}
    assert len(trained) == 2
    assert smoke(tmp_path, "table1").exit_code == 0
    assert {path: path.stat().st_mtime_ns for path in trained} == trained, "what was trained is not trained again"
    lines = Results(tmp_path / "results").lines
    assert [(line.row, line.column) for line in lines] == [
        ("Original MAML", "5-shot"),
        ("MetaFun", "5-shot"),
        ("MetaFun", "10-shot"),
    ]


def interrupt(run, console):
    raise KeyboardInterrupt


def test_a_broken_last_line_is_taken_out_and_measured_again(one_row):
    path = one_row / "results" / "paper.jsonl"
    whole = path.read_text()
    path.write_text(whole[:-30])
    again = smoke(one_row, "table1", "--only", "original MAML")
    assert again.exit_code == 0 and "its last line is broken" in again.stderr
    assert json.loads(path.read_text())["value"] == json.loads(whole)["value"]


def test_a_damaged_line_in_the_middle_is_not_passed_over(tmp_path):
    lacking = "line 1 is not a result: the key 'row' is missing"
    for text, message in (("{\n{}\n", "line 1 is not JSON"), ('{"item": 3}', lacking)):
        (tmp_path / "paper.jsonl").write_text(text)
        with pytest.raises(InvalidResults, match=message):
            Results(tmp_path)
        assert (tmp_path / "paper.jsonl").read_text() == text, "reading changes nothing"


def test_a_whole_line_without_an_end_counts(one_row):
    path = one_row / "results" / "paper.jsonl"
    whole = path.read_text()
    path.write_text(whole.rstrip("\n"))
    results = Results(one_row / "results")
    assert not results.broken and len(results.lines) == 1
    results.append([replace(results.lines[0], seed=1, value=None)])
    assert path.read_text().startswith(whole) and len(Results(one_row / "results").lines) == 2
    page = render_paper_page(one_row / "results", one_row / "page.md")
    assert "1 of 2 seeds are not finite" in page


def test_one_that_diverges_leaves_the_rest_alone(tmp_path, monkeypatch):
    def train(run, console):
        raise Diverged("the loss became nan")

    monkeypatch.setattr(runner, "train", train)
    done = smoke(tmp_path, "table1")
    assert done.exit_code == 0 and "skipped: the loss became nan" in done.stderr and "2 trainings" in done.stderr


def test_two_at_once_share_the_work(one_row):
    before = Results(one_row / "results").lines
    with locked(one_row / "runs" / before[0].job):
        (one_row / "results" / "paper.jsonl").unlink()
        second = smoke(one_row, "table1", "--only", "original MAML")
    assert second.exit_code == 0 and "another process is measuring it" in second.stderr
    assert not Results(one_row / "results").lines, "what the first is measuring is left to it"


def test_two_at_once_do_not_overwrite_each_other(one_row):
    (line,) = Results(one_row / "results").lines
    first, second = Results(one_row / "results"), Results(one_row / "results")
    first.append([replace(line, seed=1)])
    second.append([replace(line, seed=2)])
    assert [found.seed for found in Results(one_row / "results").lines] == [0, 1, 2]


def test_what_is_not_in_the_paper(tmp_path):
    for arguments, message in (
        (("table7",), "the paper has no 'table7'; did you mean 'table"),
        (("table1", "--only", "MANL"), "has no row 'MANL'; "),
        (("table1", "--data", "here"), "must have the form NAME=OTHER"),
    ):
        refused = metafun("reproduce", *arguments, "--results", tmp_path / "r", "--out", tmp_path / "o")
        assert refused.exit_code == 2 and message in refused.stderr, refused.output
    kept = metafun("reproduce", "table1", "--smoke")
    assert kept.exit_code == 2 and "give it another folder" in kept.stderr


def test_data_that_are_not_here_leave_the_rest_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    done = metafun("reproduce", "table2", "--only", "LEO", "--results", tmp_path / "r", "--out", tmp_path / "o")
    assert done.exit_code == 0 and "2 trainings were skipped" in done.stderr, done.output
    assert not Results(tmp_path / "r").lines


def test_the_page_shows_what_was_measured_and_why_the_rest_was_not(one_row):
    page = render_paper_page(one_row / "results", one_row / "page.md")
    value = Results(one_row / "results").lines[0].value
    row = next(line for line in page.splitlines() if line.startswith("| Original MAML |"))
    assert f"{value:.5f}" in row and "0.390 ± 0.156" in row and f"{value / 0.390:.2f}" in row
    assert "metafun reproduce table1 --only 'Original MAML' --seeds 1" in row
    assert "| SNAIL |" in page and "not implemented" in page and "not measured yet" in page
    assert "metafun can read them" in next(
        line for line in page.splitlines() if line.startswith("| MetaFun-DFP, tiered")
    )

    options = ("--results", str(one_row / "results"), "--out", str(one_row / "page.md"))
    assert report([*options, "--check"]) == 2, "the page does not exist yet"
    assert report(options) == 0
    assert (one_row / "page.md").read_text("utf-8") == page and report([*options, "--check"]) == 0


def test_an_interval_belongs_to_its_cell(one_row):
    found = Results(one_row / "results").latest("table1", "Original MAML", "5-shot")
    assert [line.seed for line in found] == [0] and found[0].tasks == 20 and found[0].interval > 0
    assert found[0].address == Address("table1", "Original MAML", "5-shot", "mse_5shot")
    with pytest.raises(InvalidConfig):
        plan(["table1"], only="nothing like it")


@pytest.mark.slow
def test_the_whole_paper_in_small(tmp_path):
    """Every kind of model, the searches of the ablation, the figures, and the page."""
    options = ["--results", str(tmp_path / "results"), "--out", str(tmp_path / "runs")]
    command = [sys.executable, "-m", "metafun.cli"]
    done = subprocess.run(
        [*command, "reproduce", "all", "--smoke", *options], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = Results(tmp_path / "results").lines
    assert {line.item for line in lines} == set(ITEMS)
    searched = [bool(line.found) for line in lines if line.item == "table3"]
    assert any(searched) and len(searched) > 1, f"the ablation searches; in small, once: {done.stderr[-2000:]}"
    for name in ("figure3.png", "figure3.svg", "figure4.png", "figure4.svg"):
        assert (tmp_path / "results" / name).stat().st_size > 1000
