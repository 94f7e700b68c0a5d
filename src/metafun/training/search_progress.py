"""A search with a progress bar on a terminal, and a line for each batch of trials elsewhere."""

from collections.abc import Generator, Sequence

import optuna
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from .progress import stop_signal
from .search import TrialProgress, error, finished


def run_search(
    study: optuna.Study,
    progress: Generator[TrialProgress, None, None],
    trials: int,
    console: Console,
    *,
    quiet: bool = False,
) -> None:
    """Runs a search to its end, or until Ctrl-C.

    Args:
        study: the study.
        progress: what `work` returns.
        trials: trials of the study, by all workers together.
        console: shows progress.
        quiet: show no progress bar, since another worker has one.
    """
    columns = (
        TextColumn("trials"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[now]}  best {task.fields[best]}"),
        TimeElapsedColumn(),
    )
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, disable=hidden) as bar, stop_signal(console) as stopped:
        task = bar.add_task("", total=trials, now="…", best="…")
        for now in progress:
            done = finished(study)
            best = f"{error(done[0]):.4f}" if done else "…"
            step = now.metrics.record.step if now.metrics else 0
            what = f"{len(now.trials)} at once, step {step:,} of {now.run.config.training.end:,}"
            bar.update(task, completed=len(done), now=what, best=best)
            if now.metrics is None and not console.is_terminal:
                console.print(f"{len(done)} of {trials} trials done, best {best}; next: {numbered(now.trials)}")
            if stopped.is_set():
                progress.close()
                raise KeyboardInterrupt("stopped; continue with --resume.")


def numbered(trials: Sequence[int]) -> str:
    """`trials 1, 2` or `trial 1`."""
    return f"trial{'s' if len(trials) > 1 else ''} {', '.join(map(str, trials))}"
