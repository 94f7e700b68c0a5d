"""What the wheel would contain, without building it; `make package` builds and installs it."""

import re
import tomllib
from pathlib import Path

from metafun import __version__

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "metafun"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def packed() -> set[Path]:
    """The files of the package that are not modules, by the globs of pyproject.toml."""
    globs = PROJECT["tool"]["setuptools"]["package-data"]["metafun"]
    found = [set(PACKAGE.glob(pattern)) for pattern in globs]
    assert all(found), "a pattern that matches nothing"
    return set().union(*found)


def test_the_wheel_has_every_file_of_the_package():
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert {path for path in files if path.suffix != ".py"} == packed()
    assert all((path.parent / "__init__.py").is_file() for path in files if path.suffix == ".py")


def test_the_wheel_is_small():
    assert sum(path.stat().st_size for path in PACKAGE.rglob("*") if path.is_file()) < 25_000_000, "before compression"


def test_the_citation_has_the_version_of_the_package():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (\S+)$", citation, re.MULTILINE).group(1) == __version__
    assert PROJECT["project"]["license"] in re.search(r"^license: (\S+)$", citation, re.MULTILINE).group(1)
