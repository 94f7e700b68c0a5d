"""The README and the first pages are true: their code runs, tables are rendered from the results, commands exist."""

import re
import shutil
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from examples import TINY
from metafun import MetaFunRegressor
from metafun.cli import app
from metafun.config import load_config
from tools.report import PAGES, render_page
from tools.report.__main__ import main as report

ROOT = Path(__file__).parent.parent
README, START, TRAINING = (
    (ROOT / name).read_text("utf-8") for name in ("README.md", "docs/start.md", "docs/training.md")
)


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_readme_is_short():
    assert README.count("\n") <= 110


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_rendered_from_the_results(page):
    text = (ROOT / page).read_text("utf-8")
    assert render_page(text, ROOT / "results") == text, "run: make pages"
    assert "<!-- results: " in text


def test_all_pages_are_up_to_date(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    assert report(["--check"]) == 0, capsys.readouterr().err


def test_the_quickstart_runs():
    quickstart, _ = blocks("python")
    assert len([line for line in quickstart.splitlines() if line]) <= 5
    found = {}
    exec(compile(quickstart, "README.md", "exec"), found)
    assert found["model"].score(found["X"], found["y"]) > 0.8


def test_three_lines_learn_from_tasks(monkeypatch):
    settings = {"model.iterations": 2, "model.representation": 8, "model.pooling.width": 8, "model.update.width": 8}
    short = partialmethod(MetaFunRegressor.meta_fit, steps=5, settings=settings, progress=False)
    monkeypatch.setattr(MetaFunRegressor, "meta_fit", short)
    rng = np.random.default_rng(0)
    found = {"MetaFunRegressor": MetaFunRegressor, "sensor": np.repeat(np.arange(6), 5)}
    found["X"] = rng.uniform(0, 24, (30, 1))
    found["y"] = np.sin(found["X"][:, 0] / 4) + found["sensor"]
    found |= {"X_few": found["X"][:4], "y_few": found["y"][:4], "X_more": found["X"]}
    _, three_lines = blocks("python")
    assert len(re.findall(r"^(?!from )\S", three_lines, re.MULTILINE)) == 3
    exec(compile(three_lines, "README.md", "exec"), found)
    assert found["mean"].shape == found["std"].shape == (30,) and (found["std"] > 0).all()


def test_the_example_with_the_modules_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = [part for setting in TINY for part in ("--set", setting)]
    assert CliRunner().invoke(app, ["demo", *settings]).exit_code == 0
    (itself,) = blocks("python", START)
    exec(compile(itself, "start.md", "exec"), {})
    assert "(3, 100, 8)" in capsys.readouterr().out  # TINY has T = 2 and dr = 8


def test_the_configuration_is_valid(tmp_path):
    (toml,) = blocks("toml", TRAINING)
    path = tmp_path / "mine.toml"
    path.write_text(toml, "utf-8")
    assert load_config(str(path)).model.decoder.kind == "predictor-weights"


def test_the_commands_exist():
    pages = README + START + TRAINING
    commands = set(re.findall(r"^ {4}metafun (\w+)", pages, re.MULTILINE))
    known = "train evaluate plot info demo fit predict export data protocol search reproduce"
    assert commands == set(known.split())
    assert all(CliRunner().invoke(app, [command, "--help"]).exit_code == 0 for command in commands)
    targets = re.findall(r"^ {4}make (\w+)", pages, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets[:2] == ["demo", "test"] and all(f"\n{target}:" in makefile for target in targets)
    assert shutil.which("make")


def test_links_lead_somewhere():
    links = re.findall(r"\]\((?!http)([^)#]+)", README) + re.findall(r'(?:src|srcset)="([^"]+)"', README)
    for target in links:
        assert (ROOT / target).exists(), target


def test_no_line_starts_with_a_mark():
    """Markdown takes such a line for HTML, and ends the paragraph before it."""
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert not re.findall(r"^\s*<!-- (?:value|claim): .*", page.read_text("utf-8"), re.MULTILINE), page
