"""Pictures of the characters of the DejaVu fonts: a table for few-shot classification that needs no download.

Each character is a class of 20 pictures, 28 × 28 pixels, in up to 12 faces that matplotlib includes. Each picture is
rotated, sheared, stretched, shifted and bent, with thicker or thinner strokes and some noise. The splits are scripts:

    val    Armenian, Georgian, Hebrew, Lao
    test   Arabic, Coptic, Cyrillic, Greek, Old Italic
    train  everything else: Latin, Canadian syllabics, digits and symbols
"""

import unicodedata
from collections.abc import Collection, Sequence
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Float, Float32, UInt8
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from .table import Table

VERSION = 1
SCRIPTS = {
    "val": {"ARMENIAN", "GEORGIAN", "HEBREW", "LAO"},
    "test": {"ARABIC", "ARABIC-INDIC", "COPTIC", "CYRILLIC", "GREEK", "OLD"},
}
# Patterns that differ by less than the noise at this size; and Lisu, which is rotated Latin.
EXCLUDED = {"BRAILLE", "BOX", "DIGRAM", "DOMINO", "HEXAGRAM", "LISU", "PLAYING", "QUADRANT", "TETRAGRAM"}
BLOCK_ELEMENTS = range(0x2580, 0x25A0)

# Every character must be in the first face, so that any two can be compared.
FACES = tuple(
    f"{family}{style}"
    for family, italic in (("DejaVuSans", "Oblique"), ("DejaVuSansMono", "Oblique"), ("DejaVuSerif", "Italic"))
    for style in ("", "-Bold", f"-{italic}", f"-Bold{italic}")
)
UPRIGHT = slice(None, None, 4)  # one face of each family
MIN_FACES = 4
SAME_CHARACTER = 0.92  # two pictures with at least this cosine show the same character

PICTURES = 20  # per character
SIDE = 28
CANVAS = 56  # side of a picture before distortion
BOX = 40  # longer side of the character on it
FONT_SIZE = 64
CHUNK = 2000


def make(among: Collection[str] | None = None) -> Table:
    """The table of all distinguishable characters (only those in `among`, if given); the same bytes on every call."""
    faces = [Face(name) for name in FACES]
    characters = distinct([c for c in candidates(faces) if among is None or c in among], faces[UPRIGHT])
    rng = np.random.default_rng(VERSION)
    sources = np.concatenate([originals(c, faces, rng) for c in characters])
    features = np.concatenate([distort(sources[i : i + CHUNK], rng) for i in range(0, len(sources), CHUNK)])
    labels = np.repeat([f"U+{ord(c):04X} {unicodedata.name(c)}" for c in characters], PICTURES)
    splits = np.repeat([split_of(c) for c in characters], PICTURES)
    return Table.of("glyphs", features.reshape(len(features), -1), labels.tolist(), splits.tolist(), (SIDE, SIDE))


def split_of(character: str) -> str:
    """The split of a character's script, which can be any word of its name: MODIFIER LETTER CYRILLIC EN is Cyrillic."""
    words = set(unicodedata.name(character).split())
    return next((split for split, scripts in SCRIPTS.items() if words & scripts), "train")


class Face:
    """A font in matplotlib's font folder, by its file name without suffix."""

    def __init__(self, name: str):
        path = str(Path(matplotlib.get_data_path(), "fonts", "ttf", f"{name}.ttf"))
        # The basic layout gives the same picture whether or not a text-shaping library is installed.
        self.font = ImageFont.truetype(path, FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
        self.characters = {chr(code) for code in FT2Font(path).get_charmap()}

    def picture(self, character: str, blur: float) -> UInt8[np.ndarray, "canvas canvas"]:
        """The character, centred on the canvas with a longer side of `BOX`, after a Gaussian blur of `blur` pixels."""
        left, top, right, bottom = map(int, self.font.getbbox(character))
        ink = Image.new("L", (max(right - left, 1), max(bottom - top, 1)))
        ImageDraw.Draw(ink).text((-left, -top), character, fill=255, font=self.font)
        ink = ink.crop(ink.getbbox())
        width, height = (max(1, round(side * BOX / max(ink.size))) for side in ink.size)
        canvas = Image.new("L", (CANVAS, CANVAS))
        ink = ink.resize((width, height), Image.Resampling.BICUBIC)
        canvas.paste(ink, ((CANVAS - width) // 2, (CANVAS - height) // 2))
        return np.asarray(canvas.filter(ImageFilter.GaussianBlur(blur)))


def candidates(faces: Sequence[Face]) -> list[str]:
    """Letters, numbers and symbols in enough faces; first test, then val, so that `distinct` keeps them whole."""
    order = ("test", "val", "train")

    def wanted(character: str) -> bool:
        return (
            unicodedata.category(character)[0] in "LNS"
            and unicodedata.name(character, "BOX").split()[0] not in EXCLUDED
            and ord(character) not in BLOCK_ELEMENTS
            and sum(character in face.characters for face in faces) >= MIN_FACES
        )

    return sorted(filter(wanted, faces[0].characters), key=lambda c: (order.index(split_of(c)), c))


def distinct(characters: Sequence[str], faces: Sequence[Face]) -> list[str]:
    """Drops blanks and characters that look like an earlier one in any of the faces (A after А and Α)."""
    similarity = np.max([cosines(characters, face) for face in faces], axis=0)
    kept: list[int] = []
    for i in np.flatnonzero(np.diag(similarity)):
        if not kept or similarity[i, kept].max() < SAME_CHARACTER:
            kept.append(int(i))
    return [characters[i] for i in kept]


def cosines(characters: Sequence[str], face: Face) -> Float[np.ndarray, "n n"]:
    """Cosines between the pictures of all pairs of characters; 0 if the face lacks one."""
    looks = np.zeros((len(characters), SIDE * SIDE))
    for i, character in enumerate(characters):
        if character in face.characters:
            looks[i] = face.picture(character, blur=1.5)[::2, ::2].ravel()
    # Sums of whole numbers are exact, so the choice of characters does not depend on the processor.
    products = looks @ looks.T
    norms = np.sqrt(np.maximum(np.diag(products), 1))
    return products / norms / norms[:, None]


def originals(
    character: str, faces: Sequence[Face], rng: np.random.Generator
) -> UInt8[np.ndarray, "pictures canvas canvas"]:
    """The pictures to distort: faces that have the character take turns in random order."""
    pictures = np.stack([face.picture(character, blur=1.0) for face in faces if character in face.characters])
    # Equal mean brightness over the ink: without it the hairlines of some symbols fall below τ in `distort`.
    ink = pictures.astype(np.int64)
    brightness = (ink**2).sum((1, 2), keepdims=True) / ink.sum((1, 2), keepdims=True)
    pictures = np.minimum(220 / brightness * ink, 255).astype(np.uint8)
    return pictures[np.resize(rng.permutation(len(pictures)), PICTURES)]


def distort(
    pictures: UInt8[np.ndarray, "n canvas canvas"], rng: np.random.Generator
) -> UInt8[np.ndarray, "n side side"]:
    """y(p) = clip(½ + γ (x(Ap + b + w(p)) − τ)) + noise, with an affine map A, b, a bend w and a stroke weight τ."""
    n = len(pictures)
    p = (np.arange(SIDE) - (SIDE - 1) / 2) * (CANVAS / SIDE)
    A, b = affine(n, rng)
    w = bend(n, rng)
    grid = np.stack(np.meshgrid(p, p, indexing="ij"), -1)
    at = np.einsum("ncd,ijd->cnij", A, grid) + b.T[:, :, None, None] + w + (CANVAS - 1) / 2
    x = bilinear(pictures, at.astype(np.float32)) / 255
    tau = rng.uniform(0.25, 0.5, (n, 1, 1)).astype(np.float32)
    y = np.clip(0.5 + 3 * (x - tau), 0, 1) + np.float32(0.06) * rng.standard_normal(x.shape, np.float32)
    return np.rint(255 * np.clip(y, 0, 1)).astype(np.uint8)


def affine(n: int, rng: np.random.Generator) -> tuple[Float[np.ndarray, "n 2 2"], Float[np.ndarray, "n 2"]]:
    """The inverse A of a rotation within ±15°, a shear and a stretch of both axes; and a shift b."""
    angle, shear = rng.uniform(-np.pi / 12, np.pi / 12, n), rng.uniform(-0.2, 0.2, n)
    stretch = np.exp(rng.uniform(np.log(0.82), np.log(1.1), (n, 2, 1)))
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    slant = np.array([[np.ones(n), np.zeros(n)], [shear, np.ones(n)]])
    return np.einsum("ijn,jkn->nik", slant, rotation) / stretch, rng.uniform(-2, 2, (n, 2))


def bend(n: int, rng: np.random.Generator) -> Float[np.ndarray, "2 n side side"]:
    """A smooth displacement w: low frequencies of the cosine transform along both axes."""
    waves = np.cos(np.pi * np.outer(np.arange(SIDE) + 0.5, np.arange(1, 4)) / SIDE)
    weights = rng.normal(0, 0.5, (2, n, 3, 3))
    return waves @ weights @ waves.T


def bilinear(
    pictures: UInt8[np.ndarray, "n canvas canvas"], at: Float32[np.ndarray, "2 n side side"]
) -> Float32[np.ndarray, "n side side"]:
    """The pictures interpolated at the places `at` (row, column); beyond the edge they repeat the edge."""
    row, column = np.clip(at, 0, CANVAS - 1.001)
    i, j = row.astype(np.intp), column.astype(np.intp)
    down, right = row - i, column - j
    flat = pictures.ravel()
    corner = np.arange(len(pictures))[:, None, None] * CANVAS**2 + i * CANVAS + j
    upper = flat[corner] * (1 - right) + flat[corner + 1] * right
    lower = flat[corner + CANVAS] * (1 - right) + flat[corner + CANVAS + 1] * right
    return (upper * (1 - down) + lower * down).astype(np.float32)
