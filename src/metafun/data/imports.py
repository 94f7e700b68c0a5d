"""Importing: sources are read, checked and stored by name."""

from pathlib import Path

from ..errors import InvalidConfig
from .catalog import destination, read_source
from .readers import Division, find_tables
from .table import Table
from .table_folder import save_table


def import_features(source: Path, name: str | None, division: Division, *, overwrite: bool) -> dict[Path, Table]:
    """Imports every table in `source` and returns each with its new folder.

    Args:
        source: an .npz file, or a folder of .npy or LEO files.
        name: the name of the table; that of the source if None.
        division: how to divide the classes if the source defines no splits.
        overwrite: replace tables of the same name.
    """
    found = find_tables(source)
    if name is not None and len(found) > 1:
        raise InvalidConfig(f"{source} holds {', '.join(found)}; --name is for one table: give the path of one.")
    tables = {}
    for found_name, path in found.items():
        folder = destination(name or found_name)
        table = read_source(path, name or found_name, division)
        save_table(table, folder, str(path), overwrite=overwrite)
        tables[folder / table.name] = table
    return tables


def import_images(
    source: Path, name: str | None, division: Division, *, side: int, colour: bool, overwrite: bool
) -> tuple[dict[Path, Table], list[str]]:
    """Imports a folder of images; returns the table with its new folder, and a line for each file that was skipped.

    Args:
        source: a folder with a sub-folder of images for each class.
        name: the name of the table; that of the source if None.
        division: how to divide the classes if the source defines no splits.
        side: height and width in pixels of the rows.
        colour: keep three colours instead of grey.
        overwrite: replace a table of the same name.
    """
    from .images import read_images  # needs Pillow, which features do not

    name = name or source.resolve().name
    folder = destination(name)
    table, problems = read_images(source, name, side=side, colour=colour, division=division)
    save_table(table, folder, str(source), overwrite=overwrite)
    return {folder / table.name: table}, problems
