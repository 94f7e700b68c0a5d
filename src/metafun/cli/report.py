"""metafun report: pages from results."""

from pathlib import Path
from typing import Annotated

import typer

from .. import report as pages
from ..errors import InvalidResults
from ..paper import Results, load_item
from ..paper.page import render
from .console import app, err, out


@app.command()
def report(
    results: Annotated[Path, typer.Option("--results", help="Folder of results.")] = Path("results"),
    page: Annotated[Path, typer.Option("--out", help="The page with the paper's tables.")] = Path("docs/results.md"),
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail if a page is not up to date.")] = False,
) -> None:
    """Render what was measured: the paper's tables beside ours, and the tables in this project's pages.

    Examples:

      metafun report

      metafun report --results /tmp/smoke --out /tmp/smoke/results.md
    """
    if not check:
        _draw(results)
    texts = {page: render(results, page)} if (results / "paper.jsonl").exists() else {}
    for other in map(Path, pages.PAGES):
        # Only in the project's own folder; elsewhere there is just the one page.
        if other.is_file() and results.resolve() == Path("results").resolve():
            texts[other] = pages.rendered(other.read_text("utf-8"), results)
    if not texts:
        raise InvalidResults(f"{results} has no paper.jsonl; metafun reproduce table1 --results {results} makes one.")
    stale = [path for path, text in texts.items() if not path.is_file() or path.read_text("utf-8") != text]
    if check:
        if stale:
            raise InvalidResults(f"{', '.join(map(str, stale))} differs from what metafun report makes; run it.")
        err.print("all pages are up to date")
        return
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        out.print(str(path))


def _draw(results: Path) -> None:
    """The figure that is made of numbers alone."""
    item, found = load_item("figure5"), Results(results)
    values = {
        row.name: [
            [line.value for line in found.latest("figure5", row.name, column) if line.value is not None]
            for column in item.columns
        ]
        for row in item.rows
    }
    whole = {name: curve for name, curve in values.items() if all(curve)}
    if whole:
        from ..plots.iterations import plot_iterations

        for suffix in (".png", ".svg"):
            plot_iterations(whole, results / f"figure5{suffix}")
