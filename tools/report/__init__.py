"""Renders the tables and values of README.md and docs/ from results/*.jsonl. They are never typed by hand.

`python -m tools.report` rewrites the pages. `--check` only compares them, and fails on a claim that the results do not
support, on a number that no result stands behind, and on a line of results that lacks what is needed to repeat it.
"""

from pathlib import Path

from .classification import render_image_speed, render_images, render_training_choices
from .collection_benchmark import render_collection_benchmark
from .comparisons import render_comparison, render_short_comparison
from .estimators import (
    render_shipped,
    render_speed,
    render_table_benchmark,
    render_table_benchmark_by_set,
    render_table_limits,
)
from .feature_benchmark import render_feature_benchmark
from .paper_tables import render_calibration, render_features, render_sinusoid
from .regression import (
    render_by_context,
    render_curves,
    render_gp_ceiling,
    render_gp_limits,
    render_processes,
    render_series,
)
from .soak import render_memory, render_soak
from .speed import render_speed_benchmark
from .values import render_values

__all__ = ["PAGES", "TABLES", "render_page"]

# By the name in a page's marker, `<!-- results: NAME -->`.
TABLES = {
    "short-comparison": render_short_comparison,
    "comparison": render_comparison,
    "sinusoid": render_sinusoid,
    "features": render_features,
    "feature-benchmark": render_feature_benchmark,
    "collection-benchmark": render_collection_benchmark,
    "calibration": render_calibration,
    "processes": render_processes,
    "curves": render_curves,
    "series": render_series,
    "limits": render_gp_limits,
    "contexts": render_by_context,
    "ceiling": render_gp_ceiling,
    "choices": render_training_choices,
    "shipped": render_shipped,
    "estimators": render_speed,
    "images": render_images,
    "image-speed": render_image_speed,
    "tables": render_table_benchmark,
    "tables-by-set": render_table_benchmark_by_set,
    "table-limits": render_table_limits,
    "soak": render_soak,
    "memory": render_memory,
    "speed-benchmark": render_speed_benchmark,
}
PAGES = (
    "README.md",
    "docs/collections.md",
    "docs/deviations.md",
    "docs/estimators.md",
    "docs/features.md",
    "docs/measured.md",
    "docs/speed.md",
    "docs/uncertainty.md",
    "docs/images.md",
    "docs/tables.md",
    "docs/which.md",
    "docs/threat-model.md",
)


def render_page(page: str, results: Path) -> str:
    """The page with every table and value between its markers rendered anew.

    Args:
        page: the page's Markdown text.
        results: the folder of the .jsonl files.
    """
    for name, render in TABLES.items():
        start, end = f"<!-- results: {name} -->\n", "<!-- /results -->\n"
        if start not in page:
            continue
        before, rest = page.split(start)
        page = before + start + "\n" + render(results) + "\n" + end + rest.split(end, 1)[1]
    return render_values(page, results)
