"""Runs a `metafun train`, `protocol` or `demo` command and appends its evaluation to a file in results/.

The line has all that is needed to repeat the measurement. A file in which one run replaces another is edited by hand.

    python scripts/record.py --beside 0 gp.jsonl metafun train gp --seeds 5
    python scripts/record.py demo.jsonl metafun demo
"""

import argparse
import itertools
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from provenance import parser

from metafun.files import append_json

RESULTS = Path(__file__).parent.parent / "results"
COMMANDS = ("train", "protocol", "demo")


def record(file: Path, command: list[str], beside: int | None) -> dict[str, Any]:
    """The line that was appended.

    Args:
        file: the .jsonl file.
        command: words of a command that starts with `metafun`.
        beside: other processes that shared the device; None if that is not known.
    """
    if command[:1] != ["metafun"] or command[1:2] not in [[name] for name in COMMANDS]:
        sys.exit(f"error: expected metafun {'|'.join(COMMANDS)} …, got '{shlex.join(command)}'.")
    metafun = [sys.executable, "-m", "metafun.cli"]
    if command[1] == "protocol":
        line = _output([*metafun, *command[1:], "--json"])
    else:
        subprocess.run([*metafun, *command[1:]], check=True)
        line = _output([*metafun, "evaluate", str(run_folder(command)), "--json"])
    line |= {"command": shlex.join(command), "beside": beside}
    append_json(file, line)
    return line


def run_folder(command: list[str]) -> Path:
    """Where a `metafun train` or `metafun demo` command puts its run.

    Args:
        command: its words.
    """
    words = command[2:]
    for option, value in itertools.pairwise(words):
        if option == "--out":
            return Path(value)
    name = Path(words[0]).stem if words and not words[0].startswith("-") else ""
    if command[1] == "train":
        return Path("runs") / name
    return Path("demo" if name in ("", "sinusoid") else f"demo-{name}")


def _output(command: list[str]) -> dict[str, Any]:
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("file", metavar="FILE", help="a file in results/, or a path")
    options.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="metafun train|protocol|demo …")
    given = options.parse_args()
    # A name goes into results/, a path with a folder where it says.
    target = Path(given.file) if Path(given.file).name != given.file else RESULTS / given.file
    try:
        line = record(target, given.command, given.beside)
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    print(f"{target}: {json.dumps({name: value['mean'] for name, value in line['metrics'].items()})}")
