"""Readers of features: the pickles of LEO, .npz files, folders of .npy files.

    LEO     DIR/{train,val,test}_embeddings.pkl    dicts of embeddings [rows, columns] and keys or labels [rows]
    .npz    embeddings, features, X or x; labels, classes, y or keys; optionally splits or split
    .npy    DIR/CLASS.npy or DIR/{train,val,test}/CLASS.npy

A key is `<split>-<class>-<file>`.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import InvalidConfig, InvalidData
from .arrays import map_npy, read_npz
from .checks import TablePart, checked_part, parse_keys, to_names
from .pickles import read_pickle
from .table import SPLITS, Table, counted

FEATURES, LABELS = ("embeddings", "features", "X", "x"), ("labels", "classes", "y")
LEO_TABLES = {
    f"{dataset}-{crop}".lower(): Path(dataset, crop)
    for dataset in ("miniImageNet", "tieredImageNet")
    for crop in ("center", "multiview")
}


@dataclass(frozen=True)
class Division:
    """A random division of classes into train, val and test, with at least one class in each.

    Args:
        fractions: relative sizes of train, val and test; they need not add up to 1.
        seed: the seed of the random choice.
    """

    fractions: tuple[float, float, float] = (0.64, 0.16, 0.2)
    seed: int = 0

    def __post_init__(self) -> None:
        if not all(0 < part < math.inf for part in self.fractions):
            raise InvalidConfig(f"fractions {self.fractions} must be positive, like 0.64,0.16,0.2 or 80,10,10.")
        if self.seed < 0:
            raise InvalidConfig(f"seed {self.seed} must not be negative.")

    def __call__(self, labels: Sequence[str]) -> list[str]:
        """The split of each row, given its class."""
        classes = sorted(set(labels))
        if len(classes) < len(SPLITS):
            few = counted(len(classes), "classes")
            raise InvalidData(f"{few} cannot be divided into train, val and test; provide 3 or more.")
        counts, shares = np.ones(len(SPLITS), int), np.array(self.fractions) / sum(self.fractions)
        for _ in range(len(classes) - len(SPLITS)):
            counts[np.argmax(shares * len(classes) - counts)] += 1
        drawn = np.random.default_rng(self.seed).permutation(np.repeat(SPLITS, counts)).tolist()
        split_of = dict(zip(classes, drawn, strict=True))
        return [split_of[label] for label in labels]


def existing(path: Path) -> Path:
    """`path` itself; InvalidData if nothing is there."""
    if not path.exists():
        raise InvalidData(f"there is no file or folder {path}.")
    return path


def find_tables(source: Path) -> dict[str, Path]:
    """The tables in `source` by name: those of a LEO archive if it is part of one, else the source as one table."""
    here = existing(source).resolve()
    roots = (here, here / "embeddings", here.parent, here.parent.parent)
    found = {name: root / path for root in roots for name, path in LEO_TABLES.items() if _leo_pickles(root / path)}
    return {name: path for name, path in found.items() if path.is_relative_to(here)} or {
        here.stem if here.is_file() else here.name: here
    }


def read_features(source: Path, name: str, division: Division | None = None) -> Table:
    """Reads and checks the table in `source`.

    Args:
        source: an .npz file or a folder, in one of the forms that the module lists.
        name: the name of the table.
        division: how to divide the classes if the source defines no splits.
    """
    return join_parts(source, list(_read_parts(source)), name, division)


def join_parts(
    source: Path,
    parts: list[TablePart],
    name: str,
    division: Division | None = None,
    image: tuple[int, int] | None = None,
) -> Table:
    """One table of all rows; empties `parts`, because the largest tables would not fit into memory three times.

    Args:
        source: the file or folder that the parts come from, for messages.
        parts: at least one part.
        name: the name of the table.
        division: how to divide the classes if the parts have no splits.
        image: height and width if the rows are pixels.
    """
    columns = [part.features.shape[1] for part in parts]
    if len(set(columns)) > 1:
        other = next(i for i, n in enumerate(columns) if n != columns[0])
        raise InvalidData(
            f"{parts[0].where} has {columns[0]} columns and {parts[other].where} has {columns[other]}; "
            "all rows must have the same number."
        )
    labels = [label for part in parts for label in part.labels]
    splits = [split for part in parts for split in part.splits or ()] or (division or Division())(labels)
    _check_disjoint(source, labels, splits)
    features = np.concatenate([part.features for part in parts])
    parts.clear()
    return Table.of(name, features, labels, splits, image)


def _check_disjoint(source: Path, labels: Sequence[str], splits: Sequence[str]) -> None:
    splits_of: dict[str, list[str]] = {}
    for label, split in sorted(set(zip(labels, splits, strict=True))):
        splits_of.setdefault(label, []).append(split)
    shared = {label: found for label, found in splits_of.items() if len(found) > 1}
    if shared:
        label, found = next(iter(shared.items()))
        raise InvalidData(
            f"{source}: class '{label}' is in {' and in '.join(found)} ({counted(len(shared), 'such classes')}); "
            "the splits must have no class in common, so that test classes are new."
        )


def _leo_pickles(folder: Path) -> list[Path]:
    return [path for split in SPLITS if (path := folder / f"{split}_embeddings.pkl").is_file()]


def _read_parts(source: Path) -> Iterator[TablePart]:
    if source.suffix == ".npz" and source.is_file():
        yield _read_npz_part(source)
        return
    pickles = _leo_pickles(existing(source))
    divided = sorted(path for split in SPLITS for path in (source / split).glob("*.npy"))
    undivided = sorted(source.glob("*.npy"))
    forms = bool(pickles) + bool(divided) + bool(undivided)
    if forms != 1:
        raise InvalidData(
            f"{source} {'mixes' if forms else 'has none of'} the known forms: an .npz file, or a folder of "
            "{train,val,test}_embeddings.pkl, of CLASS.npy, or of {train,val,test}/CLASS.npy."
        )
    for path in pickles:
        yield _read_pickle_part(path, path.name.removesuffix("_embeddings.pkl"))
    for path in divided + undivided:
        features = map_npy(path)
        rows = len(features) if features.size and features.ndim else 0  # a file without columns can claim any number
        yield checked_part(path, features, [path.stem] * rows, [path.parent.name] * rows if divided else None)


def _read_pickle_part(path: Path, split: str) -> TablePart:
    content = read_pickle(path)
    if not isinstance(content, dict) or not isinstance(content.get("embeddings"), np.ndarray):
        raise InvalidData(f"{path} must be a dict with an array 'embeddings'.")
    # Keys before labels: labels may count from zero in each file, keys contain the names.
    labels = parse_keys(content["keys"], path)[1] if "keys" in content else None
    if labels is None:
        if "labels" not in content:
            raise InvalidData(f"{path} has no 'labels', and no 'keys' of the form <split>-<class>-<file>.")
        labels = to_names(content["labels"], path, "labels")
    return checked_part(path, content["embeddings"], labels, [split] * len(labels))


def _read_npz_part(path: Path) -> TablePart:
    arrays = read_npz(path, (*FEATURES, *LABELS, "keys", "splits", "split"))
    features = next((arrays[name] for name in FEATURES if name in arrays), None)
    labels = next((to_names(arrays[name], path, name) for name in LABELS if name in arrays), None)
    splits = next((to_names(arrays[name], path, name) for name in ("splits", "split") if name in arrays), None)
    key_splits, key_labels = parse_keys(arrays["keys"], path) if "keys" in arrays else (None, None)
    labels = labels if labels is not None else key_labels
    if features is None or labels is None:
        raise InvalidData(
            f"{path} needs features [rows, columns] under {', '.join(FEATURES)}, and classes [rows] under "
            f"{', '.join(LABELS)}, or keys of the form <split>-<class>-<file>."
        )
    return checked_part(path, features, labels, splits if splits is not None else key_splits)
