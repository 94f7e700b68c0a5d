"""metafun play: a page in the browser to try models on."""

import contextlib
from importlib.util import find_spec
from typing import Annotated

import typer
from rich.markup import escape

from ..errors import InvalidConfig
from .console import app, err, out


@app.command()
def play(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model to show first: a shipped one, a run folder or a file, for regression with one input.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 for any free one.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in a browser.")] = True,
) -> None:
    """Try the models on a page in your browser.

    Curves: click to add points and see the prediction change. Glyphs: draw characters. Table: drop a CSV file. The
    page is served on this machine only and works offline. Press Ctrl-C to end.

    Examples:

      metafun play

      metafun play runs/sinusoid --port 8080 --no-browser
    """
    if not (find_spec("starlette") and find_spec("uvicorn")):
        raise InvalidConfig('metafun play needs starlette and uvicorn; install them: pip install "metafun[play]"')
    from ..play.serving import bind, open_playground, serve

    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(bind(port)) as sock:
        with err.status("opening the models …") as status:
            playground = open_playground(model, lambda line: status.update(escape(f"{line} …")))
        serve(playground, sock, lambda address: out.print(f"{address}\nPress Ctrl-C to end."), browser)
    err.print("ended.")
