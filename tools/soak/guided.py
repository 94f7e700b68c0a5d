"""python -m tools.soak.guided FORMAT FOLDER SECONDS: files that a coverage-guided fuzzer (atheris) finds for a reader.

The folder keeps what was found, so that the next run goes on from there. The exit code is 1 after a failure.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# Readers in pure Python whose steps the fuzzer can see; the others are left to mutations.
GUIDED = ("pickle", "npz", "npy", "csv", "toml", "image", "zip")
MEGABYTES, SECONDS_A_FILE = 2048, 60
IS_AVAILABLE = importlib.util.find_spec("atheris") is not None


def guide(name: str, folder: Path, failures: Path, seconds: int) -> tuple[int, str | None]:
    """Runs the fuzzer in another process; returns the number of files that were read, and what went wrong.

    Args:
        name: the format.
        folder: what was found so far.
        failures: where a file that fails goes.
        seconds: how long.
    """
    failures.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tools.soak.guided", name, str(folder), str(seconds), f"{failures}/{name}-guided-"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    count = re.search(r"Done (\d+) runs|stat::number_of_executed_units: (\d+)", done.stderr)
    read = int(next(filter(None, count.groups()))) if count else 0
    if done.returncode == 0:
        return read, None
    kept = re.findall(r"Test unit written to (\S+)", done.stderr)
    reason = re.search(r"=== Uncaught Python exception: ===\n(.*)|ERROR: (libFuzzer: .*)", done.stderr)
    words = next(filter(None, reason.groups()), "") if reason else done.stderr[-300:]
    return read, f"{name} guided: {words}; {', '.join(kept)}"


def main() -> None:
    """Fuzzes one reader in this process."""
    import atheris

    with atheris.instrument_imports(include=["metafun.data", "metafun.config", "metafun.schema", "metafun.files"]):
        from .formats import FORMATS
    from metafun.errors import MetaFunError

    name, folder, seconds, prefix = sys.argv[1:5]
    form, corpus = FORMATS[name], Path(folder)
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "good").write_bytes(form.good())
    work = Path(tempfile.mkdtemp(prefix="soak-"))
    path = work / "received" / form.name
    os.environ["METAFUN_DATA"] = str(work / "data")

    def read(content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        with contextlib.suppress(MetaFunError, OSError):
            form.read(path)
        if (work / "executed").exists():
            raise AssertionError("code was executed")
        shutil.rmtree(work / "data", ignore_errors=True)

    limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEGABYTES}", f"-timeout={SECONDS_A_FILE}"]
    atheris.Setup([sys.argv[0], str(corpus.resolve()), *limits, f"-artifact_prefix={prefix}", "-max_len=100000"], read)
    os.chdir(work)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
