"""Downloads that resume where they stopped and never mix two versions of a file."""

import http.client
import json
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import filelock

from ..errors import InvalidData
from ..files import write_atomically
from .table import shortened

CHUNK = 2**18
REMEDY = "check the connection, name a mirror with --url, or give a local file with --from PATH"


@dataclass(frozen=True)
class TransferProgress:
    """The progress of one step.

    Args:
        step: the name of the step.
        done: bytes or items completed.
        total: bytes or items in all, or None if unknown.
        note: a message for the user to keep.
    """

    step: str
    done: int
    total: int | None
    note: str = ""


def download(url: str, target: Path, *, max_bytes: int, timeout: float = 30.0) -> Iterator[TransferProgress]:
    """Downloads a zip file to `target`.part and renames it when complete; does nothing if `target` exists.

    `target`.part.json records the version of the file that the part belongs to.

    Args:
        url: an http or https address.
        target: the file to create.
        max_bytes: the size above which a file is refused.
        timeout: seconds to wait for the server.
    """
    if not re.match(r"https?://", url):
        raise InvalidData(f"{url} is not an http or https address.")
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(target.with_name(f".{target.name}.lock"), timeout=0):
            if not target.exists():
                yield from _download(url, target, max_bytes, timeout)
    except filelock.Timeout:
        raise InvalidData(f"another process is downloading {target}; wait for it.") from None


def _download(url: str, target: Path, max_bytes: int, timeout: float) -> Iterator[TransferProgress]:
    part, origin = (target.with_name(target.name + suffix) for suffix in (".part", ".part.json"))
    with open(part, "ab") as file:
        known = _read_origin(origin, url)
        if not known:
            file.truncate(0)
        if not known or known["total"] != os.path.getsize(part):
            with _request_rest(url, file, known, timeout) as response:
                have = os.path.getsize(part)
                total = known["total"] if have else _content_length(response)
                _check_size(total, have, max_bytes, target)
                if not have:
                    version = {"url": url, "etag": response.headers.get("ETag"), "total": total}
                    write_atomically(origin, json.dumps(version).encode())
                yield from _stream(response, file, have, total, max_bytes)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, target)  # after it is closed: Windows does not rename an open file
    origin.unlink()


def _request_rest(url: str, file: IO[bytes], known: dict[str, Any], timeout: float) -> Any:
    """A response that continues where `file` ends, or one from the start, with `file` emptied."""
    have = os.path.getsize(file.name)
    response = _open(url, have, known.get("etag"), timeout)
    if have:
        span = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", response.headers.get("Content-Range", ""))
        fits = span is not None and (int(span[1]), int(span[2])) == (have, known["total"])
        if response.status == 206 and fits and response.headers.get("ETag") == known["etag"]:
            return response
        file.truncate(0)
        if response.status != 200:
            response.close()
            response = _open(url, 0, None, timeout)
    if response.status != 200:
        response.close()
        raise InvalidData(f"{url} answered {response.status} instead of the whole file; {REMEDY}.")
    return response


def _open(url: str, have: int, etag: str | None, timeout: float) -> Any:
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "metafun", "Accept-Encoding": "identity"})
        if have:
            request.add_header("Range", f"bytes={have}-")
            if etag and not etag.startswith("W/"):
                request.add_header("If-Range", etag)
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # the file is shorter now than the part
            return error
        error.close()
        raise InvalidData(f"{url} answered {error.code} {shortened(error.reason)}; {REMEDY}.") from None
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a malformed host or redirection
        raise InvalidData(f"no answer from {url} ({shortened(getattr(error, 'reason', error))}); {REMEDY}.") from None
    problem = None
    if not response.url.startswith("https:" if url.startswith("https:") else "http"):
        problem = f"redirects to {shortened(response.url)}, which is not encrypted"
    elif response.headers.get_content_type() == "text/html":
        problem = "answered with a web page, not with a zip file"
    if problem:
        response.close()
        raise InvalidData(f"{url} {problem}; {REMEDY}.")
    return response


def _stream(response: Any, file: IO[bytes], have: int, total: int | None, max_bytes: int) -> Iterator[TransferProgress]:
    while chunk := _read(response, have, total):
        if have == 0 and chunk != b"PK":
            raise InvalidData(
                f"{shortened(response.url)} did not answer with a zip file (it begins with {chunk!r}); {REMEDY}."
            )
        have += len(chunk)
        if have > max_bytes:
            raise InvalidData(
                f"{shortened(response.url)} sent more than {max_bytes:,} bytes, so it is not the archive."
            )
        file.write(chunk)
        yield TransferProgress("download", have, total)
    if have == 0 or total not in (None, have):
        raise _interrupted(have, total, "the server closed it")


def _read(response: Any, have: int, total: int | None) -> bytes:
    try:
        # read1 returns what has arrived; `read` would lose an incomplete chunk when the connection breaks.
        return response.read1(CHUNK) if have else response.read(2)
    except (OSError, http.client.HTTPException) as error:
        raise _interrupted(have, total, str(error) or type(error).__name__) from None


def _interrupted(have: int, total: int | None, reason: str) -> InvalidData:
    of = "" if total is None else f" of {total:,}"
    return InvalidData(
        f"the connection broke after {have:,}{of} bytes ({reason}); the same command resumes the download."
    )


def _content_length(response: Any) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if re.fullmatch("[0-9]{1,18}", length) else None


def _check_size(total: int | None, have: int, max_bytes: int, target: Path) -> None:
    if total is not None and total > max_bytes:
        raise InvalidData(f"the server announces {total:,} bytes; the archive has at most {max_bytes:,}.")
    free = shutil.disk_usage(target.parent).free
    if total is not None and total - have > free:
        raise InvalidData(f"{target.parent} has {free:,} bytes free, but {total - have:,} are needed.")


def _read_origin(path: Path, url: str) -> dict[str, Any]:
    """The version that the part belongs to; empty if unknown or from another address."""
    try:
        known = json.loads(path.read_bytes())
        return known if known["url"] == url and isinstance(known["total"], int) and "etag" in known else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
