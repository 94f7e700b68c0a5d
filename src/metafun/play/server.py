"""What the page asks of this machine: models are computed here, and nothing is written to disk."""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from threading import Lock
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ..data.table import printable
from ..errors import MetaFunError
from . import tables
from .curves import CurveModel
from .glyphs import MAX_CLASSES, MAX_EXAMPLES, GlyphModel, decode_picture, encode_picture, letters, picture
from .guard import Guard, read_body

MAX_JSON_BYTES = 2**20
MAX_NUMBER = float(np.finfo(np.float32).max)
# Of the name of a class, and of a file.
MAX_LABEL, MAX_NAME = 40, 100
Endpoint = Callable[[Request], Awaitable[Response]]
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Playground:
    """What the page offers.

    Args:
        curves: models for regression in one dimension by name, the first one shown first.
        glyphs: the model for drawn characters.
    """

    curves: Mapping[str, CurveModel]
    glyphs: GlyphModel

    @property
    def description(self) -> dict[str, Any]:
        """What the page shows, for its script."""
        return {
            "tabs": ["curves", "glyphs", "table"],
            "curves": [model.description for model in self.curves.values()],
            "glyphs": {"classes": MAX_CLASSES, "examples": MAX_EXAMPLES},
        }


def page_files() -> dict[str, bytes]:
    """The files of the page by name."""
    folder = resources.files("metafun") / "play" / "page"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def make_app(playground: Playground, token: str, hosts: list[str]) -> ASGIApp:
    """The application.

    Args:
        playground: what the page offers.
        token: the first part of every address.
        hosts: what this machine may be called in a request, "127.0.0.1:8000".
    """

    async def info(request: Request) -> Response:
        return JSONResponse(playground.description)

    computed = {
        "curves": curve,
        "functions": functions,
        "glyphs": drawing,
        "letters": first_letters,
        "example": example,
    }
    routes = [
        Route("/info.json", info),
        *(Route(f"/{name}", _answers(playground, compute), methods=["POST"]) for name, compute in computed.items()),
        Route("/table", _tables(), methods=["POST"]),
        Route("/{name:path}", _pages(page_files())),
    ]
    handlers: Mapping[Any, Any] = {MetaFunError: _refused, ValueError: _refused, HTTPException: _failed}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False  # the token would be missing from the new address
    return Guard(app, token, hosts)


def _pages(files: Mapping[str, bytes]) -> Endpoint:
    async def page(request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        if name not in files:
            raise HTTPException(404, "there is no such page.")
        return Response(files[name], media_type=TYPES["." + name.rpartition(".")[2]])

    return page


def _answers(playground: Playground, compute: Callable[[Playground, Any], Response]) -> Endpoint:
    """JSON in, what `compute` returns out; one computation of a kind at a time."""
    lock = Lock()

    def in_turn(content: Any) -> Response:
        with lock:
            return compute(playground, content)

    async def answer(request: Request) -> Response:
        body = await read_body(request, MAX_JSON_BYTES)
        return await run_in_threadpool(in_turn, parse_json(body))

    return answer


def _tables() -> Endpoint:
    """A CSV file in; its columns out, or with a target and a problem its predictions; one table at a time."""
    lock = Lock()

    async def table(request: Request) -> Response:
        content = await read_body(request, tables.MAX_BYTES)
        options = request.query_params
        name, problem = printable(options.get("name", "table.csv"))[:MAX_NAME], options.get("problem")

        def in_turn() -> dict[str, Any]:
            with lock:
                if problem is None:
                    return tables.describe(content, name)
                kind: tables.Problem = "classification" if problem == "classification" else "regression"
                return tables.predict(content, name, options.get("target", ""), kind)

        return JSONResponse(await run_in_threadpool(in_turn))

    return table


def curve(playground: Playground, content: Any) -> Response:
    """The prediction from context points, see `CurveModel.answer`."""
    model, points = _model_and_points(playground, content)
    return _arrays(model.answer(points, exact=content.get("exact") is True))


def functions(playground: Playground, content: Any) -> Response:
    """Functions drawn from the model given context points."""
    return _arrays(_model_and_points(playground, content)[0].functions(content["points"]))


def drawing(playground: Playground, content: Any) -> Response:
    """The picture of a drawing, and its class once there are examples of two."""
    seen = picture(_strokes(content.get("strokes")))
    given = content.get("examples")
    if not isinstance(given, list) or not all(isinstance(example, dict) for example in given):
        raise HTTPException(400, "expected examples, each with a label and a picture.")
    examples = [(str(example.get("label"))[:MAX_LABEL], decode_picture(example.get("picture"))) for example in given]
    found: dict[str, Any] = {"picture": encode_picture(seen)}
    if len({label for label, _ in examples}) > 1:
        shares, weights = playground.glyphs.classify(examples, seen)
        found |= {"probabilities": shares, "weights": weights.tolist()}
    return JSONResponse(found)


def first_letters(playground: Playground, content: Any) -> Response:
    """Printed letters to begin with."""
    return JSONResponse([{"label": label, "picture": encode_picture(seen)} for label, seen in letters()])


def example(playground: Playground, content: Any) -> Response:
    """A table to try."""
    name, text = tables.example("regression" if content.get("problem") == "regression" else "classification")
    return JSONResponse({"name": name, "csv": text})


def _strokes(strokes: Any) -> Any:
    if not isinstance(strokes, list) or not all(
        isinstance(stroke, list) and all(map(_is_pair, stroke)) for stroke in strokes
    ):
        raise HTTPException(400, "expected strokes as lists of pairs of finite numbers.")
    return strokes


def parse_json(body: bytes) -> dict[str, Any]:
    """A request's content; status 400 if it is not an object."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise HTTPException(400, "expected an object in JSON.")
    return content


def _model_and_points(playground: Playground, content: Any) -> tuple[CurveModel, Any]:
    model, points = playground.curves.get(str(content.get("model"))), content.get("points")
    if model is None:
        raise HTTPException(400, f"there is no such model; known: {', '.join(playground.curves)}.")
    if not isinstance(points, list) or not all(_is_pair(point) for point in points):
        raise HTTPException(400, "expected points as pairs of finite numbers.")
    return model, points


def _is_pair(point: Any) -> bool:
    return (
        isinstance(point, list)
        and len(point) == 2
        and all(isinstance(v, int | float) and abs(v) <= MAX_NUMBER for v in point)
    )


def _arrays(arrays: list[Any]) -> Response:
    """Numbers one after the other; the page knows the shapes."""
    content = b"".join(np.ascontiguousarray(array, "<f4").tobytes() for array in arrays)
    return Response(content, media_type="application/octet-stream")


async def _refused(request: Request, error: Exception) -> Response:
    return JSONResponse({"error": str(error).splitlines()[0]}, 400)


async def _failed(request: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code)
