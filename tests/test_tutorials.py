"""The tutorials run from the first block to the last, with the assertions in them; so do their notebooks."""

import json
import re
import shutil
from pathlib import Path

import matplotlib
import pytest

from tools.notebooks import TUTORIALS, code_cells, notebook

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for data in FOLDER.glob("*.csv"):
        shutil.copy(data, tmp_path)
    matplotlib.use("Agg")
    blocks, names = blocks_of(page), {"__name__": page.stem}
    assert blocks
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


def blocks_of(page: Path) -> list[str]:
    """The code of a tutorial; from its notebook, if it has one."""
    if page.stem in TUTORIALS:
        return code_cells(page.with_suffix(".ipynb").read_text("utf-8"))
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("name", TUTORIALS)
def test_notebooks_are_those_of_the_tutorials(name):
    text, page = (FOLDER / f"{name}.ipynb").read_text("utf-8"), (FOLDER / f"{name}.md").read_text("utf-8")
    assert text == notebook(page), "run: make pages"
    assert [f"{cell}\n" for cell in code_cells(text)] == re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    found = json.loads(text)
    assert found["nbformat"] == 4 and len({cell["id"] for cell in found["cells"]}) == len(found["cells"])


def test_links_lead_somewhere():
    for page in FOLDER.glob("*.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
