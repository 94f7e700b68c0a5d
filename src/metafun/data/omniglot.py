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
from .arrays import check_member, refused
from .images import decode, leads_out, load
from .parts import text
from .readers import existing
from .table import Table, counted, printable


@dataclass(frozen=True)
class Archive:
    """A published zip file. The MD5 is the one that torchvision checks, too."""

    md5: str
    drawings: int


ARCHIVES = {
    "images_background": Archive("68d2efa1b9178cc56df9314c21c6e718", 964 * 20),
    "images_evaluation": Archive("6b91aef0f799c5bb55b94e3f2daec811", 659 * 20),
}
URL = "https://github.com/brendenlake/omniglot/raw/master/python/{}.zip"
CLASS = re.compile(r"images_(?:background|evaluation)/[A-Za-z_()-]+/character[0-9]{2}")
DRAWING = re.compile(rf"{CLASS.pattern}/[0-9]{{4}}_[0-9]{{2}}\.png")
LARGEST = 2**26  # bytes of all drawings together; a drawing has some hundred

SIDE = 28
CLASSES, TEST_CLASSES = 1623, 423
VALIDATION = {"Armenian", "Bengali", "Early_Aramaic", "Hebrew", "Mkhedruli_(Georgian)"}


def read_omniglot(folder: Path, name: str = "omniglot") -> Table:
    """All drawings with the split of Vinyals et al., from the archives or what was unpacked from them."""
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
    return _table(name, np.stack([drawings[member] for member in members]), labels, vinyals_split(labels))


def omniglot_from_arrays(images: np.ndarray, labels: np.ndarray, classes: Any, name: str = "omniglot") -> Table:
    """The same of images [n, 28, 28] in which ink is high, the number of each one's class, and the classes' names."""
    names = text(classes, Path(name), "classes")
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE) or not len(images):
        came = f"{images.dtype} {list(images.shape)}"
        raise InvalidData(f"{name}: images must be uint8 [n, {SIDE}, {SIDE}] and not empty, but are {came}.")
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        came = f"{labels.dtype} {list(labels.shape)}"
        raise InvalidData(f"{name}: labels must be whole numbers [{len(images)}], one an image, but are {came}.")
    if labels.min() < 0 or labels.max() >= len(names):
        raise InvalidData(
            f"{name}: labels are from {labels.min()} to {labels.max()}; they count the {len(names):,} classes from 0."
        )
    splits = vinyals_split(names)
    of_row = labels.tolist()
    return _table(name, images.reshape(len(images), -1), [names[i] for i in of_row], [splits[i] for i in of_row])


def vinyals_split(names: Sequence[str]) -> list[str]:
    """The split of each name of a class, by Vinyals et al., "Matching networks for one shot learning" (2016).

    In the order of all 1,623 names the last 423 are for tests, which leaves 236 of the evaluation set to training.
    """
    if strange := [name for name in names if not CLASS.fullmatch(name)]:
        raise InvalidData(printable(f"'{strange[0]}' is not a class like images_background/Greek/character01."))
    ordered = sorted(set(names))
    if len(ordered) != CLASSES:
        raise InvalidData(
            f"{counted(len(ordered), 'classes')} of the {CLASSES:,} of Omniglot; the split is one of all."
        )
    test = set(ordered[-TEST_CLASSES:])
    return ["test" if name in test else "val" if name.split("/")[1] in VALIDATION else "train" for name in names]


def _table(name: str, features: UInt8[np.ndarray, "rows dx"], labels: list[str], splits: list[str]) -> Table:
    return Table.of(name, features, labels, splits, (SIDE, SIDE))


def _from_zip(path: Path, stem: str) -> dict[str, np.ndarray]:
    """Each drawing under its name in the archive. Nothing is written to disk."""
    _check_md5(path, stem)
    drawings = {}
    with refused(path, f"the archive of {URL.format(stem)}"), zipfile.ZipFile(path) as archive:
        for name, info in _members(archive, path, stem).items():
            with archive.open(info) as file:
                content = file.read(info.file_size)  # without a number it would unpack more than was declared
            drawings[name] = _drawing(decode(io.BytesIO(content), name, side=SIDE, colour=False))
    return drawings


def _members(archive: zipfile.ZipFile, path: Path, stem: str) -> dict[str, zipfile.ZipInfo]:
    """The drawings. Names are only compared, never used as paths."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        if not _is_drawing(info.filename, stem):
            continue
        check_member(info, path)
        if members.setdefault(info.filename, info) is not info:
            raise InvalidData(f"'{info.filename}' is there twice")
    total = sum(info.file_size for info in members.values())
    if total > LARGEST:
        raise InvalidData(f"it would unpack to {total:,} bytes; the archive has at most {LARGEST:,}")
    _check_count(len(members), stem)
    return members


def _from_folder(path: Path, stem: str) -> dict[str, np.ndarray]:
    found = {f"{stem}/{file.relative_to(path).as_posix()}": file for file in path.glob("*/*/*.png")}
    files = {name: file for name, file in found.items() if _is_drawing(name, stem)}
    with refused(path, f"the content of {URL.format(stem)}"):
        _check_count(len(files), stem)
        for name, file in files.items():
            if leads_out(file, path):
                raise InvalidData(f"'{name}' is a link that leads out of the folder")
        return {name: _drawing(load(file, side=SIDE, colour=False)) for name, file in files.items()}


def _is_drawing(name: str, stem: str) -> bool:
    return name.startswith(f"{stem}/") and DRAWING.fullmatch(name) is not None


def _drawing(image: Image.Image) -> UInt8[np.ndarray, "784"]:
    """A row of pixels, each the part of its area that is ink."""
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
        page = "it is a web page and not the archive: " if begins.startswith(b"<") else ""
        raise InvalidData(
            f"{path} ({path.stat().st_size:,} bytes) has MD5 {found}, expected {expected}; {page}"
            f"download it again from {URL.format(stem)}"
        )
