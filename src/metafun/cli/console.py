"""Where commands print, and how they fail."""

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from typer.core import TyperGroup

from .. import __version__
from ..data.table import printable
from ..errors import MetaFunError
from ..files import write_atomically
from ..training.memory import enough_memory
from ..training.programs import keep_programs

out = Console(soft_wrap=True, markup=False, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

MOST_SHOWN = 2000

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


class Commands(TyperGroup):
    """A user error ends in one line and exit code 2, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        remedy = "use a smaller model or training.batch, or fewer seeds; in a search, a smaller --batch and --forget"
        try:
            with warnings.catch_warnings(), enough_memory(remedy):
                warnings.showwarning = _show_warning
                keep_programs()
                return super().invoke(ctx)
        except (MetaFunError, OSError) as error:
            self._fail(f"[bold red]error:[/] {escape(shown(str(error)))}", 2)
        except KeyboardInterrupt as interrupt:
            self._fail(escape(str(interrupt) or "interrupted."), 130)

    def _fail(self, message: str, code: int) -> None:
        err.print(message)
        raise typer.Exit(code) from None


def shown(text: str) -> str:
    """Text that may come from a file: in one line, without control characters, and not longer than a screen."""
    return printable(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    err.print(escape(shown(f"warning: {message}")))


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes an indented JSON file atomically."""
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Meta-learning with functional representations. Start with: [bold]metafun demo[/]",
)


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.", is_eager=True)] = False,
) -> None:
    if version:
        out.print(__version__)
        raise typer.Exit
