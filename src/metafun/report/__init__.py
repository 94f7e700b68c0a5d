"""Renders what was measured: the tables in our pages come from results/*.jsonl and are never typed.

`metafun report` rewrites the tables in README.md and docs/.
"""

from pathlib import Path

from .classification import render_choices, render_features, render_image_speed, render_images
from .estimators import render_by_set, render_estimators, render_shipped, render_table_limits, render_tables
from .lines import number, published
from .regression import (
    render_ceiling,
    render_contexts,
    render_curves,
    render_limits,
    render_processes,
    render_sinusoid,
)

__all__ = ["PAGES", "TABLES", "number", "published", "rendered"]

TABLES = {
    "sinusoid": render_sinusoid,
    "features": render_features,
    "processes": render_processes,
    "curves": render_curves,
    "limits": render_limits,
    "contexts": render_contexts,
    "ceiling": render_ceiling,
    "choices": render_choices,
    "shipped": render_shipped,
    "estimators": render_estimators,
    "images": render_images,
    "image-speed": render_image_speed,
    "tables": render_tables,
    "tables-by-set": render_by_set,
    "table-limits": render_table_limits,
}
PAGES = (
    "README.md",
    "docs/deviations.md",
    "docs/estimators.md",
    "docs/uncertainty.md",
    "docs/images.md",
    "docs/tables.md",
)


def rendered(page: str, results: Path) -> str:
    """The page with each of its tables between its two marks."""
    for name, render in TABLES.items():
        start, end = f"<!-- results: {name} -->\n", "<!-- /results -->\n"
        if start not in page:
            continue
        before, rest = page.split(start)
        page = before + start + "\n" + render(results) + "\n" + end + rest.split(end, 1)[1]
    return page
