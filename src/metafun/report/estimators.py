"""What the estimators are worth, those of any table among them."""

from collections.abc import Mapping
from pathlib import Path

from .lines import records

# What is said of a shipped checkpoint.
WORTH = ("mse", "accuracy", "log_likelihood", "oracle_log_likelihood", "coverage95", "ece")


def render_shipped(results: Path) -> str:
    """What the shipped checkpoints are worth."""
    lines = ["| checkpoint | measured over 10,000 test tasks |", "|---|---|"]
    for record in records(results / "shipped.jsonl"):
        metrics = record["metrics"].items()
        worth = ", ".join(f"{name} {value['mean']:.5f}" for name, value in metrics if name.startswith(WORTH))
        lines.append(f"| `{record['checkpoint']}` | {worth} |")
    return "\n".join(lines) + "\n"


def render_estimators(results: Path) -> str:
    """Ratios and memory, as the last run of scripts/estimator_speed.py found them."""
    found = records(results / "estimators.jsonl")[-1]
    names = {
        "fit_and_predict_over_logistic_regression": "fit + predict over LogisticRegression, 5-way 5-shot, 75 queries",
        "million_targets_megabytes": "megabytes for a million predictions from 100 points",
        "programs": "programs compiled for them",
        "import_metafun_over_jax": "`import metafun` over `import jax`",
        "import_and_use_over_jax": "the same, with the first model",
    }
    return "\n".join(_measured(found, names, 3)) + "\n"


def render_tables(results: Path) -> str:
    """Small tables: the means over four sets with classes, and one with numbers."""
    from ..bench.tables import CLASSIFICATION, REGRESSION, read, summary  # scikit-learn is slow to import

    found = summary(read(results / "tables.jsonl"))
    columns = {
        "classification": [
            *(f"accuracy_{n}" for n in CLASSIFICATION),
            *(f"log_likelihood_{n}" for n in (2, 5)),
            "ece_5",
        ],
        "regression": [*(f"r2_{n}" for n in REGRESSION), "log_likelihood_32"],
    }
    parts = []
    for problem, metrics in columns.items():
        names = (name.replace("_", " ").replace("r2", "R²").replace("ece", "ECE") for name in metrics)
        lines = [f"| {problem} | {' | '.join(names)} |", "|---" * (1 + len(metrics)) + "|"]
        for model, values in found.get(problem, {}).items():
            lines.append(f"| {model} | {' | '.join(f'{values[m]:.3f}' if m in values else '' for m in metrics)} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def render_by_set(results: Path) -> str:
    """Where it wins and where it loses: accuracy (or R²) on each set beside the best of the others, tuned or not."""
    from ..bench.tables import OURS, SETS, read, worth

    cells = {(cell.data, cell.size, cell.model): worth(cell) for cell in read(results / "tables.jsonl")}
    lines = ["| set | rows | MetaFun | best of the others | |", "|---|---|---|---|---|"]
    for data, chosen in SETS.items():
        metric = "accuracy" if chosen.problem == "classification" else "r2"
        for size in chosen.sizes:
            here = {model: found[metric] for (d, s, model), found in cells.items() if (d, s) == (data, size)}
            ours = here.pop(OURS, None)
            if ours is None or not here:
                continue
            best = max(here, key=lambda model: here[model])
            rows = f"{size} of each class" if metric == "accuracy" else f"{size}"
            lines.append(f"| {data.replace('_', ' ')} | {rows} | {ours:.3f} | {here[best]:.3f} | {best} |")
    return "\n".join(lines) + "\n"


def render_table_limits(results: Path) -> str:
    """What scripts/table_limits.py found last."""
    found = records(results / "table-limits.jsonl")[-1]
    names = {
        "columns_in_another_order_probability": "most that a probability moves with the columns in another order",
        "columns_in_another_order_deviations": "most that a mean moves, in deviations of y",
        "columns_in_another_order_two_rows_probability": "the same probability with two rows, where all columns tie",
        "columns_in_another_order_two_rows_deviations": "the same mean with two rows",
        "columns_in_another_order_two_values_probability": "with columns of two values, where many do",
        "fit_and_predict_over_random_forest": "fit + predict over RandomForestClassifier, 100 rows, 10 columns",
        "fit_and_predict_over_logistic_regression": "fit + predict over LogisticRegression",
    }
    lines = _measured(found, names, 2)
    for key, what in (("rows", "on digits"), ("rows_together", "where x₀x₁ > 0, of six columns,")):
        for n, scores in found[key].items():
            both = ", ".join(f"{score:.3f} {name}" for name, score in scores.items())
            lines.append(f"| accuracy {what} with {n} rows in all | {both} |")
    return "\n".join(lines) + "\n"


def _measured(found: Mapping[str, float], names: Mapping[str, str], digits: int) -> list[str]:
    """A line for each number that was found, with what it is in words."""
    return ["| | measured |", "|---|---|", *(f"| {text} | {found[name]:.{digits}g} |" for name, text in names.items())]
