"""metafun data: bring your own features, or fetch published ones."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as Grid

from ..config import EpisodesConfig, load_config
from ..data.catalog import BUILT_IN, destination, list_tables, locate, open_table, read_source, verify
from ..data.download import TransferProgress as Step
from ..data.fetch import ARCHIVES, OMNIGLOT, fetch, fetch_omniglot, missing
from ..data.readers import LEO_TABLES, Division, find, zero_rows
from ..data.table import SPLITS, Table, counted
from ..data.table_folder import describe, save
from ..errors import InvalidConfig, InvalidData, suggest
from .console import AsJson, Commands, err, out

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Features to learn from: bring your own, or fetch published ones.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="A name that `metafun data list` shows, or a path.")]


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="An .npz file, or a folder of .npy or LEO files.")],
    name: Annotated[
        str | None, typer.Option("--name", help="What to call it; the file's name if not given.", show_default=False)
    ] = None,
    split: Annotated[
        str, typer.Option("--split", help="Parts of the classes for train,val,test where the source has no splits.")
    ] = ",".join(map(str, Division.fractions)),
    seed: Annotated[int, typer.Option("--seed", help="The seed of that division.")] = Division.seed,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the table of this name.")] = False,
) -> None:
    """Check a table of features and store it under a name.

    Examples:

      metafun data import mine.npz

      metafun data import features/ --name birds --split 0.5,0.25,0.25

      metafun data import embeddings/miniImageNet/center
    """
    division = Division(_fractions(split), seed)
    found = find(source)
    if name is not None and len(found) > 1:
        raise InvalidConfig(f"{source} holds {', '.join(found)}; --name is for one table: give the path of one.")
    tables = {}
    with err.status("") as status:
        for own, path in found.items():
            status.update(escape(f"reading {path}"))
            into = destination(name or own)
            table = read_source(path, name or own, division)
            save(table, into, str(path), overwrite=overwrite)
            tables[into / table.name] = table
    _print_summary(tables)


@app.command("import-images")
def import_images(
    source: Annotated[Path, typer.Argument(metavar="DIR", help="A folder with a folder of images for each class.")],
    name: Annotated[
        str | None, typer.Option("--name", help="What to call it; the folder's name if not given.", show_default=False)
    ] = None,
    side: Annotated[
        int, typer.Option("--side", min=1, max=1024, help="All become this many pixels wide and high.")
    ] = 28,
    colour: Annotated[bool, typer.Option("--colour", help="Keep the colours; grey if not given.")] = False,
    split: Annotated[
        str, typer.Option("--split", help="Parts of the classes for train,val,test where there are no such folders.")
    ] = ",".join(map(str, Division.fractions)),
    seed: Annotated[int, typer.Option("--seed", help="The seed of that division.")] = Division.seed,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the table of this name.")] = False,
) -> None:
    """Make a table of your own images, and store it under a name. Files that cannot be read are named and left out.

    Examples:

      metafun data import-images birds/

      metafun data import-images birds/ --name birds64 --side 64 --colour
    """
    from ..data.images import read_images

    own = name or source.resolve().name
    into = destination(own)
    with err.status(escape(f"reading {source}")):
        table, problems = read_images(source, own, side=side, colour=colour, division=Division(_fractions(split), seed))
        save(table, into, str(source), overwrite=overwrite)
    for problem in problems:
        _warn(problem)
    _print_summary({into / table.name: table})


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """The tables that can be used by name, and where they are.

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
        built_in = "built in" if entry.shape else "built in, made when first used"
        where = entry.problem or (str(entry.path) if entry.path else built_in)
        lines.append((entry.name, size, entry.dtype or "–", classes, where))
    widths = [max(map(len, column)) for column in list(zip(*lines, strict=True))[:-1]]
    for *facts, where in lines:
        out.print("  ".join(f"{fact:{width}}" for fact, width in zip(facts, widths, strict=True)).rstrip())
        out.print(f"  {where}")  # on a line of its own, which is not broken


@app.command()
def info(name: Name, as_json: AsJson = False) -> None:
    """What a table holds and where it came from.

    Example: metafun data info glyphs
    """
    facts = _facts(name)
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
        Path | None, typer.Option("--from", help="A zip file or unpacked folder that you have.", show_default=False)
    ] = None,
    url: Annotated[str | None, typer.Option("--url", help="A mirror of the archive.", show_default=False)] = None,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", help=f"Of {', '.join(LEO_TABLES)}; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Download published data: `leo`, the features of miniImageNet and tieredImageNet used in the paper; `omniglot`.

    `leo` takes some gigabytes of disk. Interrupted downloads go on where they stopped.

    Examples:

      metafun data fetch leo --only miniimagenet-center

      metafun data fetch leo --from embeddings.zip

      metafun data fetch omniglot --from DIR  # which holds images_background.zip and images_evaluation.zip
    """
    if name not in (*ARCHIVES, OMNIGLOT):
        raise InvalidData(f"no archive '{name}'; {suggest(name, [*ARCHIVES, OMNIGLOT])}")
    if source is not None and url is not None:
        raise InvalidConfig("--from and --url both say where to get it; give one of them.")
    if name == OMNIGLOT:
        if only or url is not None:
            raise InvalidConfig("--only and --url are for leo; omniglot is one table from two archives: --from DIR.")
        _show(fetch_omniglot(source=source))
        err.print("Next: metafun train omniglot-5way-1shot")
        return
    wanted = missing(only or ())
    note = _show(fetch(ARCHIVES[name], source=source, url=url, only=only or ()))
    there = [table for table in wanted if table not in missing()]
    said = [f"stored: {', '.join(there)}." if wanted else "nothing to do: the tables are there.", note]
    err.print(escape(" ".join(filter(None, said))), end=" ")
    _next((there or only or list(LEO_TABLES))[0])


def _show(steps: Iterator[Step]) -> str:
    """Bars for what is going on; the last thing that is to be kept in mind."""
    note, tasks = "", {}
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=err, disable=not err.is_terminal) as bar:
        for step in steps:
            if step.step not in tasks:
                tasks[step.step] = bar.add_task(step.step)
            bar.update(tasks[step.step], completed=step.done, total=step.total)
            note = step.note or note
    return note


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
            out.print(f"{name}: {size}, in order.")
        except (InvalidData, OSError) as error:
            problems[name] = str(error)
    if problems:
        raise InvalidData(" ".join(problems.values()))


def _fractions(text: str) -> tuple[float, float, float]:
    try:
        train, val, test = map(float, text.split(","))
    except ValueError:
        raise InvalidConfig(f"--split {text} must be three numbers, as in 0.64,0.16,0.2.") from None
    return train, val, test


def _facts(name: str) -> dict[str, Any]:
    table = open_table(name)
    path = None if name == BUILT_IN else locate(name)
    described = describe(path) if path is not None and path.is_dir() else None
    least, most = (choose(table.classes, key=lambda rows: rows.count) for choose in (min, max))
    return {
        "name": table.name,
        "rows": len(table.features),
        "columns": table.features.shape[1],
        "dtype": table.features.dtype.name,
        **{split: _size(table, split) for split in SPLITS},
        "smallest": {"rows": least.count, "class": least.name},
        "largest": {"rows": most.count, "class": most.name},
        "source": described.source if described else "built in" if path is None else str(path),
        "imported": described.imported if described else None,
        "where": str(path.resolve()) if path else None,
        "fingerprint": table.fingerprint,
    }


def _size(table: Table, split: str) -> dict[str, int]:
    classes = [rows for rows in table.classes if rows.split == split]
    return {"classes": len(classes), "rows": sum(rows.count for rows in classes)}


def _print_summary(tables: dict[Path, Table]) -> None:
    grid = Grid()
    for column in ("name", "split", "classes", "rows", "columns", "dtype"):
        right = column in ("classes", "rows", "columns")
        grid.add_column(column, justify="right" if right else "left", no_wrap=column == "name")
    for table in tables.values():
        for split in SPLITS:
            size = _size(table, split)
            columns, dtype = str(table.features.shape[1]), table.features.dtype.name
            grid.add_row(escape(table.name), split, f"{size['classes']:,}", f"{size['rows']:,}", columns, dtype)
    out.print(grid)
    for path, table in tables.items():
        out.print(f"stored in {path}")
        if table.image is None and (count := zero_rows(table)) > 0:
            _warn(f"{table.name} has {counted(count, 'rows')} of zeros only, which cannot be scaled to length one.")
    _next_for(next(iter(tables.values())))


def _next_for(table: Table) -> None:
    """How to train on the table: as it is, with smaller tasks that it has the classes and rows for, or not at all."""
    classes = {split: _size(table, split)["classes"] for split in SPLITS}
    rows, task = min(part.count for part in table.classes), load_config(_preset(table)).tasks
    assert isinstance(task, EpisodesConfig)
    fitting = {
        "ways": min([task.ways, *(n for n in classes.values() if n > 1)]),
        "queries": min(task.queries, rows - task.shots),
    }
    changed = {key: value for key, value in fitting.items() if value != getattr(task, key)}
    if changed or min(classes.values()) < 2:
        have = ", ".join(f"{n:,} in {split}" for split, n in classes.items())
        _warn(
            f"a task has {task.ways} classes of one split and {task.shots + task.queries} rows of each by default; "
            f"{table.name} has these classes: {have}, the smallest of {counted(rows, 'rows')}."
        )
    if min(classes["train"], classes["val"]) > 1 and fitting["queries"] > 0:
        _next(table.name, *(f"--set tasks.{key}={value}" for key, value in changed.items()))
    else:
        _warn(f"training needs 2 classes in train, 2 in val, and {task.shots + 1} rows of each; bring more.")


def _warn(message: str) -> None:
    err.print(escape(f"warning: {message}"))


def _next(name: str, *options: str) -> None:
    err.print(escape(" ".join((f"Next: metafun train {_preset(open_table(name))} --data {name}", *options))))


def _preset(table: Table) -> str:
    return "images" if table.image is not None and table.name != BUILT_IN else "features"
