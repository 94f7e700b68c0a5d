"""The tutorials run from the first block to the last, with the assertions in them."""

import re
from pathlib import Path

import matplotlib
import pytest

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("page", sorted(FOLDER.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    blocks = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    assert blocks
    exec(compile("\n".join(blocks), str(page), "exec"), {"__name__": page.stem})


def test_links_lead_somewhere():
    for page in FOLDER.glob("*.md"):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
