"""Tables that are published elsewhere: downloaded, unpacked with care, and stored under their names."""

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
from ..files import write_atomically
from .arrays import check_member, refused
from .catalog import cache, destination, list_tables
from .download import CHUNK, TransferProgress, download
from .readers import LEO_TABLES, existing, find, read
from .table import SPLITS
from .table_folder import save

MEMBER = re.compile(r"(?:.*/)?(\w+/\w+)/(train|val|test)_embeddings\.pkl")


@dataclass(frozen=True)
class Archive:
    """A published zip file. Where no hash is published, that of the first good download is held on to."""

    name: str
    url: str
    sha256: str | None
    largest: int  # bytes, packed and unpacked alike


# The embeddings of Rusu et al., "Meta-learning with latent embedding optimization" (2019).
LEO = Archive("leo", "https://storage.googleapis.com/leo-embeddings/embeddings.zip", None, 16 * 2**30)
ARCHIVES = {LEO.name: LEO}
OMNIGLOT = "omniglot"


def missing(only: Sequence[str] = ()) -> list[str]:
    """The tables of LEO that are not there yet, or those of them that are asked for."""
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
    """Stores the missing tables, from `source` (a zip file or an unpacked folder) if given, else from the network."""
    into = {name: destination(name) for name in missing(only)}
    if not into:
        return
    if source is not None and not existing(source).is_dir():
        yield from _from_zip(source, into, only, str(source.resolve()), archive)
    elif source is not None:
        found = find(source)
        for name in _present(source, into, found, only):
            yield from _store(found[name], name, into[name], str(found[name]))
    else:
        yield from _from_network(into, only, url or archive.url, archive, timeout)


def fetch_omniglot(*, source: Path | None = None, timeout: float = 30.0) -> Iterator[TransferProgress]:
    """Stores the table `omniglot` from its two archives, in `source` if given, else from the network."""
    from .omniglot import ARCHIVES as TWO
    from .omniglot import URL, read_omniglot

    if not is_missing(OMNIGLOT):
        return
    into, folder = destination(OMNIGLOT), source or _downloads()
    if source is None:
        for stem in TWO:
            yield from download(URL.format(stem), folder / f"{stem}.zip", largest=2**26, timeout=timeout)
    yield TransferProgress("read", 0, 1)
    try:
        table = read_omniglot(folder, OMNIGLOT)
    except InvalidData:
        if source is None:  # so that the next time they are downloaded again
            for stem in TWO:
                (folder / f"{stem}.zip").unlink(missing_ok=True)
        raise
    # What is there under that name cannot be read.
    save(table, into, str(source or URL.format("*")), overwrite=True)
    yield TransferProgress("read", 1, 1)


def is_missing(name: str) -> bool:
    return name not in {entry.name for entry in list_tables() if entry.problem is None}


def _from_network(
    into: Mapping[str, Path], only: Sequence[str], url: str, archive: Archive, timeout: float
) -> Iterator[TransferProgress]:
    path = _downloads() / "embeddings.zip"
    if not path.exists():
        yield from download(url, path, largest=archive.largest, timeout=timeout)
    digest = yield from _hash(path)
    recorded = _recorded()
    expected = archive.sha256 or recorded.get(archive.name)
    if expected is not None and expected != digest:
        path.unlink()
        raise InvalidData(
            f"{path} has SHA-256 {digest[:12]}…, expected {expected[:12]}…, and was removed; fetch it again, or if "
            f"the archive is known to have changed, remove its line from {_downloads() / 'hashes.json'}."
        )
    try:
        yield from _from_zip(path, into, only, url, archive)
    except InvalidData as error:
        if expected is None:
            path = path.replace(f"{path}.bad")
            raise InvalidData(f"{error} The file was set aside as {path}; fetch it again.") from None
        raise InvalidData(f"{error} To download it again, remove {path}.") from None
    note = f"The archive stays at {path}."
    if expected is None:
        write_atomically(_downloads() / "hashes.json", json.dumps(recorded | {archive.name: digest}, indent=1).encode())
        note += f" No hash of it is published; later downloads must have this SHA-256: {digest}."
    yield TransferProgress("check", 1, 1, note)


def _from_zip(
    path: Path, into: Mapping[str, Path], only: Sequence[str], origin: str, archive: Archive
) -> Iterator[TransferProgress]:
    """One table at a time, so that what is unpacked takes no more room than it must."""
    expected = "the archive as a zip file"
    with refused(path, expected):
        content = zipfile.ZipFile(path)
    with content:
        with refused(path, expected):
            members = _members(content, path, archive.largest)
        for name in _present(path, into, members, only):
            with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=_downloads()) as folder:
                with refused(path, expected):
                    yield from _unpack(content, members[name], Path(folder), name)
                yield from _store(Path(folder), name, into[name], origin)


def _members(content: zipfile.ZipFile, path: Path, largest: int) -> dict[str, dict[str, zipfile.ZipInfo]]:
    """The three members of each table. Their names are only compared, never used as paths."""
    tables = {path.as_posix(): name for name, path in LEO_TABLES.items()}
    members: dict[str, dict[str, zipfile.ZipInfo]] = {}
    for info in content.infolist():
        match = MEMBER.fullmatch(info.filename)
        if match is None or match[1] not in tables or info.filename.startswith("__MACOSX/"):
            continue
        if info.filename.startswith("/") or ".." in info.filename.split("/") or stat.S_ISLNK(info.external_attr >> 16):
            raise InvalidData(f"'{info.filename}' leads out of the archive")
        check_member(info, path)
        if members.setdefault(tables[match[1]], {}).setdefault(match[2], info) is not info:
            raise InvalidData(f"'{info.filename}' is there twice")
    total = sum(info.file_size for parts in members.values() for info in parts.values())
    if total > largest:
        raise InvalidData(f"it would unpack to {total:,} bytes; the archive has at most {largest:,}")
    return {name: parts for name, parts in members.items() if len(parts) == len(SPLITS)}


def _unpack(
    content: zipfile.ZipFile, members: Mapping[str, zipfile.ZipInfo], folder: Path, name: str
) -> Iterator[TransferProgress]:
    done, total = 0, sum(info.file_size for info in members.values())
    for split, info in members.items():
        # A member ends at its declared size, whatever it is packed into; a wrong checksum fails at its end.
        with content.open(info) as packed, open(folder / f"{split}_embeddings.pkl", "wb") as file:
            while chunk := packed.read(CHUNK):
                done += file.write(chunk)
                yield TransferProgress(f"unpack {name}", done, total)


def _store(folder: Path, name: str, into: Path, origin: str) -> Iterator[TransferProgress]:
    yield TransferProgress(f"import {name}", 0, 1)
    # Only tables that are missing or damaged come here.
    save(read(folder, name), into, origin, overwrite=True)
    yield TransferProgress(f"import {name}", 1, 1)


def _present(path: Path, wanted: Iterable[str], found: Container[str], only: Sequence[str]) -> list[str]:
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
    folder = cache().parent / "downloads"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _recorded() -> dict[str, str]:
    path = _downloads() / "hashes.json"
    try:
        content = json.loads(path.read_bytes()) if path.exists() else {}
    except ValueError:
        content = None
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise InvalidData(f"{path} does not hold hashes; remove it, and the next download is taken as it comes.")
    return content
