"""Renders what was measured: the README's table comes from results/*.jsonl and is never typed.

`python -m metafun.report` rewrites the table in README.md.
"""

import json
import tomllib
from pathlib import Path
from typing import Any

START, END = "<!-- results -->\n", "<!-- /results -->\n"
# Table 1 of the paper: mean and standard deviation over 5 runs of MetaFun (DFP).
PAPER = {"mse_5shot": (0.040, 0.008), "mse_10shot": (0.017, 0.005)}


def render(results: Path) -> str:
    """The table of Table 1's model: one row for each recorded run."""
    published = " | ".join(f"{mean:.3f} ± {std:.3f}" for mean, std in PAPER.values())
    lines = ["| run | 5-shot | 10-shot | GPU seconds | steps/s |", "|---|---|---|---|---|"]
    lines.append(f"| the paper, MetaFun (DFP) | {published} | | |")
    for name in ("demo", "sinusoid"):
        records = (results / f"{name}.jsonl").read_text("utf-8").splitlines()
        lines += [_row(json.loads(record)) for record in records]
    return "\n".join(lines) + "\n"


def insert(page: str, table: str) -> str:
    """The page with the table between its two marks."""
    before, rest = page.split(START)
    return before + START + "\n" + table + "\n" + END + rest.split(END)[1]


def _row(record: dict[str, Any]) -> str:
    seeds = len(tomllib.loads(record["config"])["training"]["seeds"])
    command = "make demo" if record["run"] == "demo" else f"metafun train {record['run']} --seeds {seeds}"
    # Seconds on a CPU depend on whose it is and what else it does; they are not reported.
    gpu = record["device"] != "cpu"
    speed = (f"{record['train_seconds']:.0f}", f"{record['steps_per_second']:,.0f}") if gpu else ("", "")
    return f"| `{command}` | {' | '.join((*(number(record['metrics'][m]) for m in PAPER), *speed))} |"


def number(value: dict[str, Any]) -> str:
    """Mean ± standard deviation over the seeds, if there are several."""
    spread = "" if value["std"] is None else f" ± {value['std']:.5f}"
    return f"{value['mean']:.5f}{spread}"


if __name__ == "__main__":
    readme = Path("README.md")
    readme.write_text(insert(readme.read_text("utf-8"), render(Path("results"))), "utf-8")
