"""Results that can be repeated, and pages that say what they say: complete lines, rendered cells, checked numbers."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from examples import TINY
from metafun.bench.datasets import SETS
from metafun.config import load_config
from metafun.errors import InvalidResults
from metafun.paper import Measured, Results
from tools.report import check
from tools.report.cells import mean_std, measured_cell, seconds_cell
from tools.report.check import check_repository
from tools.report.claims import CLAIMS, Claim, check_claims
from tools.report.classification import render_images
from tools.report.comparisons import render_comparison, render_short_comparison
from tools.report.estimators import render_table_benchmark
from tools.report.numbers import Fact, check_numbers, load_facts, unfounded
from tools.report.paper_page import render_paper_page
from tools.report.paper_rows import paper_rows
from tools.report.paper_tables import render_features, render_sinusoid
from tools.report.records import current_command, incomplete_lines, missing_fields, read_records
from tools.report.values import VALUES, render_values

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
LINE = {"command": "c", "device": "cpu", "date": "2026-11-16", "version": "0.1.0", "seeds": [0], "data": ""}


def our_training() -> list[Measured]:
    return Results(RESULTS).latest("table1", "MetaFun, our training", "5-shot")


def test_every_line_can_be_repeated():
    assert incomplete_lines(RESULTS) == []


@pytest.mark.parametrize("name", ["command", "device", "date", "version", "seeds", "data", "beside"])
def test_a_line_without_a_field_is_incomplete(name, tmp_path):
    whole = {**LINE, "beside": 0}
    assert missing_fields(whole) == []
    (tmp_path / "some.jsonl").write_text(json.dumps({k: v for k, v in whole.items() if k != name}), "utf-8")
    assert incomplete_lines(tmp_path) == [f"some.jsonl, line 1: {name}"]


def test_what_a_line_may_leave_open():
    assert missing_fields({**LINE, "beside": None, "device": None}) == []
    assert missing_fields({**LINE, "beside": 0, "command": None, "date": ""}) == ["command", "date"]
    assert missing_fields({**LINE, "beside": 0, "seeds": []}) == ["seeds"]
    assert missing_fields({**LINE, "beside": 0, "data": "iris"}) == ["data"], "a name is not a fingerprint"
    assert missing_fields({**LINE, "beside": 0, "data": "iris", "fingerprint": "0" * 64}) == []
    assert missing_fields({**LINE, "beside": 0, "fingerprint": {"iris": "0" * 64, "wine": "?"}}) == ["data"]


def test_recorded_fingerprints_are_those_of_the_tables():
    for record in read_records(RESULTS / "tables.jsonl"):
        assert record["fingerprint"] == SETS[record["data"]].fingerprint


def test_values_are_written_with_the_digits_that_matter():
    assert mean_std([0.03, 0.05]) == "0.04000 ± 0.01414"
    assert mean_std([4.5e-5, 6.7e-5]) == "(5.6 ± 1.6)·10⁻⁵"
    assert mean_std([4.5e-5]) == "4.5·10⁻⁵"
    assert mean_std([0.0]) == "0.00000" and mean_std([-0.3]) == "-0.30000"
    assert mean_std([58.2, 58.6], 2) == "58.40 ± 0.28"


def test_seeds_that_broke_away_are_named():
    lines = our_training()
    assert "broke away" not in measured_cell(lines, percent=False)
    broken = [replace(line, broke_away=20_000) if line.seed in (3, 7) else line for line in lines]
    assert measured_cell(broken, percent=False).endswith(f"; 2 of {len(lines)} seeds broke away")
    lost = [replace(lines[0], value=None), *lines[1:]]
    assert measured_cell(lost, percent=False) == f"1 of {len(lines)} seeds are not finite"


def test_seconds_say_what_shared_the_gpu():
    assert seconds_cell(148.8, 0, "NVIDIA H200") == "149"
    assert seconds_cell(148.8, 3, "NVIDIA H200") == "149 (shared with 3)"
    assert seconds_cell(148.8, None, "NVIDIA H200") == "" == seconds_cell(148.8, 0, "cpu")


def test_the_overview_and_the_results_page_show_the_same_values():
    page = render_paper_page(RESULTS, ROOT / "docs" / "results.md")
    for item, percent in (("table1", False), ("table2", True)):
        table = render_sinusoid(RESULTS) if item == "table1" else render_features(RESULTS)
        for row in paper_rows(item, RESULTS):
            if row.lines and (item == "table2" or row.uses("sinusoid")):
                for cell in row.cells:
                    assert cell.value(percent) in table and cell.value(percent, with_interval=True) in page


def test_comparisons_are_those_of_the_results():
    """One of each kind, read from the results in another way."""
    page, short = render_comparison(RESULTS), render_short_comparison(RESULTS)
    sensors = read_records(RESULTS / "sensors.jsonl")[-1]["runs"]
    ours, process = (np.mean([run["rmse"][name] for run in sensors]) for name in ("meta_fit", "per-task GP"))
    assert f"| {ours:.2f} | {process:.2f} (Gaussian process per sensor) |" in short
    tables = render_table_benchmark(RESULTS)
    accuracies = re.search(r"^\| MetaFun \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|", tables, re.MULTILINE)
    assert ", ".join(accuracies.groups()) in page
    features, images = render_features(RESULTS), render_images(RESULTS)
    for table, names, column in (
        (features, ("MetaFun, our training", "Prototypical networks, on features"), 4),
        (images, ("`metafun train omniglot-20way-1shot", "`metafun train omniglot-prototypes-20way"), 3),
    ):
        rows = [next(row for row in table.splitlines() if row.startswith(f"| {name}")) for name in names]
        assert " | ".join(row.split(" | ")[column].split(" ")[0] for row in rows) in page
    tuned = re.search(r"^\| ridge, tuned \| (\S+) \| \S+ \| (\S+) \| \S+ \| (\S+)", tables, re.MULTILINE)
    assert f"| {', '.join(tuned.groups())} |" in page


def test_rows_without_results_are_shown_as_such(tmp_path):
    (tmp_path / "paper.jsonl").write_text("", "utf-8")
    assert render_sinusoid(tmp_path).count("not measured yet") >= 4
    assert "not measured yet" in render_features(tmp_path) and "not measured yet" in render_paper_page(
        tmp_path, tmp_path
    )


def test_values_of_earlier_settings_are_marked(tmp_path):
    lines = [json.dumps(asdict(replace(line, job="another"))) for line in our_training()]
    (tmp_path / "paper.jsonl").write_text("\n".join(lines), "utf-8")
    assert "; earlier settings" in render_sinusoid(tmp_path)
    assert "earlier settings" not in render_sinusoid(RESULTS)


def test_a_command_has_the_settings_that_its_preset_changed_since():
    def command(words, preset, settings=()):
        return current_command({"command": words, "config": load_config(preset, settings).to_toml()})

    assert (
        command("make demo", "demo") == "`make demo`" and command("metafun demo gp", "demo-gp") == "`metafun demo gp`"
    )
    again = "metafun train gp --seeds 5 --set training.batch=8"
    assert command(again, "gp", ["training.batch=8"]) == f"`{again}`"
    assert command(again, "gp", ["training.batch=8", "model.iterations=2"]) == f"`{again} --set model.iterations=2`"
    before = load_config("demo")
    before = replace(before, training=replace(before.training, clip=None))
    recorded = current_command({"command": "make demo", "config": before.to_toml()})
    assert recorded == "`metafun demo --set training.clip=none`"


@pytest.fixture
def copy(tmp_path):
    """The pages and results of this repository, to be changed."""
    shutil.copytree(RESULTS, tmp_path / "results")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_the_repository_passes(copy):
    check_repository(copy)


@pytest.mark.parametrize(
    ("page", "before", "after", "message"),
    [
        ("docs/start.md", "116,611-parameter", "116,612-parameter", "116,612"),
        ("docs/measured.md", ">within 0.01<", ">within 0.001<", "says “within 0.001”"),
        ("README.md", ">three to seven times less error<", ">ten times less error<", "says “ten times less error”"),
        ("README.md", "four readings; what", "four readings, twice; what", "“twice”"),
        ("docs/uncertainty.md", ">about half<", ">about a third<", "says “about a third”"),
        ("docs/deviations.md", "five steps of 0.003", "five steps of 0.004", "0.004"),
        ("docs/tables.md", "takes seconds.", "takes 8 seconds.", "“8 seconds”"),
        ("docs/tables.md", "takes seconds.", "takes seconds in one or two of 10,000 cases.", "two of 10,000"),
        ("docs/estimators.md", "So `fit` takes milliseconds", "So `fit` takes 2.5 milliseconds", "“2.5”"),
    ],
)
def test_a_number_that_no_line_carries_fails(copy, page, before, after, message):
    text = (copy / page).read_text("utf-8")
    assert text.count(before) == 1, before
    (copy / page).write_text(text.replace(before, after), "utf-8")
    with pytest.raises(InvalidResults, match=re.escape(message)):
        check_repository(copy)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_every_rendered_value_would_be_corrected(page):
    """A mutated value differs from what is rendered, which is what --check compares."""
    text = (ROOT / page).read_text("utf-8")
    for name, value in re.findall(r"<!-- value: (\S+) -->(.*?)<!-- /value -->", text):
        wrong = text.replace(f"<!-- value: {name} -->{value}<", f"<!-- value: {name} -->7{value}<")
        assert wrong != text and render_values(wrong, RESULTS) == text


def test_an_incomplete_line_fails_the_check(copy):
    with open(copy / "results" / "gp.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(LINE) + "\n")
    with pytest.raises(InvalidResults, match=r"gp\.jsonl, line \d+: beside"):
        check_repository(copy)


def test_a_claim_that_the_results_do_not_support_fails(monkeypatch):
    page = {"README.md": "In <!-- claim: demo-seconds -->about a\nminute<!-- /claim -->"}
    check_claims(page, RESULTS)
    monkeypatch.setitem(CLAIMS, "demo-seconds", Claim("about a minute", lambda results: False))
    with pytest.raises(InvalidResults, match="do not support “about a minute”"):
        check_claims(page, RESULTS)


def test_every_value_claim_and_fact_is_used():
    text = "".join(path.read_text("utf-8") for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")))
    assert {*re.findall(r"<!-- value: (\S+) -->", text)} == {*VALUES}
    assert {*re.findall(r"<!-- claim: (\S+) -->", text)} == {*CLAIMS}
    assert all(fact.source and fact.pages for fact in load_facts())
    assert check.RENDERED not in {page for fact in load_facts() for page in fact.pages}


def test_what_counts_as_a_number():
    def found(text, *facts):
        return [line.split("“")[1].split("”")[0] for line in unfounded({"p": text}, facts)]

    assert found("a gap of 0.5, 3e-4, 95 %, 10,000 tasks, two minutes, half of it, three times") == [
        "0.5", "3e-4", "95 %", "10,000", "two minutes", "half of", "three times",
    ]  # fmt: skip
    assert found("5 seeds, Section 4.1, `0.3`, [x](a/0.5.md), in milliseconds, a second call\n\n    0.7\n") == []
    assert found("```\n0.5\n```\n<!-- results: t -->\n0.1\n<!-- /results -->\n") == []
    assert found("noise\n0.1", Fact("noise 0.1", "a preset", ("p",))) == []
    with pytest.raises(InvalidResults, match=r"does not have the fact “noise 0\.2”"):
        check_numbers({"p": "noise"}, (Fact("noise 0.2", "a preset", ("p",)),))


@pytest.mark.slow
def test_a_recorded_run_is_a_complete_line(tmp_path):
    settings = [word for setting in TINY for word in ("--set", setting)]
    command = ["metafun", "demo", "--out", str(tmp_path / "run"), *settings]
    script = [sys.executable, str(ROOT / "scripts" / "record.py"), "--beside", "0", str(tmp_path / "some.jsonl")]
    done = subprocess.run([*script, *command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = read_records(tmp_path / "some.jsonl")
    assert missing_fields(line) == [] and line["beside"] == 0 and line["command"].startswith("metafun demo --out")
    refused = subprocess.run([*script, "rm", "-r"], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "expected metafun train|protocol|demo" in refused.stderr
