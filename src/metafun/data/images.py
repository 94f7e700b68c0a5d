"""Tables of images: a folder with a sub-folder of images for each class.

    DIR/CLASS/*    or    DIR/{train,val,test}/CLASS/*

What cannot be read is left out and told in a line each; the rest becomes a table.
"""

import os
import warnings
from collections import Counter
from pathlib import Path
from typing import IO

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError

from ..errors import InvalidConfig, InvalidData
from .arrays import LARGEST
from .parts import Part, checked
from .readers import Division, existing
from .table import SPLITS, Table, counted, printable

# What cameras, scanners and drawing programs write. Of the others one starts a program (EPS), and most are hardly used.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
# Few photographs have more. Pillow's own limits are higher, and any part of a program can lift them.
LARGEST_IMAGE = 2**26  # pixels
LARGEST_FILE = 2**28  # bytes
LARGEST_SIDE = 1024


def read_images(
    folder: Path, name: str, *, side: int = 28, colour: bool = False, division: Division | None = None
) -> tuple[Table, list[str]]:
    """The images in `folder` as a table of `pixels`, and a line for each file or folder that was left out.

    Where `folder` has train, val and test with the classes in them, these are the splits; else `division` makes them.
    """
    problems: list[str] = []
    classes = _classes(existing(folder), problems)
    images = [entries(path, folder, problems) for path, _ in classes]
    _check_size(folder, sum(map(len, images)), side, colour)
    parts: list[Part] = []
    for (path, split), files in zip(classes, images, strict=True):
        if rows := _rows(files, side, colour, problems):
            splits = None if split is None else [split] * len(rows)
            parts.append(checked(folder, np.stack(rows), [path.name] * len(rows), splits))
        else:
            problems.append(printable(f"{path}: no image that can be read; the class is left out"))
    divided = any(split is not None for _, split in classes)
    _check_enough(folder, len(parts), 1 if divided else len(SPLITS), problems)
    labels = [label for part in parts for label in part.labels]
    splits = [split for part in parts for split in part.splits or ()] or (division or Division())(labels)
    features = np.concatenate([part.features for part in parts])
    return Table.of(name, features, labels, splits, (side, side)), problems


def pixels(path: Path, side: int, colour: bool) -> UInt8[np.ndarray, "dx"]:
    """An image as a row of `side` × `side` pixels, height before width before colours.

    It is squeezed where it is not square: of the aspect ratio nothing is kept, and nothing is cut off.
    """
    if not 1 <= side <= LARGEST_SIDE:
        raise InvalidConfig(f"side {side} must be from 1 to {LARGEST_SIDE:,} pixels.")
    image = load(path, side=side, colour=colour)
    return np.array(image.resize((side, side), Image.Resampling.LANCZOS)).reshape(-1)


def load(path: Path, *, side: int, colour: bool) -> Image.Image:
    """The image in a file, as `decode` gives it."""
    try:
        if path.is_dir():
            raise InvalidData(printable(f"{path}: a folder in that of a class; it is not looked into"))
        if not path.is_file():  # to open a pipe would wait for its other end
            raise InvalidData(printable(f"{path}: not there, or not a file"))
        if (size := path.stat().st_size) > LARGEST_FILE:
            raise InvalidData(printable(f"{path}: {size:,} bytes; at most {LARGEST_FILE:,} are read"))
        with open(path, "rb") as file:
            return decode(file, str(path), side=side, colour=colour)
    except OSError as error:
        raise InvalidData(printable(f"{path}: {error.strerror or error}")) from None


def decode(file: IO[bytes], where: str, *, side: int, colour: bool) -> Image.Image:
    """The first picture of an image file, upright, in 8-bit grey or RGB, on white where it is transparent.

    It may be smaller than the file says, but not than twice `side`. A damaged or hostile file may fail in any way
    there is; `where` begins the line that says so.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of metadata that Pillow finds odd
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                return _upright(image, "RGB" if colour else "L", side)
    except UnidentifiedImageError:
        reason = f"not an image, or not one of {', '.join(FORMATS)}"
    except MemoryError:
        reason = "does not fit into memory"
    except Exception as error:
        reason = str(error).rstrip(".") or type(error).__name__
    raise InvalidData(printable(f"{where}: {reason}"))


def entries(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    """What is in `folder`, in order, without what is hidden and without links that lead out of `root`."""
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        problems.append(printable(f"{folder}: {error.strerror or error}"))
        return []
    outside = {path for path in found if leads_out(path, root)}
    problems += [printable(f"{path}: a link that leads out of {root}; it is not followed") for path in sorted(outside)]
    return [path for path in found if path not in outside]


def folders(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    """The folders among the `entries`; one that is a link would bring its images in twice."""
    found = entries(folder, root, problems)
    for path in found:
        if not path.is_dir():
            problems.append(printable(f"{path}: not in the folder of a class"))
        elif path.is_symlink():
            problems.append(printable(f"{path}: a link to a folder; it is not followed"))
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def leads_out(path: Path, root: Path) -> bool:
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _classes(folder: Path, problems: list[str]) -> list[tuple[Path, str | None]]:
    """The folder of each class, and its split where the folders tell."""
    top = folders(folder, folder, problems)
    divided = [path for path in top if path.name in SPLITS and folders(path, folder, [])]
    if not divided:
        return [(path, None) for path in top]
    if beside := [path.name for path in top if path not in divided]:
        raise InvalidData(
            printable(f"{folder} has class folders in '{divided[0].name}', but none in '{beside[0]}' beside it; ")
            + "expected class folders only, or train, val and test with class folders in each."
        )
    classes: list[tuple[Path, str | None]] = [
        (path, split.name) for split in divided for path in folders(split, folder, problems)
    ]
    _check_disjoint(folder, [path.name for path, _ in classes])
    return classes


def _rows(files: list[Path], side: int, colour: bool, problems: list[str]) -> list[np.ndarray]:
    rows = []
    for path in files:
        try:
            rows.append(pixels(path, side, colour))
        except InvalidData as error:
            problems.append(str(error))
    return rows


def _upright(image: Image.Image, mode: str, side: int) -> Image.Image:
    if image.width * image.height > LARGEST_IMAGE:
        raise InvalidData(f"{image.width:,} × {image.height:,} pixels; at most {LARGEST_IMAGE:,} are read")
    # A large JPEG is decoded at a fraction of its size, seven times as fast, and differs by a grey level or two.
    image.draft(mode, (2 * side, 2 * side))
    image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise InvalidData("pixels of floating point, whose range is not known; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        image = _from_16_bits(image)
    if image.mode.endswith(("A", "a")) or "transparency" in image.info:
        # Ink on a transparent ground is often black on black underneath.
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert(mode)


def _from_16_bits(image: Image.Image) -> Image.Image:
    """By the higher byte, as Pillow reads 16-bit colours; it would clip 16-bit grey."""
    values = np.asarray(image)
    if image.mode == "I" and 0 <= values.min() <= values.max() < 256:  # 8 bits in 32
        return Image.fromarray(values.astype(np.uint8))
    if values.min() < 0 or values.max() >= 2**16:
        raise InvalidData("pixels of more than 16 bits; save it with 8 or 16")
    return Image.fromarray((values // 256).astype(np.uint8))


def _check_size(folder: Path, images: int, side: int, colour: bool) -> None:
    if images * side**2 * (3 if colour else 1) > LARGEST:
        raise InvalidData(f"{folder}: {images:,} images of {side} × {side} pixels are too many; choose a smaller side.")


def _check_disjoint(folder: Path, names: list[str]) -> None:
    if shared := [name for name, times in Counter(names).items() if times > 1]:
        raise InvalidData(
            printable(f"{folder}: class '{shared[0]}' is in more than one of train, val and test ")
            + f"({counted(len(shared), 'such classes')}); the splits must have no class in common, so that tests meet "
            "new ones: put all images of a class into one folder, and the folders of the classes side by side."
        )


def _check_enough(folder: Path, classes: int, least: int, problems: list[str]) -> None:
    if classes < least:
        raise InvalidData(
            f"{folder} has {counted(classes, 'classes')} with images, expected {least} or more: "
            "a sub-folder for each class, with its images in it"
            + (f" ({counted(len(problems), 'problems')}, first {problems[0]})." if problems else ".")
        )
