"""Training with a progress bar on a terminal, and a line for each validation elsewhere."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..data.table import counted
from .run import Run
from .session import ChunkMetrics
from .stability import describe_break_aways


def train(run: Run, console: Console, title: str = "training") -> None:
    """Trains a run to its end, or until Ctrl-C, which stops it after the current chunk.

    Args:
        run: the run.
        console: shows progress.
        title: what this training is for, in the progress bar.
    """
    with stop_signal(console) as stopped:
        for metrics in watched(run, console, title):
            if stopped.is_set() and metrics.record.step < run.config.training.end:
                raise KeyboardInterrupt(f"stopped at step {metrics.record.step}; continue with --resume.")


def watched(run: Run, console: Console, title: str = "training") -> Iterator[ChunkMetrics]:
    """Trains the run, shows progress on the console and yields after every chunk. Arguments as in `train`."""
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[rate]} tasks/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    training, variants = run.experiment.training, len(run.experiment.variants)
    what = f"{training.end:,} steps, {counted(len(training.seeds), 'seeds')}"
    what += f" of {variants} variants" if variants > 1 else ""
    console.print(escape(f"{run.path}: {title}, {what}, on {run.experiment.tasks.trained_on}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=training.end, loss="…", rate="compiling, …")
        for metrics in run.train():
            loss, rate = f"{np.nanmean(metrics.loss):.4f}", f"{metrics.tasks_per_second:,.0f}"
            bar.update(task, completed=metrics.record.step, loss=loss, rate=rate)
            if metrics.validation is not None and not console.is_terminal:
                error = np.nanmean(metrics.validation)
                console.print(f"step {metrics.record.step}: loss {loss}, validation error {error:.5f}")
            yield metrics
    seeds = training.seeds * variants
    if note := describe_break_aways(seeds, run.folder.stability().steps or [None] * len(seeds)):
        console.print(escape(f"warning: {note}"))


@contextlib.contextmanager
def stop_signal(console: Console) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, since an exception inside JAX's callbacks would be lost. A second Ctrl-C raises."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(signum: int, frame: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.print("stopping after this chunk of steps; Ctrl-C again stops at once")

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
