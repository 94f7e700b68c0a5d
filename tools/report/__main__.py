"""python -m tools.report: renders the pages from the results."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from metafun.errors import InvalidResults, MetaFunError
from metafun.paper import Results, load_item

from . import PAGES, render_page
from .check import check_repository
from .paper_page import render_paper_page


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit code: 0, or 2 after a message.

    Args:
        arguments: the command line's arguments; those of the process by default.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.report", description="Render the pages from the results.")
    parser.add_argument("--results", type=Path, default=Path("results"), help="folder of results")
    parser.add_argument("--out", type=Path, default=Path("docs/results.md"), help="page for the paper's tables")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; fail if a page or a number is not what the results say"
    )
    options = parser.parse_args(arguments)
    try:
        if options.check:
            _check(options.results, options.out)
            print("all pages are up to date", file=sys.stderr)
        else:
            _draw_figure5(options.results)
            _write(_pages(options.results, options.out))
    except (MetaFunError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _pages(results: Path, paper_page: Path) -> dict[Path, str]:
    """The rendered text of each page: the paper's tables, and with the repository's own results its other pages."""
    pages = {paper_page: render_paper_page(results, paper_page)} if (results / "paper.jsonl").exists() else {}
    for page in map(Path, PAGES):
        if page.is_file() and results.resolve() == Path("results").resolve():
            pages[page] = render_page(page.read_text("utf-8"), results)
    if not pages:
        raise InvalidResults(f"{results} has no paper.jsonl; metafun reproduce table1 --results {results} makes one.")
    return pages


def _check(results: Path, paper_page: Path) -> None:
    pages = _pages(results, paper_page)
    stale = [str(path) for path, text in pages.items() if not path.is_file() or path.read_text("utf-8") != text]
    if stale:
        raise InvalidResults(f"out of date: {', '.join(stale)}; run python -m tools.report.")
    if results.resolve() == Path("results").resolve():
        check_repository(Path())


def _write(pages: dict[Path, str]) -> None:
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8", newline="\n")
        print(path)


def _draw_figure5(results: Path) -> None:
    """The one figure of the paper that needs no trained model, only recorded numbers."""
    item, found = load_item("figure5"), Results(results)
    values = {
        row.name: [
            [line.value for line in found.latest("figure5", row.name, column) if line.value is not None]
            for column in item.columns
        ]
        for row in item.rows
    }
    complete = {name: curve for name, curve in values.items() if all(curve)}
    if complete:
        from metafun.plots.iterations import plot_iterations

        for suffix in (".png", ".svg"):
            plot_iterations(complete, results / f"figure5{suffix}")


if __name__ == "__main__":
    sys.exit(main())
