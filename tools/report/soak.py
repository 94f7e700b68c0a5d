"""The counts of recorded campaigns of hostile files and kills, and the memory of long runs."""

from pathlib import Path

from .markdown import table
from .records import read_records

# As `tools.soak` names them in its lines.
COUNTS = ("hostile files", "guided files", "kills", "identical resumes", "other resumes")
FAILURES = ("executed", "tracebacks", "over 2 GB", "over 60 s", "lost files")


def render_soak(results: Path) -> str:
    """What each campaign counted, and how many minutes of one core it had."""
    lines = read_records(results / "soak.jsonl")
    rows = [
        (
            f"`{line['command']}`",
            f"{line['cpu_seconds'] / 60:.0f}",
            *(f"{line[name]:,}" for name in (*COUNTS, *FAILURES)),
        )
        for line in lines
    ]
    return table(("campaign", "CPU minutes", *COUNTS, *FAILURES), rows)


def render_memory(results: Path) -> str:
    """Memory early and at the end of the last runs of scripts/fit_memory.py and scripts/play_memory.py."""
    rows = []
    for file, count, what in (
        ("fit-memory", "cycles", "cycles of `fit` and `predict`"),
        ("play-memory", "requests", "requests to the page of `metafun play`"),
    ):
        line = read_records(results / f"{file}.jsonl")[-1]
        megabytes = (f"{line[name]:.0f}" for name in ("megabytes_first", "megabytes_last"))
        rows.append((f"{line[count]:,} {what}", *megabytes, f"{100 * line['growth']:+.1f} %"))
    return table(("in one process", "MB once warm", "MB at the end", "growth"), rows)
