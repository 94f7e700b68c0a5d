"""python -m tools.soak: hostile files and kills until the time is over; the exit code is 1 if anything went wrong."""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax

from .hostile import attack
from .kills import WORKS, expected, kill

# One kill takes about as long as so many hostile files.
FILES_PER_KILL = 40


def main() -> int:
    """Runs the campaign, from where the last one of the same seed ended."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES", "10")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED", "0")))
    parser.add_argument("--out", type=Path, default=Path(".cache") / "soak", help="state and reproducers")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    state = options.out / f"seed-{options.seed}.json"
    begun: dict[str, Any] = {"next": 0, "counts": {}, "problems": []}
    begun |= json.loads(state.read_text("utf-8")) if state.exists() else {}
    jax.config.update("jax_compilation_cache_dir", str(options.out.resolve() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        references = {work: expected(work, Path(name) / work) for work in WORKS}
    ends = time.monotonic() + 60 * options.minutes
    queue: multiprocessing.Queue = multiprocessing.get_context("fork").Queue()
    parts = [(options, begun["next"] + i, references, ends, queue) for i in range(options.workers)]
    workers = [multiprocessing.get_context("fork").Process(target=_work, args=part) for part in parts]
    for worker in workers:
        worker.start()
    results = [queue.get() for _ in workers]
    for worker in workers:
        worker.join()
    counts = Counter(begun["counts"]) + sum((result[0] for result in results), Counter())
    problems = begun["problems"] + [problem for result in results for problem in result[1]]
    end = max(result[2] for result in results)
    state.write_text(json.dumps({"next": end, "counts": counts, "problems": problems}, indent=1), "utf-8")
    print(report(counts, problems))
    return 1 if problems else 0


def _work(
    options: argparse.Namespace, number: int, references: dict[str, Any], ends: float, queue: multiprocessing.Queue
) -> None:
    counts: Counter = Counter()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        while time.monotonic() < ends:
            if number // options.workers % FILES_PER_KILL == 0:
                problem = kill(options.seed, number, folder / "kill", references, counts)
            else:
                problem = attack(options.seed, number, folder / "file", options.out / "failures", counts)
            if problem is not None:
                problems.append(problem)
                print(problem, file=sys.stderr, flush=True)
            number += options.workers
    queue.put((counts, problems, number))


def report(counts: Counter, problems: list[str]) -> str:
    """The counts and problems as text."""
    files = sum(n for key, n in counts.items() if key.endswith(("refused", "read")))
    kills = sum(n for key, n in counts.items() if key.endswith("killed"))
    resumes = sum(n for key, n in counts.items() if key.endswith("identically"))
    lines = [f"{key:32} {n:8,}" for key, n in sorted(counts.items())]
    total = f"{files:,} hostile files, {kills:,} kills, {resumes:,} identical resumes, {len(problems):,} failures"
    return "\n".join([*lines, total, *problems[:20]])


if __name__ == "__main__":
    sys.exit(main())
