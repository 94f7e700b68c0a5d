"""metafun fit | predict | export: a user's files in, predictions out."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.markup import escape

from ..config import parse_setting
from ..data.csv_columns import write_csv
from ..errors import InvalidConfig
from ..estimators.trained import SHIPPED, open_trained
from ..training.progress import train
from .console import AsJson, app, err, out
from .options import Settings

# scikit-learn is slow to import; the other commands do not need it.
if TYPE_CHECKING:
    from ..estimators.files import Notes

Model = Annotated[
    str, typer.Option("--model", help=f"A shipped checkpoint ({', '.join(SHIPPED)}), a run folder or a file.")
]
Context = Annotated[
    Path,
    typer.Option("--context", help="The labelled rows: a CSV file, or a folder with a subfolder of images per class."),
]
Target = Annotated[Path, typer.Option("--target", help="The rows to predict: a CSV file, or a folder of images.")]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="COLUMN",
        help="Column of the labels in the context; default: the model's target, or else the last column.",
        show_default=False,
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task", metavar="COLUMN", help="Regression: the column that names each row's task.", show_default=False
    ),
]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Training steps.", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the training and of the held-out tasks or classes.")]


@app.command()
def fit(
    path: Annotated[Path, typer.Argument(metavar="CSV_OR_NPZ", help="The tasks or classes to learn from.")],
    target: Annotated[str, typer.Option("--target", metavar="COLUMN", help="The column to predict.")],
    task: Task = None,
    model: Annotated[Path, typer.Option("--out", help="File to write the model to.")] = Path("model.safetensors"),
    steps: Steps = None,
    settings: Settings = None,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model.")] = False,
) -> None:
    """Meta-train a model on a file of yours.

    Classification: the target is the class of each row, and the model learns to distinguish classes that it has not
    seen. Regression: rows belong to tasks, and the model learns to predict a new task from a few of its rows. Some
    classes or tasks are held out, and validation on them decides when to stop. Press Ctrl-C at any time; the same
    command resumes.

    Examples:

      metafun fit features.csv --target species --out species.safetensors

      metafun fit sensors.csv --target temperature --task sensor --out sensors.safetensors

      metafun fit arrays.npz --target y            # X [rows, columns] and y [rows]
    """
    from ..estimators.files import read_training_data
    from ..estimators.meta_fit import held_out_result, open_training, remove_training, run_settings

    folder = _training_folder(model, overwrite)
    changes = run_settings(steps, seed, dict(map(parse_setting, settings or ())))
    with _shown_notes() as notes:
        data, columns = read_training_data(path, target, task, seed, notes)
    if overwrite:
        remove_training(folder)
    run = open_training(folder, data.table, data.config(changes))
    try:
        train(run, err)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command resumes from there.") from None
    open_trained(run.path).save(model, record={"columns": columns, "target": target})
    err.print(escape(f"{model}: {held_out_result(run)}. Next: metafun predict --model {model} --context … --target …"))


@app.command()
def predict(
    model: Model,
    context: Context,
    target: Target,
    label: Label = None,
    predictions: Annotated[Path, typer.Option("--out", help="File to write.")] = Path("predictions.csv"),
    as_json: AsJson = False,
) -> None:
    """Predict rows from a few labelled ones, with uncertainty or probabilities.

    Columns are matched by name. Predictions are written beside the columns of the target file.

    Examples:

      metafun predict --model gp-rbf --context labelled.csv --target unlabelled.csv

      metafun predict --model species.safetensors --context five.csv --target rest.csv --label species --json

      metafun predict --model tables-classification --context labelled.csv --target unlabelled.csv

      metafun predict --model runs/images --context known/ --target new/
    """
    from ..estimators.files import fit_context, predict_rows, read_context

    if not as_json:
        _check_free(predictions)
    trained = open_trained(model)
    with _shown_notes() as notes:
        known = read_context(context, label, trained, notes)
        given, predicted = predict_rows(fit_context(trained, known, notes), target, known, notes)
    if as_json:
        # Rows of a CSV file are known by their order; images may have been left out.
        columns = {**given, **predicted} if target.is_dir() else predicted
        print(json.dumps({name: np.asarray(values).tolist() for name, values in columns.items()}))
        return
    write_csv(predictions, {**given, **predicted})
    rows = len(next(iter(predicted.values())))
    out.print(f"{predictions}: {rows:,} rows from {len(known.x):,} labelled ones")


@app.command()
def export(
    model: Model,
    context: Context,
    label: Label = None,
    program: Annotated[Path, typer.Option("--out", help="File to write.")] = Path("learner.stablehlo"),
) -> None:
    """Write the predictions from a context as one program (StableHLO) that needs only JAX.

    Examples:

      metafun export --model gp-rbf --context labelled.csv --out learner.stablehlo
    """
    from ..estimators.files import fit_context, read_context

    _check_free(program)
    trained = open_trained(model)
    with _shown_notes() as notes:
        estimator = fit_context(trained, read_context(context, label, trained, notes), notes)
    estimator.export(program)
    out.print(f"{program}: rows of {estimator.n_features_in_} numbers in, predictions out")


@contextlib.contextmanager
def _shown_notes() -> Iterator["Notes"]:
    """Prints the notes of what it encloses, also if that fails."""
    from ..estimators.files import Notes

    notes = Notes()
    try:
        yield notes
    finally:
        for kind, lines in (("left out", notes.left_out), ("warning", notes.warnings)):
            for line in lines:
                err.print(escape(f"{kind}: {line}"))


def _training_folder(model: Path, overwrite: bool) -> Path:
    """The folder to train in, beside the model, if the model may be written."""
    folder = model.with_suffix(".run")
    if folder == model:
        raise InvalidConfig(f"{model} is the folder to train in; choose an --out that does not end in .run.")
    if model.exists() and not overwrite:
        raise InvalidConfig(f"{model} exists already; replace it with --overwrite, or choose another --out.")
    return folder


def _check_free(path: Path) -> None:
    if path.exists():
        raise InvalidConfig(f"{path} exists already; choose another --out.")
    if not path.parent.is_dir():
        raise InvalidConfig(f"there is no folder {path.parent}; make it, or choose another --out.")
