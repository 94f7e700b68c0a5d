"""`metafun predict` on a folder of CSV and Parquet files."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..data.table import counted
from ..estimators.trained import open_trained
from .console import err, out
from .contexts import ContextOptions, shown_notes

Workers = Annotated[
    int | None,
    typer.Option("--workers", min=1, help="Processes for a folder of tables, with Dask.", show_default="this one"),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="A Dask cluster that runs already, for a folder of tables; it must see the folders too.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class FolderOptions:
    """The options of `predict` for a folder of tables."""

    folder: Path
    out: Path
    workers: int | None
    scheduler: str | None
    overwrite: bool


def predict_folder(
    options: ContextOptions, given: FolderOptions, labels: list[str], quantiles: list[float], as_json: bool
) -> None:
    """Predicts the files of a folder, and says what became of them."""
    from ..estimators.files import fit_context
    from ..estimators.predict_files import FilePredictor
    from ..estimators.predict_folder import FolderPlan, engine_for, require_all, watched

    trained = open_trained(options.model)
    with shown_notes() as notes:
        known = options.read(trained, notes, labels)
        predictor = FilePredictor(fit_context(trained, known, notes), known.labels, quantiles, known.task)
        plan = FolderPlan.of(predictor, given.folder, given.out, notes)
    results = []
    try:
        with engine_for(given.workers, given.scheduler) as engine, plan.opened(given.overwrite) as left:
            for result in watched(len(left), engine(predictor, left), err):
                results.append(result)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped after {len(results):,} files; the same command predicts the rest.") from None
    rows, before = sum(result.rows for result in results), len(plan.names) - len(left)
    failed = {str(result.path): result.problem for result in results if result.problem is not None}
    if as_json:
        predicted = [str(result.path) for result in results if result.problem is None]
        print(json.dumps({"rows": rows, "predicted": predicted, "failed": failed, "finished_before": before}))
    else:
        done = f"{given.out}: {rows:,} rows in {counted(len(results) - len(failed), 'files')}"
        out.print(f"{done} from {len(known.x):,} labelled ones" + (f"; {before:,} were finished" if before else ""))
    require_all(results)
