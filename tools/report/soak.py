"""The counts of recorded campaigns of hostile files and kills."""

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
