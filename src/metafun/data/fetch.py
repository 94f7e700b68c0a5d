"""Published tables: downloaded, unpacked without trust, and stored by name."""

import hashlib
import json
import re
import stat
import tempfile
import zipfile
from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InvalidData, suggest
from ..files import require_file, write_atomically
from .arrays import check_unpacked_size, parsing
from .catalog import cache_folder, destination, list_tables
from .download import CHUNK, TransferProgress, download
from .readers import LEO_TABLES, existing, find_tables, read_features
from .table import SPLITS
from .table_folder import save_table

MEMBER = re.compile(r"(?:.*/)?(\w+/\w+)/(train|val|test)_embeddings\.pkl")


@dataclass(frozen=True)
class Archive:
    """A published zip file.

    Args:
        name: the name that `metafun data fetch` knows it by.
        url: its address.
        sha256: the published hash; if None, later downloads must match the first good one.
        max_bytes: the size above which it is refused, packed or unpacked.
    """

    name: str
    url: str
    sha256: str | None
    max_bytes: int


# The embeddings of Rusu et al., "Meta-learning with latent embedding optimization" (2019).
LEO = Archive("leo", "https://storage.googleapis.com/leo-embeddings/embeddings.zip", None, 16 * 2**30)
ARCHIVES = {LEO.name: LEO}
OMNIGLOT = "omniglot"


def missing(only: Sequence[str] = ()) -> list[str]:
    """The tables of LEO that are not stored yet; among `only`, if given."""
    for name in only:
        if name not in LEO_TABLES:
            raise InvalidData(f"the archive has no table '{name}'; {suggest(name, LEO_TABLES)}")
    return [name for name in only or LEO_TABLES if is_missing(name)]


def fetch(
    archive: Archive = LEO,
    *,
    source: Path | None = None,
    url: str | None = None,
    only: Sequence[str] = (),
    timeout: float = 30.0,
) -> Iterator[TransferProgress]:
    """Stores the missing tables of an archive.

    Args:
        archive: the archive.
        source: a local zip file or unpacked folder, used instead of the network.
        url: a mirror of the archive.
        only: the tables wanted; all if empty.
        timeout: seconds to wait for the server.
    """
    into = {name: destination(name) for name in missing(only)}
    if not into:
        return
    if source is not None and not existing(source).is_dir():
        yield from _from_zip(source, into, only, str(source.resolve()), archive)
    elif source is not None:
        found = find_tables(source)
        for name in _select_present(source, into, found, only):
            yield from _import_table(found[name], name, into[name], str(found[name]))
    else:
        yield from _from_network(into, only, url or archive.url, archive, timeout)


def fetch_omniglot(*, source: Path | None = None, timeout: float = 30.0) -> Iterator[TransferProgress]:
    """Stores the table `omniglot` from its two archives.

    Args:
        source: a local folder with the archives, used instead of the network.
        timeout: seconds to wait for the server.
    """
    from . import omniglot  # needs Pillow, which features do not

    if not is_missing(OMNIGLOT):
        return
    into, folder = destination(OMNIGLOT), source or _downloads()
    if source is None:
        for stem in omniglot.ARCHIVES:
            url, target = omniglot.URL.format(stem), folder / f"{stem}.zip"
            yield from download(url, target, max_bytes=omniglot.MAX_BYTES, timeout=timeout)
    yield TransferProgress("read", 0, 1)
    try:
        table = omniglot.read_omniglot(folder, OMNIGLOT)
    except InvalidData:
        if source is None:  # the next call downloads them again
            for stem in omniglot.ARCHIVES:
                (folder / f"{stem}.zip").unlink(missing_ok=True)
        raise
    # A table of that name that could be read would not be missing.
    save_table(table, into, str(source or omniglot.URL.format("*")), overwrite=True)
    yield TransferProgress("read", 1, 1)


def is_missing(name: str) -> bool:
    """Whether no table of this name can be opened."""
    return name not in {entry.name for entry in list_tables() if entry.problem is None}


def _from_network(
    into: Mapping[str, Path], only: Sequence[str], url: str, archive: Archive, timeout: float
) -> Iterator[TransferProgress]:
    path = _downloads() / "embeddings.zip"
    if not path.exists():
        yield from download(url, path, max_bytes=archive.max_bytes, timeout=timeout)
    digest = yield from _hash(path)
    recorded = _recorded_hashes()
    expected = archive.sha256 or recorded.get(archive.name)
    if expected is not None and expected != digest:
        path.unlink()
        raise InvalidData(
            f"{path} has SHA-256 {digest[:12]}…, expected {expected[:12]}…, and was removed; fetch it again, or if "
            f"the archive has changed on purpose, remove its line from {_downloads() / 'hashes.json'}."
        )
    try:
        yield from _from_zip(path, into, only, url, archive)
    except InvalidData as error:
        if expected is None:
            path = path.replace(f"{path}.bad")
            raise InvalidData(f"{error} The file was renamed to {path}; fetch it again.") from None
        raise InvalidData(f"{error} To download it again, remove {path}.") from None
    note = f"The archive is kept at {path}."
    if expected is None:
        write_atomically(_downloads() / "hashes.json", json.dumps(recorded | {archive.name: digest}, indent=1).encode())
        note += f" It has no published hash; later downloads must have this SHA-256: {digest}."
    yield TransferProgress("check", 1, 1, note)


def _from_zip(
    path: Path, into: Mapping[str, Path], only: Sequence[str], origin: str, archive: Archive
) -> Iterator[TransferProgress]:
    """Unpacks one table at a time, to save disk space."""
    expected = "the archive as a zip file"
    require_file(path)
    with parsing(path, expected):
        content = zipfile.ZipFile(path)
    with content:
        with parsing(path, expected):
            members = _members(content, path, archive.max_bytes)
        for name in _select_present(path, into, members, only):
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=_downloads()) as folder:
                with parsing(path, expected):
                    yield from _unpack(content, members[name], Path(folder), name)
                yield from _import_table(Path(folder), name, into[name], origin)


def _members(content: zipfile.ZipFile, path: Path, max_bytes: int) -> dict[str, dict[str, zipfile.ZipInfo]]:
    """The three members of each table. Their names are compared, never used as paths."""
    tables = {path.as_posix(): name for name, path in LEO_TABLES.items()}
    members: dict[str, dict[str, zipfile.ZipInfo]] = {}
    for info in content.infolist():
        match = MEMBER.fullmatch(info.filename)
        if match is None or match[1] not in tables or info.filename.startswith("__MACOSX/"):
            continue
        if info.filename.startswith("/") or ".." in info.filename.split("/") or stat.S_ISLNK(info.external_attr >> 16):
            raise InvalidData(f"'{info.filename}' leads out of the archive")
        check_unpacked_size(info, path)
        if members.setdefault(tables[match[1]], {}).setdefault(match[2], info) is not info:
            raise InvalidData(f"'{info.filename}' occurs twice")
    total = sum(info.file_size for parts in members.values() for info in parts.values())
    if total > max_bytes:
        raise InvalidData(f"it would unpack to {total:,} bytes; the archive has at most {max_bytes:,}")
    return {name: parts for name, parts in members.items() if len(parts) == len(SPLITS)}


def _unpack(
    content: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], folder: Path, name: str
) -> Iterator[TransferProgress]:
    done, total = 0, sum(info.file_size for info in members.values())
    for split, info in members.items():
        # zipfile stops at the declared size and checks the checksum there.
        with content.open(info) as packed, open(folder / f"{split}_embeddings.pkl", "wb") as file:
            while chunk := packed.read(CHUNK):
                done += file.write(chunk)
                yield TransferProgress(f"unpack {name}", done, total)


def _import_table(folder: Path, name: str, into: Path, origin: str) -> Iterator[TransferProgress]:
    yield TransferProgress(f"import {name}", 0, 1)
    # `missing` selects only tables that are absent or damaged.
    save_table(read_features(folder, name), into, origin, overwrite=True)
    yield TransferProgress(f"import {name}", 1, 1)


def _select_present(path: Path, wanted: Iterable[str], found: Container[str], only: Sequence[str]) -> list[str]:
    absent = [name for name in wanted if name not in found]
    present = [name for name in wanted if name in found]
    if not present or (only and absent):
        raise InvalidData(
            f"{path} has no {' and no '.join(absent)} ({LEO_TABLES[absent[0]]}/{{train,val,test}}_embeddings.pkl)."
        )
    return present


def _hash(path: Path) -> Generator[TransferProgress, None, str]:
    digest, total = hashlib.sha256(), path.stat().st_size
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            yield TransferProgress("check", file.tell(), total)
    return digest.hexdigest()


def _downloads() -> Path:
    folder = cache_folder().parent / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _recorded_hashes() -> dict[str, str]:
    path = _downloads() / "hashes.json"
    try:
        content = json.loads(path.read_bytes()) if path.exists() else {}
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise InvalidData(f"{path} does not contain hashes; remove it to accept the next download without a check.")
    return content
