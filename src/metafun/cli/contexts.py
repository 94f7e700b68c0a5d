"""What `predict` and `export` take beside the rows: a model, and the context of a task."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..estimators.notes import ColumnChoice, Notes
from ..estimators.trained import SHIPPED, Trained
from .console import err, shown

Model = Annotated[
    str, typer.Option("--model", help=f"A shipped checkpoint ({', '.join(SHIPPED)}), a run folder or a file.")
]
Context = Annotated[
    Path,
    typer.Option("--context", help="The labelled rows: a CSV file, or a folder with a subfolder of images per class."),
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="COLUMN",
        help="The column to predict, in the context; default: the model's target, or the last column. May be repeated.",
        show_default=False,
    ),
]
Label = Annotated[str | None, typer.Option("--label", hidden=True)]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", metavar="A,B,…", help="The input columns; default: all others.", show_default=False),
]
Drop = Annotated[
    list[str] | None, typer.Option("--drop", metavar="A,B,…", help="Columns that are no inputs.", show_default=False)
]


@dataclass(frozen=True)
class ContextOptions:
    """The options of commands that take a model and its context."""

    model: Model
    context: Context
    target: Target = None
    label: Label = None
    columns: Columns = None
    drop: Drop = None

    def read(self, trained: Trained, notes: Notes, labels: list[str]) -> Any:
        """The labelled rows."""
        from ..estimators.files import read_context

        return read_context(self.context, labels, trained, ColumnChoice(self.columns or (), self.drop or ()), notes)

    @property
    def labels(self) -> list[str]:
        """The columns to predict, as far as they are named."""
        if self.label is None:
            return self.target or []
        err.print("warning: --label is now --target")
        return [self.label]


@contextlib.contextmanager
def shown_notes() -> Iterator[Notes]:
    """Prints the notes of what it encloses, also if that fails."""
    notes = Notes()
    try:
        yield notes
    finally:
        for kind, lines in (("left out", notes.left_out), ("warning", notes.warnings)):
            for line in lines:
                err.print(escape(shown(f"{kind}: {line}")))
