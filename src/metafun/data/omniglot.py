"""Omniglot: 1,623 characters of 50 alphabets, each drawn by 20 people, from the two archives its authors publish.

    DIR/images_background.zip    or, unpacked,    DIR/images_background/ALPHABET/characterNN/NNNN_NN.png
    DIR/images_evaluation.zip    or, unpacked,    DIR/images_evaluation/ALPHABET/characterNN/NNNN_NN.png

Lake, Salakhutdinov and Tenenbaum, "Human-level concept learning through probabilistic program induction" (2015).
"""

import hashlib
import io
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps

from ..errors import InvalidData
from .arrays import check_unpacked_size, parsing
from .checks import to_names
from .images import decode_image, leads_out, load_image
from .readers import existing
from .table import Table, counted, printable


@dataclass(frozen=True)
class OmniglotArchive:
    """The MD5 of a published zip file, which torchvision checks as well, and the number of drawings in it."""

    md5: str
    drawings: int


ARCHIVES = {
    "images_background": OmniglotArchive("68d2efa1b9178cc56df9314c21c6e718", 964 * 20),
    "images_evaluation": OmniglotArchive("6b91aef0f799c5bb55b94e3f2daec811", 659 * 20),
}
URL = "https://github.com/brendenlake/omniglot/raw/master/python/{}.zip"
CLASS = re.compile(r"images_(?:background|evaluation)/[A-Za-z_()-]+/character[0-9]{2}")
DRAWING = re.compile(rf"{CLASS.pattern}/[0-9]{{4}}_[0-9]{{2}}\.png")
MAX_BYTES = 2**26  # of an archive, packed or unpacked; a drawing has a few hundred bytes

SIDE = 28
CLASSES, TEST_CLASSES = 1623, 423
VALIDATION = {"Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)"}


def read_omniglot(folder: Path, name: str = "omniglot") -> Table:
    """All drawings, with the split of Vinyals et al.

    Args:
        folder: the folder with the two archives, packed or unpacked.
        name: the name of the table.
    """
    drawings: dict[str, np.ndarray] = {}
    for stem in ARCHIVES:
        zipped, unpacked = existing(folder) / f"{stem}.zip", folder / stem
        if zipped.is_file():
            drawings |= _from_zip(zipped, stem)
        elif unpacked.is_dir():
            drawings |= _from_folder(unpacked, stem)
        else:
            raise InvalidData(f"{folder} has no {zipped.name} and no folder {stem}; download {URL.format(stem)}")
    members = sorted(drawings)
    labels = [member.rpartition("/")[0] for member in members]
    features = np.stack([drawings[member] for member in members])
    return Table.of(name, features, labels, vinyals_split(labels), (SIDE, SIDE))


def omniglot_from_arrays(images: np.ndarray, labels: np.ndarray, classes: Any, name: str = "omniglot") -> Table:
    """The same table from arrays.

    Args:
        images: grey levels [n, 28, 28], uint8, with bright ink.
        labels: the index of each image's class [n].
        classes: the names of all 1,623 classes.
        name: the name of the table.
    """
    names = to_names(classes, Path(name), "classes")
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE) or not len(images):
        came = f"{images.dtype} {list(images.shape)}"
        raise InvalidData(f"{name}: images must be uint8 [n, {SIDE}, {SIDE}] and not empty, but are {came}.")
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        came = f"{labels.dtype} {list(labels.shape)}"
        raise InvalidData(f"{name}: labels must be whole numbers [{len(images)}], one per image, but are {came}.")
    if labels.min() < 0 or labels.max() >= len(names):
        raise InvalidData(
            f"{name}: labels are from {labels.min()} to {labels.max()}; expected 0 to {len(names) - 1}, one per class."
        )
    splits = vinyals_split(names)
    features, of_row = images.reshape(len(images), -1), labels.tolist()
    return Table.of(name, features, [names[i] for i in of_row], [splits[i] for i in of_row], (SIDE, SIDE))


def vinyals_split(names: Sequence[str]) -> list[str]:
    """The split of each class by Vinyals et al., "Matching networks for one shot learning" (2016).

    The last 423 of the 1,623 sorted names are for tests; 236 classes of the evaluation set remain for training.

    Args:
        names: the class of each row; together they must name all 1,623 classes.
    """
    if strange := [name for name in names if not CLASS.fullmatch(name)]:
        raise InvalidData(printable(f"'{strange[0]}' is not a class like images_background/Greek/character01."))
    ordered = sorted(set(names))
    if len(ordered) != CLASSES:
        raise InvalidData(
            f"{counted(len(ordered), 'classes')} of the {CLASSES:,} of Omniglot; the split needs all of them."
        )
    test = set(ordered[-TEST_CLASSES:])
    return ["test" if name in test else "val" if name.split("/")[1] in VALIDATION else "train" for name in names]


def _from_zip(path: Path, stem: str) -> dict[str, np.ndarray]:
    """Each drawing by its name in the archive. Nothing is written to disk."""
    _check_md5(path, stem)
    drawings = {}
    with parsing(path, f"the archive of {URL.format(stem)}"), zipfile.ZipFile(path) as archive:
        for name, info in _members(archive, path, stem).items():
            with archive.open(info) as file:
                content = file.read(info.file_size)  # without a size it would unpack more than declared
            drawings[name] = _to_row(decode_image(io.BytesIO(content), name, side=SIDE, colour=False))
    return drawings


def _members(archive: zipfile.ZipFile, path: Path, stem: str) -> dict[str, zipfile.ZipInfo]:
    """The drawings. Names are compared, never used as paths."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if not _is_drawing(info.filename, stem):
            continue
        check_unpacked_size(info, path)
        if members.setdefault(info.filename, info) is not info:
            raise InvalidData(f"'{info.filename}' occurs twice")
    total = sum(info.file_size for info in members.values())
    if total > MAX_BYTES:
        raise InvalidData(f"it would unpack to {total:,} bytes; the archive has at most {MAX_BYTES:,}")
    _check_count(len(members), stem)
    return members


def _from_folder(path: Path, stem: str) -> dict[str, np.ndarray]:
    found = {f"{stem}/{file.relative_to(path).as_posix()}": file for file in path.glob("*/*/*.png")}
    files = {name: file for name, file in found.items() if _is_drawing(name, stem)}
    with parsing(path, f"the content of {URL.format(stem)}"):
        _check_count(len(files), stem)
        for name, file in files.items():
            if leads_out(file, path):
                raise InvalidData(f"'{name}' is a link that leads out of the folder")
        return {name: _to_row(load_image(file, side=SIDE, colour=False)) for name, file in files.items()}


def _is_drawing(name: str, stem: str) -> bool:
    return name.startswith(f"{stem}/") and DRAWING.fullmatch(name) is not None


def _to_row(image: Image.Image) -> UInt8[np.ndarray, "784"]:
    """A row of pixels; each is the share of its area covered by ink."""
    return np.array(ImageOps.invert(image).resize((SIDE, SIDE), Image.Resampling.BOX)).reshape(-1)


def _check_count(found: int, stem: str) -> None:
    if found != ARCHIVES[stem].drawings:
        raise InvalidData(f"it has {counted(found, 'drawings')}, expected {ARCHIVES[stem].drawings:,}")


def _check_md5(path: Path, stem: str) -> None:
    with open(path, "rb") as file:
        begins = file.read(100).lstrip()
        file.seek(0)
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != (expected := ARCHIVES[stem].md5):
        page = "it is a web page, not the archive: " if begins.startswith(b"<") else ""
        raise InvalidData(
            f"{path} ({path.stat().st_size:,} bytes) has MD5 {found}, expected {expected}; {page}"
            f"download it again from {URL.format(stem)}"
        )
