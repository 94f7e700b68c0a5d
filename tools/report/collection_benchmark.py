"""The benchmark on collections of tasks: who wins, a table for each number of context points, and the figure."""

from collections.abc import Sequence
from pathlib import Path

from metafun.bench.collection_methods import FOREST_GP, META_FIT, METHODS
from metafun.bench.collection_results import CollectionCell, compare, in_order, read_collection_cells

from .cells import MISSING
from .markdown import table


def render_collection_benchmark(results: Path) -> str:
    """The comparison in words, every method on every collection, and the figure if there is one."""
    cells = in_order(newest_cells(results))
    if not cells:
        return f"The benchmark is {MISSING}.\n"
    parts = [f"{comparison}\n" for comparison in compare(cells)]
    for points in sorted({cell.points for cell in cells}):
        parts.append(_by_collection(points, [cell for cell in cells if cell.points == points]))
    if (results / "collections.png").exists():
        parts.append("![RMSE of each method on each collection](../results/collections.png)\n")
    return "\n".join(parts)


def newest_cells(results: Path) -> list[CollectionCell]:
    """The cells of every collection as it was when it was last measured.

    Args:
        results: the folder with collections.jsonl, whose last lines are the newest.
    """
    cells = read_collection_cells(results / "collections.jsonl")
    newest = {cell.data: cell.fingerprint for cell in cells}
    return [cell for cell in cells if cell.fingerprint == newest[cell.data]]


def _by_collection(points: int, cells: Sequence[CollectionCell]) -> str:
    """RMSE of each method, and what else there is to know of `meta_fit`, with one number of context points."""
    found = {(cell.data, cell.method): cell for cell in cells}
    rows = []
    for data in dict.fromkeys(cell.data for cell in cells):
        errors = [_value(found.get((data, method)), "rmse") for method in METHODS]
        ours, simple = found.get((data, META_FIT)), found.get((data, FOREST_GP))
        likelihoods = [_value(cell, "log_likelihood") for cell in (ours, simple)]
        tasks = next(cell.tasks for cell in cells if cell.data == data)
        seconds = "" if ours is None else f"{ours.seconds:.0f}"
        rows.append((data.replace("_", " "), f"{tasks:,}", *errors, *likelihoods, _coverage(ours), seconds))
    columns = ("", "tasks", *METHODS, f"log-likelihood, {META_FIT}", FOREST_GP, "95 % coverage", "seconds")
    splits = " or ".join(dict.fromkeys(str(len(cell.seeds)) for cell in cells))
    about = (
        f"**{points} context points**: RMSE / standard deviation of y, mean over {splits} splits; then log-likelihood."
    )
    return f"{about}\n\n{table(columns, rows)}"


def _value(cell: CollectionCell | None, metric: str) -> str:
    return MISSING if cell is None else f"{cell.mean(metric):.3f}"


def _coverage(cell: CollectionCell | None) -> str:
    return MISSING if cell is None else f"{100 * cell.mean('coverage'):.1f} %"
