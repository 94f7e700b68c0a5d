"""Downloads that go on where they stopped and never mix two versions of a file."""

import fcntl
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

from ..errors import InvalidData
from ..files import write_atomically

CHUNK = 2**18
REMEDY = "check the connection, name a mirror with --url, or give a file that you have with --from PATH"


@dataclass(frozen=True)
class TransferProgress:
    """How far a step has come; `note` is for people to keep."""

    step: str
    done: int
    total: int | None
    note: str = ""


def download(url: str, target: Path, *, largest: int, timeout: float = 30.0) -> Iterator[TransferProgress]:
    """Streams a zip file to `target`.part, and gives it its name when it is complete; nothing if `target` is there.

    `target`.part.json remembers which version of the file the part belongs to.
    """
    if not re.match(r"https?://", url):
        raise InvalidData(f"{url} is not an http or https address.")
    target.parent.mkdir(parents=True, exist_ok=True)
    part, origin = (target.with_name(target.name + suffix) for suffix in (".part", ".part.json"))
    with open(part, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if target.exists():  # another process completed it just now: `file` may be no part any more
                return
            if not os.path.samestat(os.fstat(file.fileno()), os.stat(part)):
                raise FileNotFoundError
        except (BlockingIOError, FileNotFoundError):
            raise InvalidData(f"another process is downloading {target}; wait for it.") from None
        known = _read_origin(origin, url)
        if not known:
            file.truncate(0)
        if not known or known["total"] != os.path.getsize(part):
            with _respond(url, file, known, timeout) as response:
                have = os.path.getsize(part)
                total = known["total"] if have else _length(response)
                _check_size(total, have, largest, target)
                if not have:
                    version = {"url": url, "etag": response.headers.get("ETag"), "total": total}
                    write_atomically(origin, json.dumps(version).encode())
                yield from _stream(response, file, have, total, largest)
        file.flush()
        os.fsync(file.fileno())
        os.replace(part, target)
        origin.unlink()


def _respond(url: str, file: IO[bytes], known: dict[str, Any], timeout: float) -> Any:
    """The answer that goes on where `file` ends, or one from the beginning, with `file` emptied."""
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
    request = urllib.request.Request(url, headers={"User-Agent": "metafun", "Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        if etag and not etag.startswith("W/"):
            request.add_header("If-Range", etag)
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # the file is now shorter than the part
            return error
        error.close()
        raise InvalidData(f"{url} answered {error.code} {error.reason}; {REMEDY}.") from None
    except (OSError, http.client.HTTPException) as error:
        raise InvalidData(f"no answer from {url} ({getattr(error, 'reason', error)}); {REMEDY}.") from None
    problem = None
    if not response.url.startswith("https:" if url.startswith("https:") else "http"):
        problem = f"leads to {response.url}, which is not protected"
    elif response.headers.get_content_type() == "text/html":
        problem = "answered with a web page, not with a zip file"
    if problem:
        response.close()
        raise InvalidData(f"{url} {problem}; {REMEDY}.")
    return response


def _stream(response: Any, file: IO[bytes], have: int, total: int | None, largest: int) -> Iterator[TransferProgress]:
    while chunk := _read(response, have, total):
        if have == 0 and chunk != b"PK":
            raise InvalidData(f"{response.url} did not answer with a zip file (it begins with {chunk!r}); {REMEDY}.")
        have += len(chunk)
        if have > largest:
            raise InvalidData(f"{response.url} sends more than {largest:,} bytes, which cannot be the archive.")
        file.write(chunk)
        yield TransferProgress("download", have, total)
    if have == 0 or total not in (None, have):
        raise _interrupted(have, total, "the server closed it")


def _read(response: Any, have: int, total: int | None) -> bytes:
    try:
        # What has arrived, and not a full chunk: it would be lost when the connection breaks.
        return response.read1(CHUNK) if have else response.read(2)
    except (OSError, http.client.HTTPException) as error:
        raise _interrupted(have, total, str(error) or type(error).__name__) from None


def _interrupted(have: int, total: int | None, reason: str) -> InvalidData:
    of = "" if total is None else f" of {total:,}"
    return InvalidData(
        f"the connection broke after {have:,}{of} bytes ({reason}); the same command goes on from there."
    )


def _length(response: Any) -> int | None:
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() else None


def _check_size(total: int | None, have: int, largest: int, target: Path) -> None:
    if total is not None and total > largest:
        raise InvalidData(f"the file is said to have {total:,} bytes; the archive has at most {largest:,}.")
    free = shutil.disk_usage(target.parent).free
    if total is not None and total - have > free:
        raise InvalidData(f"{target.parent} has {free:,} bytes free, and {total - have:,} are to come.")


def _read_origin(path: Path, url: str) -> dict[str, Any]:
    """What the part at hand belongs to; nothing if that is not known or is not `url`."""
    try:
        known = json.loads(path.read_bytes())
        return known if known["url"] == url and isinstance(known["total"], int) and "etag" in known else {}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
