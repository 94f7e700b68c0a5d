"""metafun fit | predict | export: a user's files in, predictions out."""

import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.markup import escape

from ..config import parse_setting
from ..data.csv_columns import write_csv
from ..errors import InvalidConfig
from ..estimators.notes import ColumnChoice
from ..estimators.trained import open_trained
from ..training.progress import train
from .console import AsJson, app, err, out
from .contexts import Columns, ContextOptions, Drop, shown_notes
from .folders import PredictOptions, predict_folder
from .options import Settings, with_options, with_plugins

Task = Annotated[
    str | None,
    typer.Option(
        "--task", metavar="COLUMN", help="Regression: the column that names each row's task.", show_default=False
    ),
]
Steps = Annotated[int | None, typer.Option("--steps", min=1, help="Training steps.", show_default=False)]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of the training and of the held-out tasks or classes.")]
New = Annotated[
    Path | None,
    typer.Argument(
        metavar="NEW", help="The rows to predict: a CSV file, a folder of CSV and Parquet files, or of images."
    ),
]
Quantiles = Annotated[
    str | None,
    typer.Option("--quantiles", metavar="Q,…", help="Quantiles of numbers too: 0.05,0.95.", show_default=False),
]


@app.command()
@with_plugins
def fit(
    path: Annotated[Path, typer.Argument(metavar="CSV_OR_NPZ", help="The tasks or classes to learn from.")],
    target: Annotated[list[str], typer.Option("--target", metavar="COLUMN", help="The column to predict.")],
    task: Task = None,
    columns: Columns = None,
    drop: Drop = None,
    model: Annotated[Path, typer.Option("--out", help="File to write the model to.")] = Path("model.safetensors"),
    steps: Steps = None,
    settings: Settings = None,
    seed: Seed = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the model.")] = False,
) -> None:
    """Meta-train a model on a file of yours.

    Classification: the target is the class of each row, and the model learns to distinguish new classes. Regression:
    rows belong to tasks, and the model learns to predict a new task from a few of its rows. Validation on held-out
    classes or tasks decides when to stop. Press Ctrl-C at any time; the same command resumes.

    Examples:

      metafun fit features.csv --target species --out species.safetensors

      metafun fit sensors.csv --target temperature --task sensor --out sensors.safetensors

      metafun fit arrays.npz --target y  # with arrays X (rows × columns) and y (rows)
    """
    from ..estimators.meta_fit import finish, open_training, remove_training, run_settings
    from ..estimators.training_files import read_training_data

    folder = _training_folder(model, overwrite)
    changes = run_settings(steps, seed, dict(map(parse_setting, settings or ())))
    with shown_notes() as notes:
        data = read_training_data(path, target, task, ColumnChoice(columns or (), drop or ()), seed, notes)
    if overwrite:
        remove_training(folder)
    run = open_training(folder, data, data.config(changes))
    try:
        train(run, err, first_line=f"{folder}: training on {data.trained_on}")
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command resumes from there.") from None
    trained, result = finish(run, folder)
    trained.save(model, record={"target": target[0] if len(target) == 1 else target, "task": task})
    err.print(escape(f"{model}: {result}. Next: metafun predict NEW.csv --model {model} --context …"))


@app.command()
@with_plugins
@with_options(PredictOptions)
def predict(
    options: PredictOptions,
    rows: New = None,
    quantiles: Quantiles = None,
    as_json: AsJson = False,
) -> None:
    """Predict rows from a few labelled ones, with uncertainty or probabilities.

    Columns are matched by name. Predictions are written beside the columns of NEW. The files of a folder may be larger
    than the memory; each becomes a file of the same name in the folder --out. After an interruption, the same command
    predicts what is left.

    Examples:

      metafun predict unlabelled.csv --model curves --context labelled.csv

      metafun predict rest.csv --model species.safetensors --context five.csv --target species --json

      metafun predict unlabelled.csv --model tables-regression --context labelled.csv --quantiles 0.05,0.95

      metafun predict new/ --model runs/images --context known/

      metafun predict parts/ --model tables-regression --context labelled.csv --out predicted --workers 4
    """
    from ..estimators.files import fit_context, predict_rows

    rows, labels = _former_options(rows, options)
    trained, levels = open_trained(options.model), _parse_quantiles(quantiles)
    if rows.is_dir() and trained.tasks.image is None:
        return predict_folder(options, rows, labels, levels, as_json)
    options.refuse_workers()
    predictions = options.out_path or Path("predictions.csv")
    if not as_json:
        _check_free(predictions, options.overwrite)
    with shown_notes() as notes:
        known = options.read(trained, notes, labels)
        given, predicted = predict_rows(fit_context(trained, known, notes), rows, known, notes, levels)
    if as_json:
        # Rows of a CSV file are known by their order; images may have been left out.
        found = {**given, **predicted} if rows.is_dir() else predicted
        print(json.dumps({name: np.asarray(values).tolist() for name, values in found.items()}))
        return
    write_csv(predictions, {**given, **predicted}, options.overwrite)
    count = len(next(iter(predicted.values())))
    out.print(f"{predictions}: {count:,} rows from {len(known.x):,} labelled ones")


@app.command()
@with_plugins
@with_options(ContextOptions)
def export(
    options: ContextOptions,
    program: Annotated[Path, typer.Option("--out", help="File to write.")] = Path("learner.stablehlo"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file.")] = False,
) -> None:
    """Write the predictions from a context as one program (StableHLO) that needs only JAX.

    Examples:

      metafun export --model curves --context labelled.csv --out learner.stablehlo
    """
    from ..estimators.files import fit_context

    _check_free(program, overwrite)
    trained = open_trained(options.model)
    with shown_notes() as notes:
        known = options.read(trained, notes, options.labels)
        estimator = fit_context(trained, known, notes)
    estimator.export(program)
    encoding = estimator.encoding_
    what = f"{estimator.X_.shape[1]} numbers" + ("" if encoding is None else f" ({', '.join(encoding.outputs)})")
    out.print(f"{program}: rows of {what} in, predictions out")


def _former_options(rows: Path | None, options: ContextOptions) -> tuple[Path, list[str]]:
    """The file to predict and the columns of labels; the file was formerly given as --target FILE."""
    if rows is not None:
        return rows, options.labels
    target = options.target or []
    if len(target) != 1:
        raise InvalidConfig("name the file to predict: metafun predict NEW.csv --model … --context …")
    err.print(escape(f"warning: --target names a column now; write: metafun predict {target[0]} --model …"))
    return Path(target[0]), [options.label] if options.label else []


def _parse_quantiles(text: str | None) -> list[float]:
    try:
        levels = [float(level) for level in (text or "").split(",") if level.strip()]
    except ValueError:
        levels = [-1.0]
    if not all(0 < level < 1 for level in levels):
        raise InvalidConfig(f"--quantiles {text}: give numbers between 0 and 1, separated by commas, like 0.05,0.95.")
    return levels


def _training_folder(model: Path, overwrite: bool) -> Path:
    """The folder to train in, beside the model, if the model may be written."""
    folder = model.with_suffix(".run")
    if folder == model:
        raise InvalidConfig(f"{model} is the folder to train in; choose an --out that does not end in .run.")
    if model.exists() and not overwrite:
        raise InvalidConfig(f"{model} exists already; replace it with --overwrite, or choose another --out.")
    return folder


def _check_free(path: Path, overwrite: bool) -> None:
    if path.exists() and not overwrite:
        raise InvalidConfig(f"{path} exists already; replace it with --overwrite, or choose another --out.")
    if not path.parent.is_dir():
        raise InvalidConfig(f"there is no folder {path.parent}; make it, or choose another --out.")
