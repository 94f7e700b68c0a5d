"""What every line of results has: command, seeds, data, what shared the device; device, version and date."""

import argparse
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from metafun.training.measure import origin


def provenance(
    seeds: Sequence[int], beside: int | None, data: str | Mapping[str, str] = "", command: str | None = None
) -> dict[str, Any]:
    """The fields that `tools.report` asks every line for.

    Args:
        seeds: all seeds that the measurement depends on.
        beside: other processes that shared the device; None if that is not known.
        data: fingerprint of the data, or of each table by name; empty where tasks are generated.
        command: the command that repeats the measurement; by default this process's.
    """
    return {
        "command": command or this_command(),
        "seeds": list(seeds),
        **({"data": data} if isinstance(data, str) else {"fingerprint": dict(data)}),
        "beside": beside,
        **origin(),
    }


def this_command() -> str:
    """The command line of this process, without --beside, which describes the device and not the measurement."""
    words, kept = iter(sys.argv[1:]), []
    for word in words:
        if word == "--beside":
            next(words, None)
        elif not word.startswith("--beside="):
            kept.append(word)
    return shlex.join(["python", f"scripts/{Path(sys.argv[0]).name}", *kept])


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the option --beside.

    Args:
        description: the docstring of the script.
    """
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--beside", type=int, metavar="N", help="other processes that share the device: 0 if there are none"
    )
    return made
