"""Images in folders and Omniglot's archives: every kind is read, damaged and hostile files are refused."""

import hashlib
import io
import json
import os
import re
import shutil
import struct
import tracemalloc
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from metafun.data import images, omniglot
from metafun.data.images import FORMATS, pixels, read_images
from metafun.data.omniglot import OmniglotArchive, omniglot_from_arrays, read_omniglot, vinyals_split
from metafun.data.readers import Division
from metafun.data.table import SPLITS
from metafun.data.table_folder import open_table_folder, save_table
from metafun.errors import InvalidConfig, InvalidData

SIDE = 8


def picture(seed=0, height=SIDE, width=SIDE, channels=1):
    shape = (height, width) if channels == 1 else (height, width, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write(path, array, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)
    return path


def write_classes(folder, names="abc", each=2, channels=1):
    """All images differ."""
    for i, name in enumerate(names):
        for j in range(each):
            write(folder / name / f"{j}.png", picture(100 * i + j, channels=channels))
    return folder


def rows_of(table, name):
    (rows,) = (rows for rows in table.classes if rows.name == name)
    return table.features[rows.start : rows.start + rows.count]


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_header(width, height):
    """A PNG that promises this many pixels but has none."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")


def check_refused(path, message):
    """Refused in one line that begins with the path."""
    with pytest.raises(InvalidData, match=message) as error:
        pixels(path, SIDE, False)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


# Images of all kinds


@pytest.mark.parametrize("colour", [False, True])
def test_a_class_folder_becomes_a_class_and_an_image_a_row(tmp_path, colour):
    channels = 3 if colour else 1
    table, problems = read_images(write_classes(tmp_path / "in", channels=channels), "mine", side=SIDE, colour=colour)
    assert problems == []
    assert table.name == "mine" and table.image == (SIDE, SIDE)
    assert table.features.dtype == np.uint8 and table.features.shape == (6, SIDE * SIDE * channels)
    for i, name in enumerate("abc"):
        expected = np.stack([picture(100 * i + j, channels=channels).reshape(-1) for j in range(2)])
        np.testing.assert_array_equal(rows_of(table, name), expected)
    save_table(table, tmp_path / "store", "a test")
    assert open_table_folder(tmp_path / "store" / "mine").fingerprint == table.fingerprint


def test_images_are_stretched_to_a_square_without_aliasing(tmp_path):
    stripes = np.zeros((40, 80), np.uint8)
    stripes[:, ::2] = 255  # every tenth column alone would be all white
    row = pixels(write(tmp_path / "a.png", stripes), SIDE, False)
    assert row.shape == (64,) and np.abs(row.reshape(SIDE, SIDE)[:, 1:-1].astype(int) - 127).max() <= 2
    halves = np.zeros((30, 60), np.uint8)
    halves[:, 30:] = 255
    row = pixels(write(tmp_path / "b.png", halves), SIDE, False).reshape(SIDE, SIDE)
    assert (row[:, :3] < 20).all() and (row[:, 5:] > 235).all()


def test_small_images_are_enlarged(tmp_path):
    row = pixels(write(tmp_path / "a.png", np.full((1, 1), 77, np.uint8)), SIDE, True)
    np.testing.assert_array_equal(row, np.full(SIDE * SIDE * 3, 77, np.uint8))


@pytest.mark.parametrize("side", [0, -3, 1025])
def test_an_impossible_side_is_refused(tmp_path, side):
    with pytest.raises(InvalidConfig, match=r"side -?\d+ must be from 1 to 1,024"):
        pixels(write(tmp_path / "a.png", picture()), side, False)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_is_read(tmp_path, kind):
    path = tmp_path / "image"  # the content decides, not the name
    Image.fromarray(np.full((SIDE, SIDE), 100, np.uint8)).save(path, format=kind)
    assert np.abs(pixels(path, SIDE, False).astype(int) - 100).max() <= 1


def test_colours_become_grey_and_grey_becomes_colours(tmp_path):
    colours = picture(channels=3)
    path = write(tmp_path / "a.png", colours)
    np.testing.assert_array_equal(pixels(path, SIDE, True), colours.reshape(-1))
    luma = (colours @ np.array([0.299, 0.587, 0.114])).reshape(-1)
    assert np.abs(pixels(path, SIDE, False) - luma).max() <= 1
    grey = picture()
    path = write(tmp_path / "b.png", grey)
    np.testing.assert_array_equal(pixels(path, SIDE, True).reshape(-1, 3), np.repeat(grey.reshape(-1, 1), 3, 1))


def test_palettes_and_bilevel_images(tmp_path):
    indexed = Image.new("P", (SIDE, SIDE), 1)
    indexed.putpalette([0, 0, 0, 200, 100, 50])
    indexed.save(tmp_path / "p.png")
    np.testing.assert_array_equal(pixels(tmp_path / "p.png", SIDE, True).reshape(-1, 3)[5], [200, 100, 50])
    Image.fromarray(np.eye(SIDE, dtype=bool)).save(tmp_path / "1.png")
    np.testing.assert_array_equal(pixels(tmp_path / "1.png", SIDE, False).reshape(SIDE, SIDE), 255 * np.eye(SIDE))


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
@pytest.mark.parametrize("colour", [False, True])
def test_16_bits_become_8_and_are_not_clipped(tmp_path, suffix, colour):
    deep = np.arange(0, 2**16, 2**10, dtype=np.uint16).reshape(SIDE, SIDE)
    row = pixels(write(tmp_path / f"a.{suffix}", deep), SIDE, colour).reshape(SIDE, SIDE, -1)
    assert (row == (deep // 256)[..., None]).all()


def test_pixels_of_unknown_range_are_refused(tmp_path):
    check_refused(write(tmp_path / "f.tif", np.ones((2, 2), np.float32)), "floating-point.*save it with 8 or 16 bits")
    check_refused(write(tmp_path / "i.tif", np.full((2, 2), 2**20, np.int32)), "more than 16 bits")
    eight = write(tmp_path / "e.tif", np.full((2, 2), 220, np.int32))
    assert (pixels(eight, 2, False) == 220).all()
    check_refused(write(tmp_path / "n.tif", np.full((2, 2), -1, np.int32)), "more than 16 bits")


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparent_areas_become_white(tmp_path, mode):
    """As a drawing program saves it: black ink on transparent black."""
    image = Image.new("RGBA", (SIDE, SIDE), (0, 0, 0, 0))
    image.paste((0, 0, 0, 255), (0, 0, SIDE, 2))
    if mode == "P":
        indexed = Image.new("P", (SIDE, SIDE), 1)
        indexed.putpalette([0, 0, 0, 0, 0, 0])
        indexed.paste(0, (0, 0, SIDE, 2))
        indexed.save(tmp_path / "a.png", transparency=1)
    else:
        image.convert(mode).save(tmp_path / "a.png")
    for colour in (False, True):
        row = pixels(tmp_path / "a.png", SIDE, colour).reshape(SIDE, -1)
        assert (row[:2] == 0).all() and (row[2:] == 255).all()


ORIENTATIONS = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).T,
    8: np.rot90,
}


@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_images_are_turned_upright(tmp_path, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    expected = ORIENTATIONS[orientation](picture())
    row = pixels(write(tmp_path / "a.png", picture(), exif=exif), SIDE, False)
    np.testing.assert_array_equal(row, expected.reshape(-1))
    smooth = np.array(Image.fromarray(picture(height=2, width=2)).resize((64, 64), Image.Resampling.BILINEAR))
    row = pixels(write(tmp_path / "a.jpg", smooth, exif=exif, quality=95), 64, False).reshape(64, 64)
    assert np.abs(row - ORIENTATIONS[orientation](smooth).astype(int)).max() <= 6


@pytest.mark.parametrize("colour", [False, True])
def test_a_large_jpeg_gives_the_same_row_as_a_png(tmp_path, colour):
    smooth = Image.fromarray(picture(height=12, width=16, channels=3)).resize((640, 480), Image.Resampling.BICUBIC)
    smooth.save(tmp_path / "a.png")
    smooth.save(tmp_path / "a.jpg", quality=98, subsampling=0)
    one, other = (pixels(tmp_path / f"a.{suffix}", 16, colour).astype(int) for suffix in ("png", "jpg"))
    assert one.std() > 30 and np.abs(one - other).max() <= 4


def test_a_large_jpeg_is_decoded_at_a_reduced_size(tmp_path, monkeypatch):
    sizes, real = [], ImageOps.exif_transpose
    monkeypatch.setattr(ImageOps, "exif_transpose", lambda image: sizes.append(image.size) or real(image))
    path = write(tmp_path / "a.jpg", picture(height=480, width=640))
    for side in (16, 32, 200):
        pixels(path, side, False)
    assert sizes == [(80, 60), (160, 120), (640, 480)]


def test_the_first_frame_of_an_animation_is_read(tmp_path):
    first, second = (Image.new("L", (SIDE, SIDE), grey) for grey in (50, 150))
    for name, options in {"a.gif": {}, "a.webp": {"lossless": True}, "a.tif": {}, "a.png": {}}.items():
        first.save(tmp_path / name, save_all=True, append_images=[second], **options)
        assert (pixels(tmp_path / name, SIDE, False) == 50).all()
    first.save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=[second])  # as phones write them
    assert np.abs(pixels(tmp_path / "a.jpg", SIDE, False).astype(int) - 50).max() <= 1


# Files that are damaged or hostile


def test_damaged_files_are_refused_in_one_line(tmp_path):
    whole = write(tmp_path / "a.png", picture(height=64, width=64)).read_bytes()
    path = tmp_path / "b.png"
    for damaged in (whole[: len(whole) // 2], whole[:-100], whole[:20]):
        path.write_bytes(damaged)
        check_refused(path, "[Tt]runcated|not an image")
    for foreign in (b"", b"once upon a time", b"<html>log in</html>", b"PK\x03\x04", b"\x89PNG\r\n\x1a\n", bytes(1000)):
        path.write_bytes(foreign)
        check_refused(path, "not an image, or not one of PNG, JPEG")
    whole = write(tmp_path / "a.jpg", picture(height=64, width=64)).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    check_refused(path, "truncated")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(MemoryError(), "does not fit into memory"), (EOFError(), "EOFError"), (ValueError("odd\n\x1b[2J."), "odd??[2J")],
)
def test_every_decoding_error_becomes_one_line(tmp_path, monkeypatch, error, reason):
    def fail(_):
        raise error

    monkeypatch.setattr(ImageOps, "exif_transpose", fail)
    path = write(tmp_path / "a.png", picture())
    check_refused(path, f"^{re.escape(f'{path}: {reason}')}$")


def test_random_damage_gives_a_row_or_one_line(tmp_path):
    """No damage raises anything but InvalidData."""
    rng, refused = np.random.default_rng(0), 0
    for kind in FORMATS:
        buffer = io.BytesIO()
        Image.fromarray(picture(height=16, width=16, channels=3)).save(buffer, format=kind)
        for _ in range(60):
            content = np.frombuffer(buffer.getvalue(), np.uint8).copy()
            content[rng.integers(0, len(content), 6)] = rng.integers(0, 256, 6)
            (tmp_path / "x").write_bytes(content.tobytes())
            try:
                assert pixels(tmp_path / "x", SIDE, True).shape == (SIDE * SIDE * 3,)
            except InvalidData as error:
                refused += str(error).startswith(f"{tmp_path / 'x'}: ") and len(str(error).splitlines()) == 1
    assert refused > 50


@pytest.mark.parametrize("side", [9_000, 12_000, 20_000])
@pytest.mark.parametrize("limit", [Image.MAX_IMAGE_PIXELS, None])
def test_decompression_bombs_are_refused(tmp_path, monkeypatch, side, limit):
    """Below Pillow's warning, at its warning and at its error; with its limits and without them."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    (tmp_path / "a.png").write_bytes(png_header(side, side))
    check_refused(tmp_path / "a.png", r"pixels; at most 67,108,864 are read|decompression bomb")
    assert limit == Image.MAX_IMAGE_PIXELS


def test_a_lower_limit_of_pillow_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    check_refused(write(tmp_path / "a.png", picture()), "exceeds limit of 50 pixels, could be decompression bomb")


def test_huge_files_are_not_opened(tmp_path, monkeypatch):
    with open(tmp_path / "a.png", "wb") as file:
        file.truncate(2**28 + 1)
    check_refused(tmp_path / "a.png", "268,435,457 bytes; at most 268,435,456 are read")


def test_no_program_is_started_for_an_image(tmp_path):
    """Pillow would run Ghostscript on PostScript."""
    (tmp_path / "a.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    )
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "EPS"
    check_refused(tmp_path / "a.png", "not an image, or not one of")


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    for path in (tmp_path / "pipe.png", tmp_path / "nothing.png"):
        check_refused(path, "missing, or not a file")
    check_refused(tmp_path, "a folder inside a class folder")


def test_an_unreadable_file_gives_one_line(tmp_path, monkeypatch):
    path = write(tmp_path / "a.png", picture())

    def forbidden(*_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(images, "open", forbidden, raising=False)
    check_refused(path, r"a\.png: Permission denied$")


def test_odd_metadata_do_not_warn(tmp_path):
    path = write(tmp_path / "a.png", picture())
    real = Image.Image.convert

    def convert(*arguments):
        warnings.warn("Corrupt EXIF data", stacklevel=1)
        return real(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Image.Image, "convert", convert)
        assert pixels(path, SIDE, False).shape == (64,)


# Folders


def test_unreadable_files_are_skipped_and_reported(tmp_path):
    folder = write_classes(tmp_path / "in", "abcd")
    expected, _ = read_images(folder, "mine", side=SIDE)
    (folder / "a" / "notes.txt").write_text("a text")
    (folder / "a" / "0b.png").write_bytes((folder / "a" / "0.png").read_bytes()[:60])
    (folder / "b" / "bad\x1b[2J\n.png").write_bytes(b"<html>")
    (folder / "b" / "huge.png").write_bytes(png_header(12_000, 12_000))
    (folder / "c" / "deeper").mkdir()
    (folder / "c" / ".DS_Store").write_bytes(b"hidden")
    (folder / ".cache").mkdir()
    (folder / "empty").mkdir()
    (folder / "README").write_text("a text")
    table, problems = read_images(folder, "mine", side=SIDE)
    assert table.fingerprint == expected.fingerprint
    reasons = {
        Path(path).relative_to(folder).as_posix(): reason
        for path, reason in (problem.split(": ", 1) for problem in problems)
    }
    assert list(reasons) == ["README", "a/0b.png", "a/notes.txt", "b/bad?[2J?.png", "b/huge.png", "c/deeper", "empty"]
    assert "bomb" in reasons["b/huge.png"]
    assert reasons["README"] == "not in a class folder" and "it is skipped" in reasons["c/deeper"]
    assert reasons["empty"] == "no readable image; the class is skipped"


def test_folders_of_splits(tmp_path):
    for split, names in zip(SPLITS, ("ab", "c", "d"), strict=True):
        write_classes(tmp_path / split, names)
    (tmp_path / "val" / "loose.png").write_bytes(b"")
    table, problems = read_images(tmp_path, "mine", side=SIDE)
    assert {rows.name: rows.split for rows in table.classes} == {"a": "train", "b": "train", "c": "val", "d": "test"}
    assert problems == [f"{tmp_path / 'val' / 'loose.png'}: not in a class folder"]


def test_a_class_may_have_the_name_of_a_split(tmp_path):
    table, _ = read_images(write_classes(tmp_path, ["train", "test", "car"]), "mine", side=SIDE)
    assert {rows.name for rows in table.classes} == {"train", "test", "car"}


def test_splits_with_a_class_in_common_are_refused(tmp_path):
    for split in SPLITS:
        write_classes(tmp_path / split, ["cat", "dog"])
    with pytest.raises(InvalidData, match=r"'cat' is in more than one of .* \(2 such classes\).*side by side"):
        read_images(tmp_path, "mine", side=SIDE)


def test_classes_beside_splits_are_refused(tmp_path):
    write_classes(tmp_path / "train", "ab")
    write_classes(tmp_path, ["bird\x1b"])
    with pytest.raises(InvalidData, match=r"class folders in 'train', but none in 'bird\?' beside it; expected"):
        read_images(tmp_path, "mine", side=SIDE)


def test_classes_are_divided_by_the_seed(tmp_path):
    folder = write_classes(tmp_path, "abcdefgh")
    tables = [read_images(folder, "t", side=SIDE, division=Division(seed=seed))[0] for seed in (0, 0, 1, 2)]
    assert tables[0].fingerprint == tables[1].fingerprint == read_images(folder, "t", side=SIDE)[0].fingerprint
    assert len({table.fingerprint for table in tables}) > 1
    assert [len(tables[0].split(split)) for split in SPLITS] == [5, 1, 2]


def test_too_few_classes_are_refused_with_a_reason(tmp_path):
    with pytest.raises(InvalidData, match=r"has 0 classes with images, expected 3 or more: a sub-folder for each"):
        read_images(tmp_path, "mine")
    with pytest.raises(InvalidData, match=r"1 class with images, expected 3 or more.* in it\.$"):
        read_images(write_classes(tmp_path / "one", "a"), "mine")
    folder = write_classes(tmp_path / "three", "abc", each=1)
    (folder / "b" / "0.png").write_bytes(b"")
    with pytest.raises(InvalidData, match=r"has 2 classes with images.*\(2 problems, first .*0\.png: not an image"):
        read_images(folder, "mine")
    with pytest.raises(InvalidData, match="there is no file or folder"):
        read_images(tmp_path / "nothing", "mine")
    with pytest.raises(InvalidData, match=r"0 classes .*\(1 problem, first .*0\.png: Not a directory\)"):
        read_images(folder / "a" / "0.png", "mine")


@pytest.mark.parametrize("name", ["a\x1b[2J", "a\nb", "a\u202eb", os.fsdecode(b"\xff")])
def test_classes_with_control_characters_are_refused(tmp_path, name):
    with pytest.raises(InvalidData, match=r"has control characters; give it another name") as error:
        read_images(write_classes(tmp_path, ["b", "c", name]), "mine", side=SIDE)
    assert str(error.value).isprintable()


def test_links_that_lead_out_are_not_followed(tmp_path):
    folder = write_classes(tmp_path / "in", "abc")
    expected, _ = read_images(folder, "mine", side=SIDE)
    outside = write_classes(tmp_path / "out", "x")
    (folder / "a" / "link.png").symlink_to(outside / "x" / "0.png")
    (folder / "a" / "gone.png").symlink_to(tmp_path / "nowhere")
    (folder / "d").symlink_to(outside / "x")
    table, problems = read_images(folder, "mine", side=SIDE)
    assert table.fingerprint == expected.fingerprint
    assert [problem.split(": ")[0] for problem in problems] == [
        str(folder / path) for path in ("d", "a/gone.png", "a/link.png")
    ]
    assert all(problem.endswith(f"a link that leads out of {folder}; it is skipped") for problem in problems)


def test_links_within_the_folder_are_followed(tmp_path):
    folder = write_classes(tmp_path / "in", "abc")
    (folder / "a" / "2.png").symlink_to("../b/0.png")
    (folder / "a" / "loop.png").symlink_to("loop.png")
    (folder / "b" / "up").symlink_to("..")
    (folder / "again").symlink_to("a")  # the same images would be in two classes
    (tmp_path / "name").symlink_to(folder)
    table, problems = read_images(tmp_path / "name", "mine", side=SIDE)
    np.testing.assert_array_equal(rows_of(table, "a")[2], picture(100).reshape(-1))
    assert len(table.classes) == 3
    assert [problem.split(": ")[1] for problem in problems] == [
        "a link to a folder; it is skipped",
        "missing, or not a file",
        "a folder inside a class folder; it is skipped",
    ]


def test_an_unreadable_folder_gives_one_line(tmp_path, monkeypatch):
    folder, real = write_classes(tmp_path, "abcd"), Path.iterdir

    def iterdir(path):
        if path.name == "d":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    _, problems = read_images(folder, "mine", side=SIDE)
    assert problems[0] == f"{folder / 'd'}: Permission denied"


def test_too_many_images_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_BYTES", 6 * 64)
    folder = write_classes(tmp_path)
    assert len(read_images(folder, "mine", side=SIDE)[0].features) == 6
    with pytest.raises(InvalidData, match="6 images of 8 × 8 pixels are too many; choose a smaller side"):
        read_images(folder, "mine", side=SIDE, colour=True)


# Omniglot

COUNTS = {"images_background": 964, "images_evaluation": 659}
DRAWINGS = {"images_background": 964, "images_evaluation": 660}
VALIDATION = {"Armenian": 41, "Bengali": 46, "Early_Aramaic": 22, "Hebrew": 22, "Mkhedruli_(Georgian)": 41}


def class_names():
    """As many as in Omniglot: the alphabets for validation, and invented ones."""
    names = [f"images_background/{alphabet}/character{i:02}" for alphabet, n in VALIDATION.items() for i in range(n)]
    names += [f"images_background/Made_{chr(65 + i // 99)}/character{i % 99:02}" for i in range(964 - len(names))]
    return names + [f"images_evaluation/Hebrew_{chr(65 + i // 99)}/character{i % 99:02}" for i in range(659)]


def drawing(size=105):
    """Bilevel: black ink on white, an upright stroke."""
    image = Image.new("1", (size, size), 1)
    image.paste(0, (30, 15, 45, 90))
    return image


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


def zipped(files):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def members():
    """The members of both archives: a drawing per class, a second of the last class, and what zip programs add."""
    content = png(drawing())
    files = {stem: {f"{stem}/": b""} for stem in COUNTS}
    files["images_evaluation"][f"{class_names()[-1]}/0001_02.png"] = png(Image.new("1", (105, 105), 0))
    for name in class_names():
        files[name.split("/")[0]][f"{name}/0001_01.png"] = content
    for stem in COUNTS:
        files[stem][f"__MACOSX/{stem}/Greek/character01/0001_01.png"] = b"x"
    return files


@pytest.fixture(scope="module")
def archives(members):
    return {stem: zipped(files) for stem, files in members.items()}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Writes archives and registers their hashes as the expected ones."""

    def write(contents):
        for stem, content in contents.items():
            md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
            monkeypatch.setitem(omniglot.ARCHIVES, stem, OmniglotArchive(md5, DRAWINGS[stem]))
            (tmp_path / f"{stem}.zip").write_bytes(content)
        return tmp_path

    return write


def test_the_published_archives():
    background, evaluation = (omniglot.ARCHIVES[stem] for stem in COUNTS)
    assert background == OmniglotArchive("68d2efa1b9178cc56df9314c21c6e718", 20 * COUNTS["images_background"])
    assert evaluation == OmniglotArchive("6b91aef0f799c5bb55b94e3f2daec811", 20 * COUNTS["images_evaluation"])


def test_omniglot_is_read_from_its_archives(place, archives):
    folder = place(archives)
    table = read_omniglot(folder)
    assert table.name == "omniglot" and table.image == (28, 28)
    assert table.features.shape == (1624, 784) and table.features.dtype == np.uint8
    assert sorted(rows.name for rows in table.classes) == sorted(class_names())
    assert [len(table.split(split)) for split in SPLITS] == [1028, 172, 423]
    first, second = rows_of(table, class_names()[-1])  # sorted by name, not in the order of the archive
    assert (second == 255).all() and not (first == 255).all()
    assert sorted(path.name for path in folder.iterdir()) == ["images_background.zip", "images_evaluation.zip"]


def test_ink_is_bright_and_averaged_by_area(place, archives):
    image = read_omniglot(place(archives)).features[0].reshape(28, 28)
    assert (
        image.max() == 255
        and (image[:, :7] == 0).all()
        and (image[:, 13:] == 0).all()
        and (image[8:20, 9] == 255).all()
    )
    ink = 1 - np.asarray(drawing()).mean()
    assert image.mean() / 255 == pytest.approx(ink, rel=0.03)


def test_unpacked_folders_give_the_same_table(tmp_path, place, archives, monkeypatch):
    folder = place(archives)
    expected = read_omniglot(folder).fingerprint
    with zipfile.ZipFile(folder / "images_evaluation.zip") as archive:
        archive.extractall(folder)
    (folder / "images_evaluation.zip").unlink()
    assert read_omniglot(folder).fingerprint == expected
    some = next((folder / "images_evaluation").glob("*/*/*.png"))
    content = some.read_bytes()
    some.write_bytes(b"text")
    with pytest.raises(InvalidData, match=r"images_evaluation is refused: .*0001_01\.png: not an image"):
        read_omniglot(folder)
    some.unlink()
    with pytest.raises(InvalidData, match=r"it has 659 drawings, expected 660; expected the content of https"):
        read_omniglot(folder)
    (tmp_path / "elsewhere.png").write_bytes(content)
    some.symlink_to(tmp_path / "elsewhere.png")
    with pytest.raises(InvalidData, match=r"is a link that leads out of the folder"):
        read_omniglot(folder)
    shutil.rmtree(folder / "images_evaluation")
    os.mkfifo(folder / "images_evaluation.zip")
    with pytest.raises(InvalidData, match=r"has no images_evaluation\.zip and no folder .*download https://github"):
        read_omniglot(folder)
    with pytest.raises(InvalidData, match="there is no file or folder"):
        read_omniglot(folder / "nothing")


def test_an_unknown_archive_is_refused_with_the_remedy(place, archives):
    folder = place(archives)
    path = folder / "images_background.zip"
    url = "https://github.com/brendenlake/omniglot/raw/master/python/images_background.zip"
    path.write_bytes(archives["images_background"][:-1])
    expected = hashlib.md5(archives["images_background"], usedforsecurity=False).hexdigest()
    with pytest.raises(InvalidData, match=rf"has MD5 [0-9a-f]{{32}}, expected {expected}; download it again") as error:
        read_omniglot(folder)
    assert str(error.value).endswith(url)
    path.write_bytes(b"\n<!DOCTYPE html>" + bytes(2985))
    with pytest.raises(InvalidData, match=r"\(3,001 bytes\) has MD5 .*it is a web page, not the archive: download"):
        read_omniglot(folder)


STEM = "images_background"
FIRST = f"{STEM}/Armenian/character00/0001_01.png"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({FIRST: png_header(20_000, 20_000)}, "bomb"),
        ({FIRST: b"text"}, "character00/0001_01.png: not an image"),
        ({FIRST: png(drawing())[:-30]}, "character00/0001_01.png: "),
        ({FIRST: png(drawing()) + bytes(10_000_000)}, r"would unpack from [\d,]+ to 10,000,\d+ bytes"),
        ({FIRST.replace("0001_01", "0002_02"): png(drawing())}, "it has 965 drawings, expected 964"),
        ({FIRST: None}, "it has 963 drawings, expected 964"),
        ({FIRST: None, f"../{FIRST}": png(drawing())}, "it has 963 drawings"),
        ({FIRST: None, f"/{FIRST}": png(drawing())}, "it has 963 drawings"),
        ({FIRST: None, f"{STEM}/../character00/0001_01.png": png(drawing())}, "it has 963 drawings"),
        ({FIRST: None, f"{STEM}/Armenian/character00/..\\1_01.png": png(drawing())}, "it has 963 drawings"),
        ({FIRST: None, f"{FIRST}\n": png(drawing())}, "it has 963 drawings"),
        ({FIRST: None, f"{STEM}/Arm\x1b[2Jenian/character00/0001_01.png": png(drawing())}, "it has 963 drawings"),
        ({FIRST: None, FIRST.replace(STEM, "images_evaluation"): png(drawing())}, "it has 963 drawings"),
    ],
    ids=[
        "a bomb", "text", "truncated", "zeros", "one more", "one less", "above", "absolute", "between",
        "backslash", "a line", "control", "of the other archive",
    ],
)  # fmt: skip
def test_hostile_members_are_refused(place, archives, members, changes, message):
    files = {name: content for name, content in (members[STEM] | changes).items() if content is not None}
    folder = place(archives | {STEM: zipped(files)})
    with pytest.raises(
        InvalidData, match=rf"images_background\.zip is refused: .*{message}.*; expected the archive of"
    ):
        read_omniglot(folder)
    assert len(list(folder.iterdir())) == 2 and not (folder.parent / STEM).exists()


def test_members_with_too_large_a_sum_are_refused(place, archives, monkeypatch):
    monkeypatch.setattr(omniglot, "MAX_BYTES", 964 * len(png(drawing())) - 1)
    with pytest.raises(InvalidData, match=r"it would unpack to [\d,]+ bytes; the archive has at most [\d,]+"):
        read_omniglot(place(archives))


def test_a_repeated_member_is_refused(place, archives, members):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO(archives[STEM])
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.writestr(FIRST, png(drawing()))
    with pytest.raises(InvalidData, match=r"0001_01.png' occurs twice"):
        read_omniglot(place(archives | {STEM: buffer.getvalue()}))


def test_a_false_size_takes_no_memory(place, archives, members):
    files = {FIRST: bytes(200_000_000)} | {name: c for name, c in members[STEM].items() if name != FIRST}
    content = bytearray(zipped(files))
    for signature, at in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = content.index(signature) + at
        content[start : start + 4] = (300).to_bytes(4, "little")
    folder = place(archives | {STEM: bytes(content)})
    del content, files
    tracemalloc.start()
    with pytest.raises(InvalidData, match="Bad CRC-32"):
        read_omniglot(folder)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()


def test_a_file_with_the_md5_must_still_be_a_zip_file(place, archives):
    for content in (b"PK", b"", archives[STEM][:-100]):
        with pytest.raises(InvalidData, match=r"images_background\.zip is refused: .*; expected the archive of https"):
            read_omniglot(place(archives | {STEM: content}))


# The split, and Omniglot as arrays


def test_the_split_is_by_order_and_alphabet():
    names = class_names()
    shuffled = [names[i] for i in np.random.default_rng(0).permutation(len(names))]
    split_of = dict(zip(shuffled, vinyals_split(shuffled), strict=True))
    assert {name for name, split in split_of.items() if split == "test"} == set(sorted(names)[1200:])
    assert {name.split("/")[1] for name, split in split_of.items() if split == "val"} == set(VALIDATION)
    assert sum(split == "train" and "evaluation" in name for name, split in split_of.items()) == 236
    assert vinyals_split(names * 2) == vinyals_split(names) * 2


def test_the_split_needs_all_classes():
    names = class_names()
    for few in (names[:-1], [*names, "images_background/Zulu/character01"], []):
        with pytest.raises(InvalidData, match=r"[\d,]+ classes of the 1,623 of Omniglot"):
            vinyals_split(few)
    for strange in (
        "cat",
        "images_background/Greek",
        "images_background/Greek\x1b/character01",
        "a/../b",
        "",
        f"{names[0]}/x",
    ):
        with pytest.raises(InvalidData, match="is not a class like images_background/Greek/character01") as error:
            vinyals_split([*names[1:], strange])
        assert str(error.value).isprintable()


def arrays(n=3):
    return picture(height=n * 28, width=28).reshape(n, 28, 28), np.arange(n) + 1600, np.array(class_names())


def test_omniglot_from_arrays():
    pictures, labels, names = arrays()
    table = omniglot_from_arrays(pictures, labels, names)
    assert table.name == "omniglot" and table.image == (28, 28)
    for label, image in zip(labels, pictures, strict=True):
        np.testing.assert_array_equal(rows_of(table, names[label])[0], image.reshape(-1))
    everything = omniglot_from_arrays(np.repeat(pictures, 541, 0), np.arange(1623), names.tolist(), name="other")
    assert everything.name == "other" and [len(everything.split(split)) for split in SPLITS] == [1028, 172, 423]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda i, y, c: (i.astype(float), y, c), r"must be uint8 \[n, 28, 28\] .* but are float64 \[3, 28, 28\]"),
        (lambda i, y, c: (i.reshape(3, -1), y, c), r"but are uint8 \[3, 784\]"),
        (lambda i, y, c: (i[:, 1:], y, c), r"but are uint8 \[3, 27, 28\]"),
        (lambda i, y, c: (i[:0], y[:0], c), r"not empty, but are uint8 \[0, 28, 28\]"),
        (lambda i, y, c: (i, y[:2], c), r"labels must be whole numbers \[3\], one per image, but are int64 \[2\]"),
        (lambda i, y, c: (i, y.astype(float), c), r"but are float64 \[3\]"),
        (lambda i, y, c: (i, y - 1601, c), r"labels are from -1 to 1; expected 0 to 1622"),
        (lambda i, y, c: (i, y + 21, c), r"labels are from 1621 to 1623"),
        (lambda i, y, c: (i, y, c[:1622]), r"1,622 classes of the 1,623"),
        (lambda i, y, c: (i, y, c.reshape(1, -1)), r"classes of shape \[1, 1623\]"),
        (lambda i, y, c: (i, y, np.arange(1623)), r"'0' is not a class like"),
    ],
)
def test_arrays_that_are_not_omniglot_are_refused(change, message):
    with pytest.raises(InvalidData, match=message):
        omniglot_from_arrays(*change(*arrays()))


def published(name):
    """A file of the folders in $METAFUN_DATA."""
    folders = [Path(folder) for folder in os.environ.get("METAFUN_DATA", "").split(os.pathsep) if folder]
    found = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if found is None:
        pytest.skip(f"{name} is not in a folder of $METAFUN_DATA")
    return found


def test_the_split_is_the_published_one():
    expected = json.loads(published("omniglot_split.json").read_text())
    names = [name for split in SPLITS for name in expected[split]]
    assert [len(expected[split]) for split in SPLITS] == [1028, 172, 423]
    assert vinyals_split(names) == [split for split in SPLITS for _ in expected[split]]


def test_the_real_drawings_as_arrays(place, archives, members):
    """They have the grey levels of our reader of the archives, which averages areas and adds no ringing."""
    with np.load(published("omniglot_28x28.npz")) as content:
        pictures, labels, names = (content[key] for key in ("images", "labels", "classes"))
    table = omniglot_from_arrays(pictures, labels, names)
    assert {rows.count for rows in table.classes} == {20}
    assert [len(table.split(split)) for split in SPLITS] == [1028, 172, 423]
    rng = np.random.default_rng(0)
    noise = [png(Image.fromarray(rng.random((105, 105)) < share)) for share in np.linspace(0, 1, len(members[STEM]))]
    drawn = {name: image for name, image in zip(members[STEM], noise, strict=True) if name.startswith(STEM)}
    ours = read_omniglot(place(archives | {STEM: zipped(drawn)}))
    assert set(np.unique(ours.features)) == set(np.unique(pictures))


def test_one_extreme_image_does_not_end_an_import(tmp_path):
    """A few bytes that decode to one row of 67 million pixels."""
    for name in "abc":
        (tmp_path / name).mkdir()
        Image.new("L", (4, 4)).save(tmp_path / name / "good.png")
    for size in ((1, 2**26), (2**26, 1), (1, 2**16), (2**16, 1)):
        path = tmp_path / "a" / f"{size[0]}x{size[1]}.png"
        path.write_bytes(blank_png(*size))
    table, problems = read_images(tmp_path, "images")
    assert len(table.features) == 5 and len(problems) == 2
    assert all("pixels; a side has at most 65,536" in problem for problem in problems)


def blank_png(width: int, height: int) -> bytes:
    """A white image of one bit per pixel."""
    rows = zlib.compressobj(9)
    line = b"\0" + b"\xff" * -(-width // 8)
    block = line * min(height, 2**20)
    data = b"".join(rows.compress(block) for _ in range(height // min(height, 2**20))) + rows.flush()
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", data), (b"IEND", b""))
    parts = (struct.pack(">I", len(d)) + k + d + struct.pack(">I", zlib.crc32(k + d)) for k, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
