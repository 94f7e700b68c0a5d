"""Changes to the bytes of a good file."""

import random
import re
from collections.abc import Callable

_TEXTS = "0 -1 1 255 65536 2147483647 -2147483648 4294967296 9223372036854775808 1e400 nan inf 1e-320 true null [] {}"
NUMBERS = (*(text.encode() for text in _TEXTS.split()), b"9" * 30, b"9" * 5000, b'"x"', b"")
WORDS = (b"\x00", b"\xff" * 8, b"\x1b[2J", b"../../../x", b"/dev/zero", b"\n", b",", b'"', b"[" * 3000, b"{" * 3000)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """The content after one to four random changes."""
    for _ in range(rng.choice((1, 1, 2, 4))):
        content = rng.choice(_CHANGES)(content, rng)
    return content


def _flip(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 3, 30))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content) + 1)]


def _remove(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + content[start + rng.choice((1, 4, 100)) :]


def _insert(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.choice(WORDS) + content[start:]


def _repeat(content: bytes, rng: random.Random) -> bytes:
    start = rng.randrange(len(content) + 1)
    part = content[start : start + rng.choice((1, 10, 1000))]
    return content[:start] + part * rng.choice((2, 10, 1000)) + content[start:]


def _number(content: bytes, rng: random.Random) -> bytes:
    """Another number in place of one that is written in digits."""
    found = list(re.finditer(rb"-?\d+(\.\d+)?", content[:200_000]))
    if not found:
        return _integer(content, rng)
    start, end = rng.choice(found).span()
    return content[:start] + rng.choice(NUMBERS) + content[end:]


def _integer(content: bytes, rng: random.Random) -> bytes:
    """Extreme bytes in place of four or eight, as sizes are stored."""
    start, size = rng.randrange(len(content) + 1), rng.choice((4, 8))
    value = rng.choice((0, 1, 2 ** (8 * size - 1) - 1, 2 ** (8 * size) - 1, 2 ** (8 * size - 2)))
    return content[:start] + value.to_bytes(size, rng.choice(("little", "big"))) + content[start + size :]


def _shuffle_lines(content: bytes, rng: random.Random) -> bytes:
    lines = content.splitlines(keepends=True)
    rng.shuffle(lines)
    return b"".join(lines)


_CHANGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _remove,
    _insert,
    _repeat,
    _number,
    _number,
    _integer,
    _shuffle_lines,
)


def shrink(content: bytes, fails: Callable[[bytes], bool], attempts: int = 60) -> bytes:
    """A smaller content that still fails: ever smaller pieces are left out.

    Args:
        content: fails.
        fails: whether a content fails.
        attempts: how many contents to try.
    """
    pieces = 2
    while attempts > 0 and pieces <= len(content):
        size = -(-len(content) // pieces)
        for start in range(0, len(content), size):
            attempts -= 1
            shorter = content[:start] + content[start + size :]
            if attempts >= 0 and fails(shorter):
                content, pieces = shorter, max(2, pieces - 1)
                break
        else:
            pieces *= 2
    return content
