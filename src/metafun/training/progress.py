"""A training that can be watched: a bar on a terminal, a line for each validation elsewhere."""

from collections.abc import Iterator

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ..data.table import counted
from .run_folder import ChunkMetrics, Run


def watched(run: Run, console: Console, title: str = "training") -> Iterator[ChunkMetrics]:
    """Trains the run, and shows how far it is."""
    columns = (
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}  {task.fields[rate]} tasks/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    end, seeds, variants = run.config.training.end, len(run.config.training.seeds), len(run.config.variants())
    what = f"{end:,} steps, {counted(seeds, 'seeds')}" + (f" of {variants} variants" if variants > 1 else "")
    console.print(escape(f"{run.path}: {title}, {what}, on {run.config.tasks.trained_on}"))
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=end, loss="…", rate="compiling, …")
        for report in run.train():
            loss, rate = f"{np.nanmean(report.loss):.4f}", f"{report.tasks_per_second:,.0f}"
            bar.update(task, completed=report.record.step, loss=loss, rate=rate)
            if report.validation is not None and not console.is_terminal:
                error = np.nanmean(report.validation)
                console.print(f"step {report.record.step}: loss {loss}, validation error {error:.5f}")
            yield report
