"""The campaign of hostile files and kills: a slice of it runs here, and it finds failures that are planted."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked and limited")

# In another process: this one has begun to compute, and must not be forked.
PLANTED = """
import sys
from collections import Counter
from pathlib import Path
import tools.soak.hostile as hostile
from metafun.errors import InvalidData
from tools.soak import kills

READERS = {
    "crash": lambda path: b"-1" in path.read_bytes() and 1 // 0,
    "executes": lambda path: b"-1" in path.read_bytes() and Path("executed").touch(),
    "writes": lambda path: b"-1" in path.read_bytes() and (path.parent.parent / "victim").write_text("gone"),
    "hangs": lambda path: [0 for _ in iter(int, 1)] if b"-1" in path.read_bytes() else 0,
    "fills": lambda path: b"-1" in path.read_bytes() and bytearray(3 * 2**30),
}
hostile.SECONDS, out, csv = 2, Path(sys.argv[1]), hostile.FORMATS["csv"]
for name, read in READERS.items():
    form = csv._replace(read=read, hostile=lambda rng: b"x,y\\n1,2\\n" * 9 + b"-1" + b"3,4\\n" * 9)
    hostile.FORMATS = {name: form}
    problem = next(filter(None, (hostile.attack(0, i, out / "work", out / "kept", Counter()) for i in range(20))))
    print(problem)
lost = kills.WORKS["import"]._replace(result=lambda folder: object())
kills.WORKS = {"import": lost}
print(kills.kill(0, 1, out / "work", {"import": kills.Reference("the same", 5, 0.1)}, Counter()))

def refuse(folder):
    raise InvalidData("not accepted")

def tear(folder):
    kills.finish_interrupted_save(folder, "t")
    with open(folder / "t" / "features.npy", "r+b") as file:
        file.seek(200)
        file.write(b"1234")
    kills._die()

kills.WORKS = {"import": lost._replace(run=tear)}
print(kills.kill(0, 1, out / "work", {"import": kills.Reference("the same", 5, 60.0)}, Counter()))
kills.WORKS = {"import": lost._replace(run=refuse)}
print(kills.kill(0, 1, out / "work", {"import": kills.Reference("the same", 5, 60.0)}, Counter()))
"""
WORKER_KILLED = """
import os
import signal
import sys
import tools.soak.__main__ as soak

soak._case = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(soak.main())
"""
READS = """
import sys
from pathlib import Path
from jax._src import xla_bridge
from tools.soak import formats, hostile

(warm := Path(sys.argv[1]) / "warm").mkdir()
formats.warm_up(warm)
assert (warm / "data" / "miniimagenet-center").is_dir(), "the user's data were changed"
assert not xla_bridge.backends_are_initialized(), "a process with XLA's threads would be forked"
for name, form in formats.FORMATS.items():
    print(name, hostile._read(name, form.good(), Path(sys.argv[1])))
"""
GUIDED = """
import sys
import tools.soak.formats as formats
from tools.soak import guided

formats.FORMATS["csv"] = formats.FORMATS["csv"]._replace(read=lambda path: b"\\n\\n" in path.read_bytes() and 1 // 0)
guided.main()
"""


def _python(*words):
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_planted_failures_are_found_and_made_small(tmp_path):
    done = _python("-c", PLANTED, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    lost = ["not the same after a resume", "neither the old one nor the new one", "not accepted"]
    expected = ["ZeroDivisionError", "code was executed", "a file outside was changed", "more than", "MemoryError"]
    for line, problem in zip(lines, [*expected, *lost], strict=True):
        assert problem in line, done.stdout
    kept = [path.read_bytes() for path in (tmp_path / "kept").iterdir()]
    assert len(kept) == 5 and all(b"-1" in content and len(content) <= 12 for content in kept)


def test_a_killed_worker_ends_the_campaign(tmp_path):
    done = _python("-c", WORKER_KILLED, "--minutes", "60", "--workers", "1", "--out", tmp_path)
    assert done.returncode == 1 and "a worker was killed; their exit codes are -9" in done.stdout, done.stderr
    assert json.loads((tmp_path / "seed-0.json").read_text("utf-8"))["minutes"] < 5, "measured, not planned"


def test_good_files_are_read(tmp_path):
    """Otherwise no change of them would get far."""
    done = _python("-c", READS, tmp_path)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 14, done.stderr
    assert all(line.endswith(" (None, False)") for line in done.stdout.splitlines()), done.stdout


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris: pip install -e .[soak]")
def test_the_guided_fuzzer_finds_a_planted_failure(tmp_path):
    done = _python("-c", GUIDED, "csv", tmp_path / "corpus", "60", f"{tmp_path}/failure-")
    assert "ZeroDivisionError" in done.stdout and b"\n\n" in next(tmp_path.glob("failure-*")).read_bytes()


@pytest.mark.slow
def test_a_slice_of_the_campaign(tmp_path):
    done = _python(*["-m", "tools.soak", "--minutes", "0.4", "--seed", "11", "--workers", "1", "--out"], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    state = json.loads((tmp_path / "seed-11.json").read_text("utf-8"))
    counts = state["counts"]
    assert counts["import resumed identically"] >= 1 and sum(counts.values()) > 5 and not state["problems"]
    assert re.search(r"\d+ hostile files, .* 0 executed, 0 over 2 GB, 0 over 60 s, 0 lost files", done.stdout)
