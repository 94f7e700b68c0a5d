"""Tables about the estimators and the models for small tables."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from metafun.bench.contenders import METAFUN
from metafun.bench.datasets import CLASS_SIZES, ROW_COUNTS, SETS
from metafun.bench.results import mean_metrics, read_cells, summary

from .cells import mean_std
from .markdown import table
from .records import read_records

# The metrics of a shipped checkpoint, by the beginnings of their names.
SHIPPED_METRICS = ("mse", "accuracy", "log_likelihood", "oracle_log_likelihood", "coverage95", "ece")


def render_shipped(results: Path) -> str:
    """The metrics of the shipped checkpoints."""
    rows = []
    for record in read_records(results / "shipped.jsonl"):
        metrics = {name: value for name, value in record["metrics"].items() if name.startswith(SHIPPED_METRICS)}
        shown = (f"{name} {mean_std([value['mean']])}" for name, value in metrics.items())
        rows.append((f"`{record['checkpoint']}`", ", ".join(shown)))
    return table(("checkpoint", "measured over 10,000 test tasks"), rows)


def render_speed(results: Path) -> str:
    """Ratios of time, and memory, from the last run of scripts/estimator_speed.py."""
    names = {
        "fit_and_predict_over_logistic_regression": "fit + predict over LogisticRegression, 5-way 5-shot, 75 queries",
        "million_targets_megabytes": "megabytes for a million predictions from 100 points",
        "programs": "programs compiled for them",
        "import_metafun_over_jax": "`import metafun` over `import jax`",
        "import_and_use_over_jax": "the same, with the first model",
    }
    return _measured(_numbers(read_records(results / "estimators.jsonl")[-1], names, 3))


def render_table_benchmark(results: Path) -> str:
    """Small tables: mean metrics over the four classification sets, and those of the regression set."""
    found = summary(read_cells(results / "tables.jsonl"))
    columns = {
        "classification": [
            *(f"accuracy_{n}" for n in CLASS_SIZES),
            *(f"log_likelihood_{n}" for n in (2, 5)),
            "ece_5",
        ],
        "regression": [*(f"r2_{n}" for n in ROW_COUNTS), "log_likelihood_32"],
    }
    parts = []
    for problem, metrics in columns.items():
        names = (name.replace("_", " ").replace("r2", "R²").replace("ece", "ECE") for name in metrics)
        rows = [
            (model, *(f"{values[m]:.3f}" if m in values else "" for m in metrics))
            for model, values in found.get(problem, {}).items()
        ]
        parts.append(table((problem, *names), rows))
    return "\n".join(parts)


def render_table_benchmark_by_set(results: Path) -> str:
    """MetaFun's accuracy (or R²) on each set beside the best of the other models, tuned or not."""
    cells = {(cell.data, cell.size, cell.model): mean_metrics(cell) for cell in read_cells(results / "tables.jsonl")}
    rows = []
    for data, table_set in SETS.items():
        metric = "accuracy" if table_set.problem == "classification" else "r2"
        for size in table_set.sizes:
            scores = {model: found[metric] for (d, s, model), found in cells.items() if (d, s) == (data, size)}
            ours = scores.pop(METAFUN, None)
            if ours is None or not scores:
                continue
            best = max(scores, key=lambda model: scores[model])
            count = f"{size} per class" if metric == "accuracy" else f"{size}"
            rows.append((data.replace("_", " "), count, f"{ours:.3f}", f"{scores[best]:.3f}", best))
    return table(("set", "rows", METAFUN, "best other model", ""), rows)


def render_table_limits(results: Path) -> str:
    """The last run of scripts/table_limits.py."""
    found = read_records(results / "table-limits.jsonl")[-1]
    names = {
        "columns_in_another_order_probability": "largest change of a probability when the columns are reordered",
        "columns_in_another_order_deviations": "largest change of a mean, in standard deviations of y",
        "columns_in_another_order_two_rows_probability": "the same for probabilities with two rows: all columns tie",
        "columns_in_another_order_two_rows_deviations": "the same for means with two rows",
        "columns_in_another_order_two_values_probability": "the same for probabilities with binary columns: many tie",
        "fit_and_predict_over_random_forest": "fit + predict over RandomForestClassifier, 100 rows, 10 columns",
        "fit_and_predict_over_logistic_regression": "fit + predict over LogisticRegression",
        "fit_and_predict_wide_over_random_forest": "with 20 columns, and so with trees, over RandomForestClassifier",
        "fit_and_predict_wide_over_logistic_regression": "with 20 columns, and so with trees, over LogisticRegression",
    }
    rows = _numbers(found, names, 2)
    for key, problem in (("rows", "on digits"), ("rows_together", "on sign(x₀x₁), six columns,")):
        for n, scores in found[key].items():
            accuracies = ", ".join(f"{score:.3f} {name}" for name, score in scores.items())
            rows.append((f"accuracy {problem} with {n} rows in all", accuracies))
    return _measured(rows)


def _numbers(found: Mapping[str, float], names: Mapping[str, str], digits: int) -> list[tuple[str, str]]:
    """The description and the rounded value of each of `names`."""
    return [(text, f"{found[name]:.{digits}g}") for name, text in names.items()]


def _measured(rows: Iterable[tuple[str, str]]) -> str:
    return table(("", "measured"), rows)
