"""The README is true: its code runs, its tables are rendered from the results, its commands exist."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples import TINY
from metafun.cli import app
from metafun.config import load_config
from tools.report import PAGES, render_page
from tools.report.__main__ import main as report

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


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
    assert len(quickstart.splitlines()) <= 12
    found = {}
    exec(compile(quickstart, "README.md", "exec"), found)
    assert found["model"].score(found["X"], found["y"]) > 0.8


def test_the_example_with_the_modules_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    settings = [part for setting in TINY for part in ("--set", setting)]
    assert CliRunner().invoke(app, ["demo", *settings]).exit_code == 0
    _, itself = blocks("python")
    exec(compile(itself, "README.md", "exec"), {})
    assert "(3, 100, 8)" in capsys.readouterr().out  # TINY has T = 2 and dr = 8


def test_the_configuration_is_valid(tmp_path):
    (toml,) = blocks("toml")
    path = tmp_path / "mine.toml"
    path.write_text(toml, "utf-8")
    assert load_config(str(path)).model.decoder.kind == "predictor-weights"


def test_the_commands_exist():
    commands = set(re.findall(r"^ {4}metafun (\w+)", README, re.MULTILINE))
    known = "train evaluate plot info demo fit predict export data protocol search reproduce"
    assert commands == set(known.split())
    assert all(CliRunner().invoke(app, [command, "--help"]).exit_code == 0 for command in commands)
    targets = re.findall(r"^ {4}make (\w+)", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert targets[:2] == ["demo", "test"] and all(f"\n{target}:" in makefile for target in targets)
    assert shutil.which("make")


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
