"""python -m tools.soak: hostile files and kills until the time is over; the exit code is 1 if anything went wrong."""

import argparse
import gc
import json
import multiprocessing
import os
import queue
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import jax

from metafun.files import append_json
from metafun.training.measure import origin

from .formats import warm_up
from .guided import GUIDED, IS_AVAILABLE, guide
from .harm import KINDS
from .hostile import attack
from .kills import References, kill

# So that 10,000 files come with 200 resumes; a kill takes about as long as 150 files.
FILES_PER_KILL = 44
# If atheris is installed.
FILES_PER_GUIDED, GUIDED_SECONDS = 400, 15


def main() -> int:
    """Runs the campaign, from where the last one of the same seed ended."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("SOAK_MINUTES", "10")))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SOAK_SEED", "0")))
    parser.add_argument("--out", type=Path, default=Path(".cache") / "soak", help="state and reproducers")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--record", type=Path, metavar="FILE", help="a file of results/ that gets a line of the counts")
    parser.add_argument("--beside", type=int, metavar="N", help="other processes that share the machine, for --record")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    state = options.out / f"seed-{options.seed}.json"
    begun: dict[str, Any] = {"next": 0, "counts": {}, "problems": [], "minutes": 0.0, "cpu_seconds": 0.0}
    begun |= json.loads(state.read_text("utf-8")) if state.exists() else {}
    jax.config.update("jax_compilation_cache_dir", str(options.out.resolve() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    start = time.monotonic()
    results = _run(options, begun["next"])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = {
        "next": max(result[2] for result in results),
        "counts": Counter(begun["counts"]) + sum((result[0] for result in results), Counter()),
        "problems": begun["problems"] + [problem for result in results for problem in result[1]],
        "minutes": round(begun["minutes"] + (time.monotonic() - start) / 60, 2),
        "cpu_seconds": round(begun["cpu_seconds"] + used.ru_utime + used.ru_stime, 1),
    }
    state.write_text(json.dumps(ended, indent=1), "utf-8")
    print(report(ended["counts"], ended["problems"]))
    if options.record is not None:
        append_json(options.record, _line(options, ended))
    return 1 if ended["problems"] else 0


def _run(options: argparse.Namespace, first: int) -> list[tuple[Counter, list[str], int]]:
    """Counts, problems and the next case of each worker, when the time is over or after Ctrl-C."""
    forking = multiprocessing.get_context("fork")
    channel, stop, ends = forking.Queue(), forking.Event(), time.monotonic() + 60 * options.minutes
    go_on = lambda: time.monotonic() < ends and not stop.is_set()  # noqa: E731
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder = Path(name)
        (folder / "warm").mkdir()
        warm_up(folder / "warm")
        gc.freeze()  # a collection in a fork would copy all memory
        arguments = [(options, first + i, folder, go_on, channel) for i in range(options.workers)]
        workers = [forking.Process(target=_work, args=each) for each in arguments]
        for worker in workers:
            worker.start()
        return _results(workers, channel, stop, first)


def _results(
    workers: Sequence[BaseProcess], channel: multiprocessing.Queue, stop: Event, first: int
) -> list[tuple[Counter, list[str], int]]:
    results: list[tuple[Counter, list[str], int]] = []
    while len(results) < len(workers):
        try:
            results.append(channel.get(timeout=1))
        except queue.Empty:
            if not any(worker.is_alive() for worker in workers):
                codes = ", ".join(str(worker.exitcode) for worker in workers)
                return [*results, (Counter(), [f"a worker was killed; their exit codes are {codes}"], first)]
        except KeyboardInterrupt:
            stop.set()
    for worker in workers:
        worker.join()
    return results


def _work(
    options: argparse.Namespace, number: int, shared: Path, go_on: Callable[[], bool], channel: multiprocessing.Queue
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a case that has begun is finished
    counts: Counter = Counter()
    problems: list[str] = []
    try:
        folder = shared / f"worker-{number % options.workers}"
        folder.mkdir()
        references = References(shared / "reference")
        while go_on():
            problem = _case(options, number, folder, references, counts)
            if problem is not None:
                problems.append(problem)
                print(problem, file=sys.stderr, flush=True)
            number += options.workers
    except BaseException:
        problems.append(f"case {number}: {traceback.format_exc()}")
        raise
    finally:
        channel.put((counts, problems, number))


def _case(
    options: argparse.Namespace, number: int, folder: Path, references: References, counts: Counter
) -> str | None:
    turn = number // options.workers
    if IS_AVAILABLE and turn % FILES_PER_GUIDED == FILES_PER_GUIDED - 1:
        name = random.Random(f"guided-{options.seed}-{number}").choice(GUIDED)
        return guide(name, options.out / "corpus" / name, options.out / "failures", GUIDED_SECONDS, counts)
    if turn % FILES_PER_KILL == 0:
        return kill(options.seed, number, folder / "kill", references, counts)
    return attack(options.seed, number, folder / "file", options.out / "failures", counts)


def summary(counts: Counter, problems: list[str]) -> dict[str, int]:
    """What the campaign is judged by.

    Args:
        counts: by format, work and outcome.
        problems: a line for each.
    """

    def total(*endings: str) -> int:
        return sum(n for key, n in counts.items() if key.endswith(endings))

    return {
        "hostile files": total("refused", "read"),
        "guided files": total("guided"),
        "kills": total("killed"),
        "identical resumes": total("identically"),
        "other resumes": counts["lost works"],
        **{kind: counts[kind] for kind in (*KINDS, "tracebacks")},
        "failures": len(problems),
    }


def report(counts: Counter, problems: list[str]) -> str:
    """The counts and problems as text.

    Args:
        counts: by format, work and outcome.
        problems: a line for each.
    """
    lines = [f"{key:32} {n:8,}" for key, n in sorted(counts.items())]
    total = ", ".join(f"{n:,} {key}" for key, n in summary(counts, problems).items())
    return "\n".join([*lines, total, *problems[:20]])


def _line(options: argparse.Namespace, ended: dict[str, Any]) -> dict[str, Any]:
    command = f"python -m tools.soak --minutes {options.minutes:g} --seed {options.seed} --workers {options.workers}"
    return {
        **summary(ended["counts"], ended["problems"]),
        "counts": dict(sorted(ended["counts"].items())),
        **{
            "minutes": ended["minutes"],
            "cpu_seconds": ended["cpu_seconds"],
            "workers": options.workers,
            "guided": IS_AVAILABLE,
        },
        **{"command": command, "seeds": [options.seed], "data": "", "beside": options.beside},
        **origin(),
    }


if __name__ == "__main__":
    sys.exit(main())
