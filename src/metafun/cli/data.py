"""metafun data: import features and images, or fetch published ones."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from ..config import load_config
from ..data.advice import advise, content_warnings, preset_for
from ..data.catalog import list_tables, open_table, table_facts, verify
from ..data.download import TransferProgress
from ..data.fetch import ARCHIVES, OMNIGLOT, fetch, fetch_omniglot, missing
from ..data.imports import import_features, import_images
from ..data.readers import LEO_TABLES, Division
from ..data.table import Table, counted
from ..errors import InvalidConfig, InvalidData, suggest
from .console import AsJson, Commands, err, out

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Data to train on: import your own, or fetch published ones.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `metafun data list` shows, or a path.")]
NewName = Annotated[
    str | None, typer.Option("--name", help="The name of the table; by default that of the source.", show_default=False)
]
Split = Annotated[
    str, typer.Option("--split", help="Shares of the classes for train,val,test if the source defines no splits.")
]
SplitSeed = Annotated[int, typer.Option("--seed", help="Seed of the random split (see --split).")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the table of this name.")]
DEFAULT_SPLIT = ",".join(map(str, Division.fractions))


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="An .npz file, or a folder of .npy or LEO files.")],
    name: NewName = None,
    split: Split = DEFAULT_SPLIT,
    seed: SplitSeed = Division.seed,
    overwrite: Overwrite = False,
) -> None:
    """Check a table of features and store it under a name.

    Examples:

      metafun data import mine.npz

      metafun data import features/ --name birds --split 0.5,0.25,0.25

      metafun data import embeddings/miniImageNet/center
    """
    division = _parse_division(split, seed)
    with err.status(escape(f"reading {source}")):
        tables = import_features(source, name, division, overwrite=overwrite)
    _print_summary(tables)


@app.command("import-images")
def import_images_(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a folder of images for each class.")],
    name: NewName = None,
    side: Annotated[int, typer.Option("--side", min=1, max=1024, help="Width and height of the rows in pixels.")] = 28,
    colour: Annotated[bool, typer.Option("--colour", help="Keep the colours instead of grey levels.")] = False,
    split: Split = DEFAULT_SPLIT,
    seed: SplitSeed = Division.seed,
    overwrite: Overwrite = False,
) -> None:
    """Turn folders of images into a table and store it under a name. Unreadable files are listed and skipped.

    Examples:

      metafun data import-images birds/

      metafun data import-images birds/ --name birds64 --side 64 --colour
    """
    division = _parse_division(split, seed)
    with err.status(escape(f"reading {source}")):
        tables, problems = import_images(source, name, division, side=side, colour=colour, overwrite=overwrite)
    _warn(problems)
    _print_summary(tables)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the tables that have a name, and where they are.

    Example: metafun data list
    """
    entries = list_tables()
    if as_json:
        print(json.dumps([dataclasses.asdict(entry) for entry in entries], default=str))
        return
    lines = [("name", "rows × columns", "dtype", "train/val/test", "where")]
    for entry in entries:
        size = "–" if entry.shape is None else " × ".join(f"{n:,}" for n in entry.shape)
        classes = "–" if entry.classes is None else "/".join(map(str, entry.classes.values()))
        built_in = "built in" if entry.shape else "built in, made on first use"
        where = entry.problem or (str(entry.path) if entry.path else built_in)
        lines.append((entry.name, size, entry.dtype or "–", classes, where))
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    for *facts, where in lines:
        out.print("  ".join(f"{fact:{width}}" for fact, width in zip(facts, widths, strict=True)).rstrip())
        out.print(f"  {where}")  # on a separate line, so that a long path is not broken


@app.command()
def info(name: Name, as_json: AsJson = False) -> None:
    """Show the content and origin of a table.

    Example: metafun data info glyphs
    """
    facts = table_facts(name)
    if as_json:
        print(json.dumps(facts))
        return
    for key, value in facts.items():
        if value is None:
            continue
        if isinstance(value, dict):
            value = ", ".join(counted(n, things) if isinstance(n, int) else n for things, n in value.items())
        out.print(f"{key:12} {value:,}" if isinstance(value, int) else f"{key:12} {value}")


@app.command("fetch")
def fetch_(
    name: Annotated[str, typer.Argument(help=f"One of: {', '.join((*ARCHIVES, OMNIGLOT))}.")] = "leo",
    source: Annotated[
        Path | None, typer.Option("--from", help="A local zip file or unpacked folder.", show_default=False)
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="A mirror of the archive.", show_default=False)] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help=f"Of {', '.join(LEO_TABLES)}; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Download published data: `leo`, the features of miniImageNet and tieredImageNet used in the paper; `omniglot`.

    `leo` takes several gigabytes of disk. An interrupted download resumes where it stopped.

    Examples:

      metafun data fetch leo --only miniimagenet-center

      metafun data fetch leo --from embeddings.zip

      metafun data fetch omniglot --from DIR  # with images_background.zip and images_evaluation.zip
    """
    if name not in (*ARCHIVES, OMNIGLOT):
        raise InvalidData(f"no archive '{name}'; {suggest(name, [*ARCHIVES, OMNIGLOT])}")
    if source is not None and url is not None:
        raise InvalidConfig("--from and --url are two sources; give only one.")
    if name == OMNIGLOT:
        if only or url is not None:
            raise InvalidConfig("--only and --url are for leo; omniglot is one table from two archives: --from DIR.")
        _show_progress(fetch_omniglot(source=source))
        err.print("Next: metafun train omniglot-5way-1shot")
        return
    wanted = missing(only or ())
    note = _show_progress(fetch(ARCHIVES[name], source=source, url=url, only=only or ()))
    stored = [table for table in wanted if table not in missing()]
    result = f"stored: {', '.join(stored)}." if wanted else "nothing to do: all tables are stored."
    err.print(escape(" ".join(filter(None, (result, note)))), end=" ")
    _print_next(open_table((stored or only or list(LEO_TABLES))[0]), {})


@app.command("verify")
def verify_(names: Annotated[list[str], typer.Argument(metavar="NAME…", help="Names or paths.")]) -> None:
    """Read tables in full and compare them with what was imported.

    Example: metafun data verify glyphs
    """
    problems = {}
    for name in names:
        try:
            table = verify(name)
            size = f"{counted(len(table.features), 'rows')}, {counted(len(table.classes), 'classes')}"
            out.print(f"{name}: {size}, intact.")
        except (InvalidData, OSError) as error:
            problems[name] = str(error)
    if problems:
        raise InvalidData(" ".join(problems.values()))


def _parse_division(split: str, seed: int) -> Division:
    try:
        train, val, test = map(float, split.split(","))
    except ValueError:
        raise InvalidConfig(f"--split {split} must be three numbers, as in 0.64,0.16,0.2.") from None
    return Division((train, val, test), seed)


def _show_progress(steps: Iterator[TransferProgress]) -> str:
    """Draws a bar for each step and returns the last note."""
    note, tasks = "", {}
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        for step in steps:
            if step.step not in tasks:
                tasks[step.step] = bar.add_task(step.step)
            bar.update(tasks[step.step], completed=step.done, total=step.total)
            note = step.note or note
    return note


def _print_summary(tables: dict[Path, Table]) -> None:
    """Prints the sizes and folders of new tables, and how to train on the first."""
    grid = Grid()
    for column in ("name", "split", "classes", "rows", "columns", "dtype"):
        right = column in ("classes", "rows", "columns")
        grid.add_column(column, justify="right" if right else "left", no_wrap=column == "name")
    for table in tables.values():
        rows, columns, dtype = table.row_counts(), str(table.features.shape[1]), table.features.dtype.name
        for split, classes in table.class_counts().items():
            grid.add_row(escape(table.name), split, f"{classes:,}", f"{rows[split]:,}", columns, dtype)
    out.print(grid)
    for path, table in tables.items():
        out.print(f"stored in {path}")
        _warn(content_warnings(table))
    first = next(iter(tables.values()))
    task: Any = load_config(preset_for(first)).tasks
    changes, warnings = advise(first, ways=task.ways, shots=task.shots, queries=task.queries)
    _warn(warnings)
    if changes is not None:
        _print_next(first, changes)


def _print_next(table: Table, changes: dict[str, int]) -> None:
    options = [f"--set tasks.{key}={value}" for key, value in changes.items()]
    err.print(escape(" ".join((f"Next: metafun train {preset_for(table)} --data {table.name}", *options))))


def _warn(messages: list[str]) -> None:
    for message in messages:
        err.print(escape(f"warning: {message}"))
