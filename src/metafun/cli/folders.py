"""`metafun predict` on a folder of CSV and Parquet files."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from ..data.table import counted
from ..errors import InvalidConfig
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


Out = Annotated[
    Path | None,
    typer.Option(
        "--out", help="File to write; for a folder of tables, a folder.", show_default="predictions.csv; predictions"
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file, or all files of the folder.")]


@dataclass(frozen=True)
class PredictOptions(ContextOptions):
    """The options of `predict` but those that say what to show."""

    out_path: Out = None
    workers: Workers = None
    scheduler: Scheduler = None
    overwrite: Overwrite = False

    def refuse_workers(self) -> None:
        """InvalidConfig if there are options that only apply to folders of tables."""
        if self.workers is not None or self.scheduler is not None:
            raise InvalidConfig("--workers and --scheduler are for a folder of tables, not for one file or for images.")


def predict_folder(
    options: PredictOptions, folder: Path, labels: list[str], quantiles: list[float], as_json: bool
) -> None:
    """Predicts the files of a folder, and says what became of them.

    Args:
        options: model, context and where to write.
        folder: the files.
        labels: columns to predict.
        quantiles: quantiles of numbers too.
        as_json: print JSON instead of a sentence.
    """
    from ..estimators.files import fit_context
    from ..estimators.predict_files import FilePredictor
    from ..estimators.predict_folder import FolderPlan, engine_for, require_all, watched

    trained, out_folder = open_trained(options.model), options.out_path or Path("predictions")
    with shown_notes() as notes:
        known = options.read(trained, notes, labels)
        predictor = FilePredictor(fit_context(trained, known, notes), known.labels, quantiles, known.task)
        plan = FolderPlan.of(predictor, folder, out_folder, notes)
    results = []
    try:
        with engine_for(options.workers, options.scheduler) as engine, plan.opened(options.overwrite) as left:
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
        done = f"{out_folder}: {rows:,} rows in {counted(len(results) - len(failed), 'files')}"
        out.print(f"{done} from {len(known.x):,} labelled ones" + (f"; {before:,} were finished" if before else ""))
    require_all(results)
