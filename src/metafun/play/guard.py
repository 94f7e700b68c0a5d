"""Who may talk to the page's server: this machine's browser, with the token in the address."""

import hmac
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """Refuses requests of other hosts and without the token, and removes the token from the path of the others.

    A site that the user visits can let its own name point to this machine; its requests then carry that name as host.

    Args:
        app: what answers the requests that pass.
        token: the first part of every path.
        hosts: values of the header Host that are accepted, "127.0.0.1:8000".
    """

    def __init__(self, app: ASGIApp, token: str, hosts: Sequence[str]):
        self.app, self.token, self.hosts = app, token.encode(), [host.encode() for host in hosts]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return  # no other protocol is spoken
        headers = dict(scope["headers"])
        first, _, rest = scope["path"].removeprefix("/").partition("/")
        has_token = hmac.compare_digest(first.encode("utf-8", "surrogateescape"), self.token)
        has_origin = headers.get(b"origin", b"").removeprefix(b"http://") in (b"", *self.hosts)
        if headers.get(b"host", b"") not in self.hosts or not has_origin or not has_token:
            answer = PlainTextResponse("Open the whole address that metafun play printed.\n", 403)
            return await answer(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        inside = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        await self.app(inside, receive, send_with_headers)


async def read_body(request: Request, most: int) -> bytes:
    """The body of a request; status 413 as soon as it has more than `most` bytes, 400 if it ends early."""
    too_large = HTTPException(413, f"too large; this page takes at most {most / 2**20:g} MB at a time.")
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise too_large
    parts, size = [], 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise too_large
            parts.append(part)
    except ClientDisconnect:
        raise HTTPException(400, "the request ended early.") from None
    return b"".join(parts)
