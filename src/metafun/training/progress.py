"""Training with a progress bar on a terminal, and a line for each validation elsewhere."""

import contextlib
import signal
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..data.table import counted
from .run import Run
from .session import ChunkMetrics, SessionRecord
from .stability import describe_break_aways


def train(run: Run, console: Console, title: str = "training", first_line: str | None = None) -> None:
    """Trains a run to its end, or until Ctrl-C, which stops it after the current chunk; the arguments of `watched`."""
    with stop_signal(console) as stopped:
        for metrics in watched(run, console, title, first_line):
            if stopped.is_set() and metrics.record.step < run.config.training.end:
                raise KeyboardInterrupt(f"stopped at step {metrics.record.step}; continue with --resume.")


def watched(
    run: Run, console: Console, title: str = "training", first_line: str | None = None
) -> Generator[ChunkMetrics, None, None]:
    """Trains the run, shows progress on the console and yields after every chunk.

    Args:
        run: the run.
        console: shows progress.
        title: what this training is for, in the progress bar.
        first_line: what is trained; default: the folder, the settings and the tasks of the run.
    """
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[validated]}{task.fields[rate]} tasks/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    training, variants = run.experiment.training, len(run.experiment.variants)
    what = f"{training.end:,} steps, {counted(len(training.seeds), 'seeds')}"
    what += f" of {variants} variants" if variants > 1 else ""
    console.print(escape(first_line or f"{run.path}: {title}, {what}, on {run.experiment.tasks.trained_on}"))
    metrics = None
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=training.end, loss="…", rate="compiling, …", validated="")
        for metrics in run.train():
            loss, rate = f"{np.nanmean(metrics.loss):.4f}", f"{metrics.tasks_per_second:,.0f}"
            bar.update(task, completed=metrics.record.step, loss=loss, rate=rate)
            if metrics.metrics:
                bar.update(task, validated=f"validation {describe_metrics(metrics.metrics)}  ")
                if not console.is_terminal:
                    words = describe_metrics(metrics.metrics)
                    console.print(f"step {metrics.record.step}: loss {loss}, validation {words}")
            yield metrics
    if metrics is not None and metrics.record.stopped_early:
        console.print(_early_stop(run, metrics.record))
    seeds = training.seeds * variants
    if note := describe_break_aways(seeds, run.folder.stability().steps or [None] * len(seeds)):
        console.print(escape(f"warning: {note}"))


def describe_metrics(metrics: Mapping[str, float]) -> str:
    """Validation metrics in words.

    Args:
        metrics: means by name: accuracy of a classifier; mse and perhaps log_likelihood of a regressor.
    """
    if "accuracy" in metrics:
        return f"accuracy {100 * metrics['accuracy']:.1f} %"
    words = [f"RMSE {np.sqrt(metrics['mse']):.4g}"]
    if "log_likelihood" in metrics:
        words.append(f"log-likelihood {metrics['log_likelihood']:.4f}")
    return ", ".join(words)


def _early_stop(run: Run, record: SessionRecord) -> str:
    patience, end = run.config.training.patience, run.config.training.end
    return (
        f"stopped early at step {record.step:,} of {end:,}: {patience} validations in a row were no better than "
        f"that of step {max(record.best_step):,}, which is kept (training.patience = {patience})"
    )


@contextlib.contextmanager
def stop_signal(
    console: Console, signals: Sequence[int] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, since an exception inside JAX's callbacks would be lost. A second Ctrl-C raises.

    Args:
        console: says what Ctrl-C does.
        signals: the signals that set the event.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(signum: int, frame: Any) -> None:
        stopped.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        console.print("stopping after this chunk of steps; Ctrl-C again stops at once")

    previous = {number: signal.signal(number, stop) for number in signals}
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
