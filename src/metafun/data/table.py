"""A table of features: rows grouped by class, classes divided into train, val and test."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from jaxtyping import Shaped

from ..errors import InvalidData

SPLITS = ("train", "val", "test")
# Kept as they come: half-precision features and pixels need not take the room of full precision.
DTYPES = ("uint8", "float16", "float32")
# By these a name could move the cursor, end a line or turn its direction; half of a surrogate pair cannot be printed.
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class ClassRows:
    """A class: `count` rows of the table, from `start` on."""

    name: str
    split: str
    start: int
    count: int


@dataclass(frozen=True)
class Table:
    """Features [rows, dx] and the classes that divide the rows among them.

    `image` is the height and width of the rows where they are pixels, grey or of three colours. `fingerprint`
    identifies the content.
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
        """Groups the rows by class; `labels` and `splits` have an entry for each row."""
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


def printable(text: str) -> str:
    return CONTROL.sub("?", text)


def counted(n: int, things: str) -> str:
    """2 rows, but 1 row; 2 classes, but 1 class."""
    return f"{n:,} {things.removesuffix('es' if things.endswith('sses') else 's') if n == 1 else things}"


def fingerprint(features: Shaped[np.ndarray, "rows dx"], classes: Sequence[ClassRows]) -> str:
    """A SHA-256 of all the rows and classes."""
    digest = hashlib.sha256(json.dumps([str(features.dtype), features.shape, [asdict(c) for c in classes]]).encode())
    digest.update(np.ascontiguousarray(features).data)
    return digest.hexdigest()
