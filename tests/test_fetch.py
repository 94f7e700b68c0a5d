"""Fetching from a real server that behaves well, or misbehaves in every way it can."""

import hashlib
import io
import json
import os
import socket
import stat
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import filelock
import pytest

import metafun.data.fetch
from metafun.data.catalog import open_table, verify
from metafun.data.download import download
from metafun.data.fetch import LEO, Archive, fetch, missing
from metafun.errors import InvalidData
from tables import check_is_example, write_leo

NAMES = ["miniimagenet-center", "tieredimagenet-multiview"]
FOLDERS = ["miniImageNet/center", "tieredImageNet/multiview"]


class Handler(BaseHTTPRequestHandler):
    """Serves `server.content`; `server.answers` lists ways to misbehave, one per request."""

    def do_GET(self):
        server = self.server
        server.asked.append((self.headers.get("Range"), self.headers.get("If-Range")))
        way = server.answers.pop(0) if server.answers else ""
        content, start, status = server.content, 0, 200
        if way in ("404", "503", "599"):
            self.send_error(int(way), "so " * 10_000 if way == "599" else None)
            return
        if way == "hang":
            server.released.wait(10)
            return
        asked = self.headers.get("Range")
        fresh = self.headers.get("If-Range") in (None, server.etag) or way == "ignore If-Range"
        if asked and way != "ignore Range" and fresh:
            start, status = int(asked.removeprefix("bytes=").removesuffix("-")), 206
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if way == "html" else "application/zip")
        if server.etag:
            self.send_header("ETag", server.etag)
        body = b"<html>log in</html>" if way in ("html", "html as zip") else content[start:]
        if status == 206:
            begin = start + 1 if way == "wrong Content-Range" else start
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        if way != "no length":
            self.send_header("Content-Length", str(10**15 if way == "huge" else len(body)))
        self.end_headers()
        if way in ("truncate", "stall"):
            body = body[: len(body) // 2]
        self.wfile.write(body)
        if way == "stall":
            self.wfile.flush()
            server.released.wait(10)

    def log_message(self, *arguments):
        pass


@pytest.fixture(autouse=True)
def downloads(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.delenv("METAFUN_DATA", raising=False)
    return tmp_path / "cache" / "metafun" / "downloads"


@pytest.fixture
def server(archive):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.content, server.etag, server.answers, server.asked = archive, '"one"', [], []
    server.released = threading.Event()
    server.url = f"http://127.0.0.1:{server.server_address[1]}/embeddings.zip"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    server.server_close()
    thread.join()


def zipped(files: dict) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def pickles(tmp_path):
    """The members of an archive of two tables."""
    root = tmp_path / "unpacked"
    for folder in FOLDERS:
        write_leo(root / "embeddings" / folder)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.pkl"))}


@pytest.fixture
def archive(pickles):
    return zipped(pickles | {"embeddings/README": b"x", "__MACOSX/" + next(iter(pickles)): b"x"})


def content(folder) -> set[str]:
    """The names in a folder, without lock files."""
    return {name for name in os.listdir(folder) if not name.endswith(".lock")}


def get(server, timeout=5.0, archive=LEO, **options):
    return list(fetch(archive, url=server.url, timeout=timeout, **options))


def test_a_good_server(server, downloads, tmp_path):
    steps = get(server)
    for name in NAMES:
        check_is_example(open_table(name))
        verify(name)
    assert {step.step for step in steps} >= {"download", "check", f"unpack {NAMES[0]}", f"import {NAMES[1]}"}
    digest = hashlib.sha256(server.content).hexdigest()
    assert json.loads((downloads / "hashes.json").read_text()) == {"leo": digest}
    assert digest in steps[-1].note and "It has no published hash" in steps[-1].note
    assert content(downloads) == {"embeddings.zip", "hashes.json"}
    assert get(server, only=NAMES) == [] and len(server.asked) == 1


def test_only_the_requested_tables_are_stored(server):
    get(server, only=[NAMES[1]])
    assert NAMES[0] in missing() and NAMES[1] not in missing()
    get(server, only=[NAMES[0]])
    assert len(server.asked) == 1, "the archive is not downloaded again"
    with pytest.raises(
        InvalidData, match=r"has no miniimagenet-multiview \(mini.*To download it again, remove .*embeddings.zip"
    ):
        get(server, only=["miniimagenet-multiview"])
    with pytest.raises(InvalidData, match=r"no table 'miniimagenet-centre'; did you mean 'miniimagenet-center'"):
        get(server, only=["miniimagenet-centre"])


@pytest.mark.parametrize("way", ["truncate", "stall"])
def test_a_broken_download_resumes_where_it_stopped(server, downloads, way):
    server.answers = [way]
    half, whole = len(server.content) // 2, len(server.content)
    with pytest.raises(InvalidData, match=f"broke after {half:,} of {whole:,} bytes .* the same command resumes"):
        get(server, timeout=0.3)
    assert (downloads / "embeddings.zip.part").stat().st_size == half
    assert missing(NAMES) == NAMES
    get(server)
    assert server.asked == [(None, None), (f"bytes={half}-", '"one"')]
    check_is_example(open_table(NAMES[0]))


def test_an_interrupted_download_resumes(server, downloads):
    steps = fetch(LEO, url=server.url)
    next(steps)
    steps.close()
    assert (downloads / "embeddings.zip.part").stat().st_size == 2
    get(server)
    assert server.asked[1][0] == "bytes=2-"


@pytest.mark.parametrize(("way", "requests"), [("ignore Range", 2), ("wrong Content-Range", 3)])
def test_a_server_that_cannot_resume_starts_over(server, way, requests):
    server.answers = ["truncate", way]
    with pytest.raises(InvalidData, match="broke after"):
        get(server)
    get(server)
    assert len(server.asked) == requests
    check_is_example(open_table(NAMES[0]))


@pytest.mark.parametrize("way", ["", "ignore If-Range", "no ETag", "shorter"])
def test_two_versions_of_a_file_are_never_mixed(server, pickles, way):
    server.answers = ["truncate", way]
    server.etag = None if way == "no ETag" else '"one"'
    new = zipped(pickles if way == "shorter" else pickles | {"more": os.urandom(100)})
    server.content = new + os.urandom(2 * len(new)) if way == "shorter" else server.content
    with pytest.raises(InvalidData, match="broke after"):
        get(server)
    server.content, server.etag = new, None if way == "no ETag" else '"one"' if way == "shorter" else '"two"'
    steps = get(server)
    assert hashlib.sha256(new).hexdigest() in steps[-1].note


def test_a_part_of_another_mirror_is_not_used(server, downloads):
    server.answers = ["truncate"]
    with pytest.raises(InvalidData, match="broke after"):
        get(server)
    list(fetch(LEO, url=server.url + "?mirror"))
    assert server.asked[1] == (None, None)


def test_a_complete_part_is_not_requested_again(server, downloads):
    downloads.mkdir(parents=True)
    (downloads / "embeddings.zip.part").write_bytes(server.content)
    known = {"url": server.url, "etag": None, "total": len(server.content)}
    (downloads / "embeddings.zip.part.json").write_text(json.dumps(known))
    get(server)
    assert server.asked == [] and missing(NAMES) == []


@pytest.mark.parametrize(
    ("way", "message"),
    [
        ("404", "answered 404 Not Found; check the connection, name a mirror with --url, or give a local file"),
        ("503", "answered 503"),
        ("599", "^.{30,80} answered 599 (so ){333}s…; check the connection"),
        ("html", "answered with a web page, not with a zip file"),
        ("html as zip", "did not answer with a zip file .it begins with b'<h'"),
        ("hang", "no answer from .* .timed out"),
        ("huge", "announces 1,000,000,000,000,000 bytes"),
    ],
)
def test_other_answers_are_refused_and_the_next_call_succeeds(server, downloads, way, message):
    server.answers = [way]
    began = time.monotonic()
    with pytest.raises(InvalidData, match=message):
        get(server, timeout=0.3)
    assert time.monotonic() - began < 5
    assert (downloads / "embeddings.zip.part").stat().st_size == 0
    get(server)
    check_is_example(open_table(NAMES[0]))


def test_the_length_may_be_unknown(server):
    server.answers = ["no length"]
    get(server)
    check_is_example(open_table(NAMES[0]))


def test_an_endless_download_is_refused(server, tmp_path):
    server.answers = ["no length"]
    with pytest.raises(InvalidData, match="sent more than 1,000 bytes"):
        list(download(server.url, tmp_path / "x.zip", max_bytes=1000))


def test_only_web_addresses_are_accepted():
    for url in ("file:///etc/passwd", "ftp://host/x.zip", "x.zip"):
        with pytest.raises(InvalidData, match="is not an http or https address"):
            list(fetch(LEO, url=url))


def test_no_server():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(InvalidData, match=r"no answer from http.*refused"):
        list(fetch(url=f"http://127.0.0.1:{port}/embeddings.zip"))


def test_two_processes_do_not_write_one_file(server, tmp_path):
    first = download(server.url, tmp_path / "x.zip", max_bytes=2**20)
    next(first)
    with pytest.raises(InvalidData, match="another process is downloading"):
        list(download(server.url, tmp_path / "x.zip", max_bytes=2**20))
    first.close()


def test_a_file_that_another_process_completed_meanwhile_is_kept(server, tmp_path, monkeypatch):
    """The other process finishes just before this one gets the lock."""
    target, lock = tmp_path / "x.zip", filelock.FileLock

    def late(*arguments, **options):
        monkeypatch.setattr(filelock, "FileLock", lock)
        list(download(server.url, target, max_bytes=2**20))
        return lock(*arguments, **options)

    monkeypatch.setattr(filelock, "FileLock", late)
    assert list(download(server.url, target, max_bytes=2**20)) == []
    assert target.read_bytes() == server.content and len(server.asked) == 1


def test_the_part_is_closed_and_the_lock_held_when_the_file_gets_its_name(server, tmp_path, monkeypatch):
    replace, target, opened = os.replace, tmp_path / "x.zip", []

    def keep(path, *arguments):
        opened.append(open(path, *arguments))  # noqa: SIM115
        return opened[-1]

    def checked(old, new):
        if new == target:
            assert [file.closed for file in opened if file.name == str(old)] == [True]
            with pytest.raises(InvalidData, match="another process is downloading"):
                list(download(server.url, target, max_bytes=2**20))
        replace(old, new)

    monkeypatch.setattr("metafun.data.download.open", keep, raising=False)
    monkeypatch.setattr(os, "replace", checked)
    list(download(server.url, target, max_bytes=2**20))
    assert target.read_bytes() == server.content
    assert not {"x.zip.part", "x.zip.part.json"} & content(tmp_path)


def test_our_own_errors_are_not_blamed_on_the_file(tmp_path, archive, monkeypatch):
    def broken(*arguments, **options):
        raise KeyError("a mistake of ours")

    (tmp_path / "mine.zip").write_bytes(archive)
    monkeypatch.setattr(metafun.data.fetch, "save_table", broken)
    with pytest.raises(KeyError, match="a mistake of ours"):
        list(fetch(source=tmp_path / "mine.zip"))


def test_a_wrong_hash_is_refused(server, downloads):
    with pytest.raises(InvalidData, match=r"expected 000000000000…, and was removed"):
        get(server, archive=Archive("leo", server.url, "0" * 64, 2**20))
    assert not (downloads / "embeddings.zip").exists() and missing(NAMES) == NAMES
    get(server, archive=Archive("leo", server.url, hashlib.sha256(server.content).hexdigest(), 2**20))
    assert not (downloads / "hashes.json").exists()


def test_later_downloads_must_have_the_first_hash(server, downloads, pickles):
    get(server, only=[NAMES[0]])
    (downloads / "embeddings.zip").unlink()
    good, server.content = server.content, zipped(pickles)
    with pytest.raises(InvalidData, match=r"has SHA-256 .* remove its line from .*hashes.json"):
        get(server)
    server.content = good
    assert "published" not in get(server)[-1].note
    (downloads / "embeddings.zip").unlink()
    (downloads / "hashes.json").write_text("[]")
    with pytest.raises(InvalidData, match=r"hashes.json does not contain hashes"):
        get(server, only=["miniimagenet-multiview"])


def test_a_damaged_archive_is_renamed_and_its_hash_not_recorded(server, downloads):
    good = server.content
    damaged = bytearray(good)
    damaged[200] ^= 1
    for server.content in (bytes(damaged), good[:-100]):
        with pytest.raises(
            InvalidData, match=r"embeddings.zip is refused: .* renamed to .*embeddings.zip.bad; fetch it again"
        ):
            get(server)
        assert content(downloads) == {"embeddings.zip.bad"} and missing(NAMES) == NAMES
    server.content = good
    get(server)
    assert missing(NAMES) == []


def hostile(name: str, mode: int = 0) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


@pytest.mark.parametrize(
    ("member", "content", "message"),
    [
        ("../miniImageNet/center/train_embeddings.pkl", b"x", "leads out of the archive"),
        ("/miniImageNet/center/train_embeddings.pkl", b"x", "leads out of the archive"),
        (hostile("miniImageNet/center/train_embeddings.pkl", stat.S_IFLNK | 0o777), b"/etc/passwd", "leads out"),
        ("other/miniImageNet/center/train_embeddings.pkl", b"x", "occurs twice"),
        ("tieredImageNet/center/train_embeddings.pkl", bytes(2**22), "would unpack from"),
        ("tieredImageNet/center/train_embeddings.pkl", os.urandom(2**20), "would unpack to 1,0.* at most 1,000,000"),
    ],
)
def test_hostile_archives_are_refused(tmp_path, pickles, member, content, message):
    path = tmp_path / "evil.zip"
    path.write_bytes(zipped(pickles | {member: content}))
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    with pytest.raises(InvalidData, match=rf"evil.zip is refused: .*{message}"):
        list(fetch(Archive("leo", "", None, 1_000_000), source=path))
    assert {p for p in tmp_path.rglob("*") if p.is_file()} == before


def test_unexpected_members_are_not_unpacked(tmp_path, pickles):
    path = tmp_path / "mixed.zip"
    path.write_bytes(
        zipped(pickles | {"../../escaped": b"x", "/tmp/escaped": b"x", "miniImageNet/center/run.py": b"x"})
    )
    list(fetch(source=path))
    assert missing(NAMES) == []
    assert not [p for p in tmp_path.rglob("*") if p.name in ("escaped", "run.py")]


def test_a_member_with_a_false_size_is_refused(tmp_path, pickles):
    content = bytearray(zipped(pickles))
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = content.index(signature) + offset
        content[at : at + 4] = (100).to_bytes(4, "little")
    (tmp_path / "liar.zip").write_bytes(content)
    with pytest.raises(InvalidData, match=r"liar.zip is refused"):
        list(fetch(source=tmp_path / "liar.zip"))
    assert missing(NAMES) == NAMES


def test_local_archives(tmp_path, archive, pickles):
    (tmp_path / "mine.zip").write_bytes(archive)
    list(fetch(source=tmp_path / "mine.zip", only=[NAMES[0]]))
    list(fetch(source=tmp_path / "unpacked"))
    for name in NAMES:
        check_is_example(open_table(name))
    with pytest.raises(InvalidData, match=r"has no miniimagenet-multiview and no tieredimagenet-center"):
        list(fetch(source=tmp_path))
    with pytest.raises(InvalidData, match=r"there is no file or folder .*nothing.zip"):
        list(fetch(source=tmp_path / "nothing.zip"))


def test_an_incomplete_table_is_not_stored(tmp_path, pickles):
    (tmp_path / "half.zip").write_bytes(zipped(dict(list(pickles.items())[1:])))
    list(fetch(source=tmp_path / "half.zip"))
    assert missing(NAMES) == [NAMES[0]]


def test_a_damaged_table_is_fetched_again(tmp_path, archive):
    (tmp_path / "mine.zip").write_bytes(archive)
    list(fetch(source=tmp_path / "mine.zip"))
    (tmp_path / "cache" / "metafun" / "data" / NAMES[0] / "table.json").write_text("{}")
    assert NAMES[0] in missing()
    list(fetch(source=tmp_path / "mine.zip"))
    check_is_example(open_table(NAMES[0]))
