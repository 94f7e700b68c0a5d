"""Builds the wheel and the sdist, and checks that each runs in an environment of its own; `make package`.

Needs a network, or a package index, and some minutes: the dependencies are installed as a user would, without
constraints.txt. Files go to dist/.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST_BYTES = 25_000_000
# What the package reads besides its modules.
NEEDED = (
    "metafun/presets/sinusoid.toml",
    "metafun/paper/table1.toml",
    "metafun/bench/features.toml",
    "metafun/checkpoints/tables-classification.safetensors",
    "metafun/py.typed",
)


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """The output of a command; what is wrong with it goes to the terminal."""
    print("+", *command, flush=True)
    # The source tree must not stand in for the installed package.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout


def environment(folder: Path) -> Path:
    """Makes a virtual environment and returns its Python."""
    venv.create(folder, with_pip=True)
    return folder / ("Scripts" if os.name == "nt" else "bin") / "python"


def build(python: Path, dist: Path) -> tuple[Path, Path]:
    """The wheel and the sdist; the wheel is built from the sdist, so neither lacks a file."""
    for old in (*dist.glob("metafun-*.whl"), *dist.glob("metafun-*.tar.gz")):
        old.unlink()
    shutil.rmtree(ROOT / "build", ignore_errors=True)  # setuptools would pack what an earlier build left there
    run(python, "-m", "pip", "install", "--quiet", "build")
    run(python, "-m", "build", "--outdir", dist)
    (wheel,), (sdist,) = dist.glob("metafun-*.whl"), dist.glob("metafun-*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """The sizes and the files of both."""
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    if missing := set(NEEDED) - set(names):
        raise SystemExit(f"{wheel} lacks {', '.join(sorted(missing))}")
    if others := {name for name in names if not name.startswith(("metafun/", "metafun-"))}:
        raise SystemExit(f"{wheel} has files outside the package: {', '.join(sorted(others))}")
    with tarfile.open(sdist) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
    if missing := {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"} - inside:
        raise SystemExit(f"{sdist} lacks {', '.join(sorted(missing))}")
    for path in (wheel, sdist):
        size = path.stat().st_size
        print(f"{path.name}: {size / 1e6:.1f} MB")
        if size > MOST_BYTES:
            raise SystemExit(f"{path} has {size:,} bytes, more than {MOST_BYTES:,}")


def check_runs(wheel: Path, sdist: Path, folder: Path) -> None:
    """Installs the wheel with its dependencies into a new environment and uses it; then the sdist in its place."""
    python = environment(folder / "environment")
    run(python, "-m", "pip", "install", "--quiet", wheel)
    run(python, "-m", "pip", "check")
    check_use(python, folder)
    run(python, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", sdist)
    check_use(python, folder)


def check_use(python: Path, folder: Path) -> None:
    """Runs the first example of the README, and the command."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    if found is None:
        raise SystemExit("the README has no example in Python")
    print(run(python, "-c", found.group(1), folder=folder))
    where = run(python, "-c", "import metafun; print(metafun.__file__)", folder=folder).strip()
    if not Path(where).resolve().is_relative_to(folder):
        raise SystemExit(f"the example ran {where}, which is not the installed package")
    print(run(python.parent / "metafun", "--version", folder=folder))
    run(python.parent / "metafun", "info", folder=folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder of the wheel and the sdist")
    dist = parser.parse_args().out.resolve()
    dist.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        wheel, sdist = build(environment(folder / "build"), dist)
        check_contents(wheel, sdist)
        check_runs(wheel, sdist, folder)
    print(f"{wheel.name} and {sdist.name} install and run")


if __name__ == "__main__":
    sys.exit(main())
