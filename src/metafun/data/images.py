"""Tables of images: a folder with a sub-folder of images for each class.

    DIR/CLASS/*    or    DIR/{train,val,test}/CLASS/*

Files that cannot be read are skipped and reported, one line each.
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
from .arrays import MAX_BYTES
from .checks import TablePart, checked_part
from .readers import Division, existing, join_parts
from .table import SPLITS, Table, counted, printable

# What cameras, scanners and drawing programs write. Others are rare, and EPS would start an interpreter.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
# Few photographs have more. Pillow's limits are higher, and any library can lift them.
MAX_PIXELS = 2**26
MAX_FILE_BYTES = 2**28
MAX_SIDE = 1024
# Of a file. Panoramas have less; a row of all MAX_PIXELS would exceed what resizing can weigh.
MAX_FILE_SIDE = 2**16


def read_images(
    folder: Path, name: str, *, side: int = 28, colour: bool = False, division: Division | None = None
) -> tuple[Table, list[str]]:
    """The images in `folder` as a table, and a line for each file or folder that was skipped.

    Args:
        folder: the folder with a sub-folder for each class, or with train, val and test above them.
        name: the name of the table.
        side: height and width in pixels of the rows.
        colour: keep three colours instead of grey.
        division: how to divide the classes if the folder has no train, val and test.
    """
    problems: list[str] = []
    classes = _find_classes(existing(folder), problems)
    images = [entries(path, folder, problems) for path, _ in classes]
    _check_size(folder, sum(map(len, images)), side, colour)
    parts: list[TablePart] = []
    for (path, split), files in zip(classes, images, strict=True):
        if rows := _read_rows(files, side, colour, problems):
            splits = None if split is None else [split] * len(rows)
            parts.append(checked_part(folder, np.stack(rows), [path.name] * len(rows), splits))
        else:
            problems.append(printable(f"{path}: no readable image; the class is skipped"))
    divided = any(split is not None for _, split in classes)
    _check_enough(folder, len(parts), 1 if divided else len(SPLITS), problems)
    return join_parts(folder, parts, name, division, (side, side)), problems


def pixels(path: Path, side: int, colour: bool) -> UInt8[np.ndarray, "dx"]:
    """An image as a row of `side` × `side` pixels, in the order height, width, colours.

    An image that is not square is stretched, not cropped.

    Args:
        path: the image file.
        side: height and width of the result in pixels.
        colour: keep three colours instead of grey.
    """
    if not 1 <= side <= MAX_SIDE:
        raise InvalidConfig(f"side {side} must be from 1 to {MAX_SIDE:,} pixels.")
    image = load_image(path, side=side, colour=colour)
    return np.array(image.resize((side, side), Image.Resampling.LANCZOS)).reshape(-1)


def load_image(path: Path, *, side: int, colour: bool) -> Image.Image:
    """Decodes the image file `path`; the other arguments are those of `decode_image`."""
    try:
        if path.is_dir():
            raise InvalidData(printable(f"{path}: a folder inside a class folder; it is skipped"))
        if not path.is_file():  # opening a pipe would block
            raise InvalidData(printable(f"{path}: missing, or not a file"))
        if (size := path.stat().st_size) > MAX_FILE_BYTES:
            raise InvalidData(printable(f"{path}: {size:,} bytes; at most {MAX_FILE_BYTES:,} are read"))
        with open(path, "rb") as file:
            return decode_image(file, str(path), side=side, colour=colour)
    except OSError as error:
        raise InvalidData(printable(f"{path}: {error.strerror or error}")) from None


def decode_image(file: IO[bytes], where: str, *, side: int, colour: bool) -> Image.Image:
    """The first frame of an image file, upright, in 8-bit grey or RGB; transparent areas become white.

    Every error becomes InvalidData: a damaged or hostile file can make the decoder fail in any way.

    Args:
        file: the open file.
        where: the name of the file, for messages.
        side: large images may be decoded at a reduced size, but at no less than twice this many pixels.
        colour: RGB instead of grey.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                return _normalise(image, "RGB" if colour else "L", side)
    except UnidentifiedImageError:
        reason = f"not an image, or not one of {', '.join(FORMATS)}"
    except MemoryError:
        reason = "does not fit into memory"
    except Exception as error:
        reason = str(error).rstrip(".") or type(error).__name__
    raise InvalidData(printable(f"{where}: {reason}"))


def entries(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    """The sorted content of `folder`, without hidden files and without links that lead out of `root`.

    Args:
        folder: the folder to list.
        root: the folder that links must stay in.
        problems: a line is appended for each link that is skipped.
    """
    try:
        found = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        problems.append(printable(f"{folder}: {error.strerror or error}"))
        return []
    outside = {path for path in found if leads_out(path, root)}
    problems += [printable(f"{path}: a link that leads out of {root}; it is skipped") for path in sorted(outside)]
    return [path for path in found if path not in outside]


def folders(folder: Path, root: Path, problems: list[str]) -> list[Path]:
    """The folders among `entries`, without links, which would add their images twice; same arguments."""
    found = entries(folder, root, problems)
    for path in found:
        if not path.is_dir():
            problems.append(printable(f"{path}: not in a class folder"))
        elif path.is_symlink():
            problems.append(printable(f"{path}: a link to a folder; it is skipped"))
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def leads_out(path: Path, root: Path) -> bool:
    """Whether `path` is, or is behind, a link to a place outside `root`."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def _find_classes(folder: Path, problems: list[str]) -> list[tuple[Path, str | None]]:
    """The folder of each class, and its split if it is in train, val or test."""
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


def _read_rows(files: list[Path], side: int, colour: bool, problems: list[str]) -> list[np.ndarray]:
    rows = []
    for path in files:
        try:
            rows.append(pixels(path, side, colour))
        except InvalidData as error:
            problems.append(str(error))
    return rows


def _normalise(image: Image.Image, mode: str, side: int) -> Image.Image:
    if image.width * image.height > MAX_PIXELS:
        raise InvalidData(f"{image.width:,} × {image.height:,} pixels; at most {MAX_PIXELS:,} are read")
    if max(image.size) > MAX_FILE_SIDE:
        raise InvalidData(f"{image.width:,} × {image.height:,} pixels; a side has at most {MAX_FILE_SIDE:,}")
    # Decodes a large JPEG at a fraction of its size: seven times as fast, with a difference of one or two grey levels.
    image.draft(mode, (2 * side, 2 * side))
    image = ImageOps.exif_transpose(image)
    if image.mode == "F":
        raise InvalidData("floating-point pixels of unknown range; save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        image = _from_16_bits(image)
    if image.mode.endswith(("A", "a")) or "transparency" in image.info:
        # Drawing programs often save black ink on transparent black.
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
    return image.convert(mode)


def _from_16_bits(image: Image.Image) -> Image.Image:
    """Keeps the high byte, as Pillow does for 16-bit colours; 16-bit grey it would clip."""
    values = np.asarray(image)
    if image.mode == "I" and 0 <= values.min() <= values.max() < 256:  # 8-bit values in 32 bits
        return Image.fromarray(values.astype(np.uint8))
    if values.min() < 0 or values.max() >= 2**16:
        raise InvalidData("pixels of more than 16 bits; save it with 8 or 16 bits")
    return Image.fromarray((values // 256).astype(np.uint8))


def _check_size(folder: Path, images: int, side: int, colour: bool) -> None:
    if images * side**2 * (3 if colour else 1) > MAX_BYTES:
        raise InvalidData(f"{folder}: {images:,} images of {side} × {side} pixels are too many; choose a smaller side.")


def _check_disjoint(folder: Path, names: list[str]) -> None:
    if shared := [name for name, times in Counter(names).items() if times > 1]:
        raise InvalidData(
            printable(f"{folder}: class '{shared[0]}' is in more than one of train, val and test ")
            + f"({counted(len(shared), 'such classes')}); the splits must have no class in common, so that test "
            "classes are new: put all images of a class into one folder, and the class folders side by side."
        )


def _check_enough(folder: Path, classes: int, least: int, problems: list[str]) -> None:
    if classes < least:
        raise InvalidData(
            f"{folder} has {counted(classes, 'classes')} with images, expected {least} or more: "
            "a sub-folder for each class, with its images in it"
            + (f" ({counted(len(problems), 'problems')}, first {problems[0]})." if problems else ".")
        )
