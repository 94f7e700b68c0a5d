"""A table of features: rows grouped by class (or by task, in regression), classes divided into train, val and test."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Shaped

from ..errors import InvalidData

SPLITS = ("train", "val", "test")
# Stored without conversion: half-precision features and pixels stay small.
DTYPES = ("uint8", "float16", "float32")
# These move the cursor, end a line or reverse the direction of text; half a surrogate pair cannot be printed.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Of an error from outside.
MAX_REASON_CHARACTERS = 1000


@dataclass(frozen=True)
class ClassRows:
    """The rows of one class, which are consecutive.

    Args:
        name: the name of the class.
        split: train, val or test.
        start: index of the first row.
        count: number of rows.
    """

    name: str
    split: str
    start: int
    count: int


@dataclass(frozen=True)
class Table:
    """Rows of features, grouped by class.

    Args:
        name: the name of the table, for messages.
        features: one row per example [rows, dx].
        classes: the rows of each class, in order; together they cover all rows.
        fingerprint: SHA-256 of the content.
        image: height and width if the rows are pixels, grey or RGB.
    """

    name: str
    features: Shaped[np.ndarray, "rows dx"]
    classes: tuple[ClassRows, ...]
    fingerprint: str
    image: tuple[int, int] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        features: Shaped[np.ndarray, "rows dx"],
        labels: Sequence[str],
        splits: Sequence[str],
        image: tuple[int, int] | None = None,
    ) -> "Table":
        """Groups rows in any order by class.

        Args:
            name: the name of the table, for messages.
            features: one row per example [rows, dx].
            labels: the class of each row.
            splits: the split of each row: train, val or test.
            image: height and width if the rows are pixels.
        """
        names = sorted(set(labels))
        number = {name: i for i, name in enumerate(names)}
        of_row = np.array([number[label] for label in labels])
        place = np.array([SPLITS.index(split) for split in splits]) * len(names) + of_row
        order = np.argsort(place, kind="stable")
        classes = tuple(
            ClassRows(names[at % len(names)], SPLITS[at // len(names)], int(start), int(count))
            for at, start, count in zip(*np.unique(place[order], return_index=True, return_counts=True), strict=True)
        )
        features = np.ascontiguousarray(features[order])
        return cls(name, features, classes, fingerprint(features, classes), image)

    def split(self, *names: str) -> list[ClassRows]:
        """The classes of the named splits."""
        chosen = [rows for rows in self.classes if rows.split in names]
        if not chosen:
            have = ", ".join(dict.fromkeys(rows.split for rows in self.classes))
            raise InvalidData(f"data '{self.name}' have no classes in {'+'.join(names)}; they have: {have}.")
        return chosen

    def class_counts(self) -> dict[str, int]:
        """The number of classes in each split."""
        return {split: sum(rows.split == split for rows in self.classes) for split in SPLITS}

    def row_counts(self) -> dict[str, int]:
        """The number of rows in each split."""
        return {split: sum(rows.count for rows in self.classes if rows.split == split) for split in SPLITS}

    def zero_rows(self) -> int:
        """The number of rows that are all zeros: they cannot be scaled to unit length."""
        return int(np.sum(~self.features.any(axis=1)))


def shortened(text: object) -> str:
    """At most 1,000 characters of an error's words, which may repeat what came from outside."""
    words = str(text)
    return words if len(words) <= MAX_REASON_CHARACTERS else f"{words[:MAX_REASON_CHARACTERS]}…"


def printable(text: str) -> str:
    """`text` with each control character replaced by a question mark."""
    return CONTROL.sub("?", text)


def counted(n: int, things: str) -> str:
    """2 rows, but 1 row; 2 classes, but 1 class."""
    return f"{n:,} {things.removesuffix('es' if things.endswith('sses') else 's') if n == 1 else things}"


def fingerprint(features: Shaped[np.ndarray, "rows dx"], classes: Sequence[ClassRows]) -> str:
    """The SHA-256 of all rows and classes."""
    digest = hashlib.sha256(json.dumps([str(features.dtype), features.shape, [asdict(c) for c in classes]]).encode())
    digest.update(np.ascontiguousarray(features).data)
    return digest.hexdigest()
