"""Pickles that try to call something: random programs of opcodes, and calls under every name that might pass."""

import random

# Each would create the file `executed` in the current folder.
CALLS = (
    b"cos\nsystem\n(S'touch executed'\ntR",
    b'cbuiltins\neval\n(S\'open("executed", "w")\'\ntR',
    b"cposix\nsystem\nS'touch executed'\n\x85R",
    b"(S'touch executed'\nios\nsystem\n",
    b"\x8c\x02os\x8c\x06system\x93\x8c\x0etouch executed\x85R",
    b"cnumpy\nload\n(S'executed'\ntR",
    b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR",
    b"c_codecs\nencode\n(S'touch executed'\nS'latin1'\ntR",
    b"csubprocess\nPopen\n(S'touch'\nS'executed'\nl\x85R",
)
PIECES = (
    *(bytes([code]) for code in b"NIJKM(tl]})0125a.esubqrRoi\x85\x86\x87\x88\x89\x8f\x90\x91\x93\x94\x95"),
    b"K\x01",
)
PIECES += (b"q\x00", b"h\x00", b"U\x03abc", b"I99999999999\n", b"L" + b"9" * 5000 + b"L\n", b"\x8a\xff" + b"\xff" * 255)


def random_pickle(rng: random.Random) -> bytes:
    """A pickle of up to a few thousand opcodes."""
    pieces = [*PIECES, *CALLS]
    repeated = rng.choice(pieces) * rng.choice((1, 1, 1, 1000, 100_000))
    chosen = [rng.choice(pieces) for _ in range(rng.choice((3, 20, 300)))]
    return b"\x80" + bytes([rng.randrange(6)]) + b"".join([*chosen, repeated, *chosen[:5]]) + b"."
