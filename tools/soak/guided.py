"""python -m tools.soak.guided FORMAT FOLDER SECONDS: files that a coverage-guided fuzzer (atheris) finds for a reader.

The folder keeps what was found, so that the next run goes on from there. The exit code is 1 after a failure.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# The readers are not imported here: the fuzzer sees only what it imports itself.
from .harm import MEMORY, SECONDS, done_harm, kind, prepare
from .process import lacked_memory, limit_memory

# Readers in pure Python whose steps the fuzzer can see; the others are left to mutations.
GUIDED = ("pickle", "npz", "npy", "csv", "toml", "image", "zip")
IS_AVAILABLE = importlib.util.find_spec("atheris") is not None


def guide(name: str, folder: Path, failures: Path, seconds: int, counts: Counter) -> str | None:
    """Runs the fuzzer in another process; returns what went wrong.

    Args:
        name: the format.
        folder: what was found so far.
        failures: where a file that fails goes.
        seconds: how long.
        counts: counts files, and problems by kind.
    """
    failures.mkdir(parents=True, exist_ok=True)
    prefix = f"{failures.resolve()}/{name}-guided-"
    command = [sys.executable, "-m", "tools.soak.guided", name, str(folder), str(seconds), prefix]
    with tempfile.TemporaryDirectory(prefix="soak-") as work:
        environment = os.environ | {"TMPDIR": work}  # the fuzzer ends its process without leaving any block
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = done.stdout.decode("utf-8", "replace")
    counts[f"{name} guided"] += max(map(int, re.findall(r"^(?:#|Done )(\d+)", said, re.MULTILINE)), default=0)
    if done.returncode == 0:
        return None
    kept = re.findall(r"Test unit written to (\S+)", said)
    reason = re.search(r"=== Uncaught Python exception: ===\n(.*)|ERROR: libFuzzer: (.*)", said)
    words = next(filter(None, reason.groups()), "") if reason else said[-300:]
    words = words.replace("timeout", "it took more than").replace("out-of-memory", "too much memory")
    counts[kind(words)] += 1
    return f"{name} guided: {words}; {', '.join(kept)}"


def main() -> None:
    """Fuzzes one reader in this process."""
    import atheris

    with atheris.instrument_imports(include=["metafun.data", "metafun.config", "metafun.schema", "metafun.files"]):
        from .formats import FORMATS
    from metafun.errors import MetaFunError

    name, folder, seconds, prefix = sys.argv[1:5]
    form, corpus = FORMATS[name], Path(folder).resolve()
    corpus.mkdir(parents=True, exist_ok=True)
    (corpus / "good").write_bytes(form.good())
    work = Path(tempfile.mkdtemp(prefix="soak-"))
    path = work / "received" / form.name
    path.parent.mkdir(parents=True)
    prepare(work)
    os.fsync = lambda _: None  # type: ignore[assignment]  # it would take most of the time

    def read(content: bytes) -> None:
        path.write_bytes(content)
        try:
            form.read(path)
        except (MetaFunError, OSError) as error:
            if lacked_memory(error):
                raise AssertionError(f"it took too much memory: {error}") from None
        if harm := done_harm(work):
            raise AssertionError(harm)
        shutil.rmtree(work / "data", ignore_errors=True)

    limits = [f"-max_total_time={seconds}", f"-rss_limit_mb={MEMORY // 2**20}", f"-timeout={SECONDS}", "-handle_int=0"]
    atheris.Setup([sys.argv[0], str(corpus), *limits, f"-artifact_prefix={prefix}", "-max_len=100000"], read)
    os.chdir(work)
    limit_memory(MEMORY)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
