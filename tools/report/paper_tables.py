"""README's tables of the paper's experiments: sinusoids and features, from the lines that docs/results.md shows too."""

from pathlib import Path
from typing import Any

from metafun.config import load_config
from metafun.paper.published import published

from .cells import interval_cell, mean_std, record_cell, record_seconds, seconds_cell
from .markdown import table, without_empty_columns
from .paper_rows import PaperRow, paper_rows, row_command
from .records import current_command, published_cell, read_records

ERRORS = ("mse_5shot", "mse_10shot")


def render_sinusoid(results: Path) -> str:
    """MetaFun on sinusoids: the demo and the rows of Table 1."""
    columns = ("run", "seeds", "5-shot", "10-shot", "the paper, 5-shot", "10-shot", "GPU seconds")
    paper = [row for row in paper_rows("table1", results) if row.uses("sinusoid")]
    return table(columns, [*map(_sinusoid_record, read_records(results / "demo.jsonl")), *map(_sinusoid_row, paper)])


def render_features(results: Path) -> str:
    """Few-shot classification of features by the paper's protocol: the rows of Table 2 that can be measured."""
    shots = ("1-shot, %", "95 % interval", "the paper", "5-shot, %", "95 % interval", "the paper")
    columns = ("", *shots, "seeds", "GPU seconds")
    rows = (row for row in paper_rows("table2", results) if row.row.cells and not row.row.why)
    return table(*without_empty_columns(columns, [*map(_features_row, rows)]))


def render_calibration(results: Path) -> str:
    """Calibration error of classifiers of features, one row per recorded run of the protocol."""
    return table(
        ("run", "calibration error", "log-likelihood"),
        (_calibration_row(record) for record in read_records(results / "calibration.jsonl")),
    )


def _sinusoid_row(row: PaperRow) -> tuple[str, ...]:
    preset = row.row.cells[0].preset
    # Our training has no row in the paper; MetaFun with the paper's training is what to compare it with.
    paper = published({"config": load_config(preset).to_toml(), "run": preset})
    return (
        row_command(row, "table1"),
        _seeds(row),
        *(cell.value(percent=False) for cell in row.cells),
        *(published_cell(paper.get(metric), 3) for metric in ERRORS),
        _row_seconds(row),
    )


def _sinusoid_record(record: dict[str, Any]) -> tuple[str, ...]:
    paper = published(record)
    return (
        current_command(record),
        str(len(record["seeds"])),
        *(record_cell(record, metric) for metric in ERRORS),
        *(published_cell(paper.get(metric), 3) for metric in ERRORS),
        record_seconds(record),
    )


def _features_row(row: PaperRow) -> tuple[str, ...]:
    cells = [
        text
        for cell in row.cells
        for text in (cell.value(True), _with_sign(interval_cell(cell.lines, True)), published_cell(cell.published, 2))
    ]
    return (row.row.name, *cells, _seeds(row), _row_seconds(row))


def _calibration_row(record: dict[str, Any]) -> tuple[str, ...]:
    metrics = {name.rsplit("_", 2)[0]: value for name, value in record["metrics"].items()}
    return (
        current_command(record),
        *(mean_std(metrics[name]["seeds"], 3) for name in ("ece", "log_likelihood")),
    )


def _row_seconds(row: PaperRow) -> str:
    """Seconds of each training of a row; cells may share one."""
    lines = {line.job: line for line in row.lines}
    return ", ".join(filter(None, (seconds_cell(each.seconds, each.beside, each.device) for each in lines.values())))


def _seeds(row: PaperRow) -> str:
    counts = dict.fromkeys(str(len(cell.lines)) for cell in row.cells if cell.lines)
    return ", ".join(counts)


def _with_sign(interval: str) -> str:
    return f"± {interval}" if interval else ""
