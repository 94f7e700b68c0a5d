"""From a model's name to a page in the browser."""

import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable

import uvicorn

from ..errors import InvalidConfig
from ..estimators.trained import open_trained
from .curves import CurveModel
from .glyphs import GlyphModel
from .server import Playground, make_app

HOST = "127.0.0.1"
CURVES = ("gp-rbf", "sinusoid")
GLYPHS = "glyphs"


def open_playground(model: str | None, progress: Callable[[str], None]) -> Playground:
    """Opens the models and compiles what the page needs.

    Args:
        model: a run folder, file or shipped model to show first, for curves or for pictures of characters.
        progress: called with a line before each step.
    """
    draws = model is not None and open_trained(model).tasks.problem == "classification"
    names = CURVES if model is None or draws else dict.fromkeys([model, *CURVES])
    curves = {name: CurveModel(name, open_trained(name)) for name in names}
    glyphs_name = model if model is not None and draws else GLYPHS
    glyphs = GlyphModel(glyphs_name, open_trained(glyphs_name))
    models: list[CurveModel | GlyphModel] = [*curves.values(), glyphs]
    for i, opened in enumerate(models, 1):
        progress(f"compiling {opened.name} ({i} of {len(models)})")
        opened.warm_up()
    return Playground(curves, glyphs)


def bind(port: int) -> socket.socket:
    """A listening socket on this machine alone; InvalidConfig if the port is taken.

    Args:
        port: its number; 0 for any free one.
    """
    # asyncio sends small answers at once (TCP_NODELAY) only if the protocol is named.
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # So that the port is free again at once after Ctrl-C. On Windows it would allow two servers on one port.
    if os.name == "posix":
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise InvalidConfig(f"--port {port} is not free ({error.strerror}); choose another, or leave it out.") from None
    return sock


def make_server(playground: Playground, sock: socket.socket) -> tuple[uvicorn.Server, str]:
    """The server, and the address of the page with a new token.

    Args:
        playground: what the page offers.
        sock: where it will listen.
    """
    port, token = sock.getsockname()[1], secrets.token_urlsafe(24)
    app = make_app(playground, token, [f"{HOST}:{port}", f"localhost:{port}"])
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, lifespan="off")
    return uvicorn.Server(config), f"http://{HOST}:{port}/{token}/"


def serve(playground: Playground, sock: socket.socket, opened: Callable[[str], None], browser: bool) -> None:
    """Serves the page until Ctrl-C.

    Args:
        playground: what the page offers.
        sock: where to listen.
        opened: called with the address.
        browser: whether to open the address in a browser.
    """
    server, address = make_server(playground, sock)
    opened(address)
    if browser:
        # Some browsers run in the terminal and return only when they are closed.
        threading.Thread(target=webbrowser.open, args=[address], daemon=True).start()
    server.run(sockets=[sock])
