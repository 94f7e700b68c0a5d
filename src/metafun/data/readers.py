"""Tables from what people have: the pickles of LEO, .npz files, folders of .npy files.

    LEO     DIR/{train,val,test}_embeddings.pkl    dicts of embeddings [rows, columns] and keys or labels [rows]
    .npz    embeddings, features, X or x; labels, classes, y or keys; splits or split, or neither
    .npy    DIR/CLASS.npy or DIR/{train,val,test}/CLASS.npy

A key is `<split>-<class>-<file>`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Shaped

from ..errors import InvalidConfig, InvalidData
from .arrays import map_npy, read_npz
from .parts import Part, checked, from_keys, text
from .pickles import read_pickle
from .table import SPLITS, Table

FEATURES, LABELS = ("embeddings", "features", "X", "x"), ("labels", "classes", "y")
LEO_TABLES = {
    f"{dataset}-{crop}".lower(): Path(dataset, crop)
    for dataset in ("miniImageNet", "tieredImageNet")
    for crop in ("center", "multiview")
}


@dataclass(frozen=True)
class Division:
    """How classes are drawn for train, val and test where the source does not say; each gets at least one."""

    fractions: tuple[float, float, float] = (0.64, 0.16, 0.2)
    seed: int = 0

    def __post_init__(self) -> None:
        if not all(0 < part < 1 for part in self.fractions) or abs(sum(self.fractions) - 1) > 1e-6:
            raise InvalidConfig(f"fractions {self.fractions} must be positive and sum to 1, as 0.64,0.16,0.2 do.")
        if self.seed < 0:
            raise InvalidConfig(f"seed {self.seed} must not be negative.")

    def __call__(self, labels: Shaped[np.ndarray, " rows"]) -> Shaped[np.ndarray, " rows"]:
        """The split of each row."""
        classes, of_row = np.unique(labels, return_inverse=True)
        if len(classes) < len(SPLITS):
            raise InvalidData(f"{len(classes)} classes cannot be divided into train, val and test; bring 3 or more.")
        counts = np.ones(len(SPLITS), int)
        for _ in range(len(classes) - len(SPLITS)):
            counts[np.argmax(np.array(self.fractions) * len(classes) - counts)] += 1
        drawn = np.random.default_rng(self.seed).permutation(np.repeat(SPLITS, counts))
        return drawn[of_row]


def find(source: Path) -> dict[str, Path]:
    """The tables in `source` by name: itself, or those of a LEO archive at or above or below it."""
    here = source.resolve()
    roots = (here, here / "embeddings", here.parent, here.parent.parent)
    found = {name: root / path for root in roots for name, path in LEO_TABLES.items() if _pickles(root / path)}
    return {name: path for name, path in found.items() if path.is_relative_to(here)} or {
        here.stem if here.is_file() else here.name: here
    }


def read(source: Path, name: str, division: Division | None = None) -> Table:
    """The table in `source`, checked; `division` is used only where the source has no splits."""
    parts = list(_parts(source))
    columns = [part.features.shape[1] for part in parts]
    if len(set(columns)) > 1:
        other = next(i for i, n in enumerate(columns) if n != columns[0])
        raise InvalidData(
            f"{parts[0].where} has {columns[0]} columns and {parts[other].where} has {columns[other]}; "
            "all rows must have the same."
        )
    labels = np.concatenate([part.labels for part in parts])
    known = [part.splits for part in parts if part.splits is not None]
    splits = np.concatenate(known) if known else (division or Division())(labels)
    _check_disjoint(source, labels, splits)
    features = np.concatenate([part.features for part in parts])
    parts.clear()  # the largest tables would not fit into memory three times
    return Table.of(name, features, labels.tolist(), splits.tolist())


def zero_rows(table: Table) -> int:
    """How many rows are zero throughout: they have no direction and cannot be scaled to length one."""
    return int(np.sum(~table.features.any(axis=1)))


def _check_disjoint(source: Path, labels: np.ndarray, splits: np.ndarray) -> None:
    of_class: dict[str, list[str]] = {}
    for label, split in sorted(set(zip(labels.tolist(), splits.tolist(), strict=True))):
        of_class.setdefault(label, []).append(split)
    shared = {label: found for label, found in of_class.items() if len(found) > 1}
    if shared:
        label, found = next(iter(shared.items()))
        raise InvalidData(
            f"{source}: class '{label}' is in {' and in '.join(found)}, one of {len(shared)} such classes; "
            "the splits must have no class in common, so that tests meet new ones."
        )


def _pickles(folder: Path) -> list[Path]:
    return [path for split in SPLITS if (path := folder / f"{split}_embeddings.pkl").is_file()]


def _parts(source: Path) -> Iterator[Part]:
    if source.suffix == ".npz" and source.is_file():
        yield _npz_part(source)
        return
    if not source.exists():
        raise InvalidData(f"there is no file or folder {source}.")
    pickles = _pickles(source)
    divided = sorted(path for split in SPLITS for path in (source / split).glob("*.npy"))
    whole = sorted(source.glob("*.npy"))
    forms = bool(pickles) + bool(divided) + bool(whole)
    if forms != 1:
        raise InvalidData(
            f"{source} {'mixes' if forms else 'has none of'} the known forms: an .npz file, or a folder of "
            "{train,val,test}_embeddings.pkl, of CLASS.npy, or of {train,val,test}/CLASS.npy."
        )
    for path in pickles:
        yield _pickle_part(path, path.name.removesuffix("_embeddings.pkl"))
    for path in divided + whole:
        features = map_npy(path)
        labels = np.full(features.shape[:1], path.stem)
        yield checked(path, features, labels, np.full(labels.shape, path.parent.name) if divided else None)


def _pickle_part(path: Path, split: str) -> Part:
    content = read_pickle(path)
    if not isinstance(content, dict) or not isinstance(content.get("embeddings"), np.ndarray):
        raise InvalidData(f"{path} must be a dict with an array 'embeddings'.")
    # Keys before labels: labels may count from zero in each file, keys carry the names.
    labels = from_keys(content["keys"], path)[1] if "keys" in content else None
    if labels is None:
        if "labels" not in content:
            raise InvalidData(f"{path} has no 'labels', and no 'keys' of the form <split>-<class>-<file>.")
        labels = text(content["labels"], path, "labels")
    return checked(path, content["embeddings"], labels, np.full(labels.shape, split))


def _npz_part(path: Path) -> Part:
    arrays = read_npz(path, (*FEATURES, *LABELS, "keys", "splits", "split"))
    features = next((arrays[name] for name in FEATURES if name in arrays), None)
    labels = next((text(arrays[name], path, name) for name in LABELS if name in arrays), None)
    splits = next((text(arrays[name], path, name) for name in ("splits", "split") if name in arrays), None)
    of_key = from_keys(arrays["keys"], path) if "keys" in arrays else (None, None)
    labels = labels if labels is not None else of_key[1]
    if features is None or labels is None:
        raise InvalidData(
            f"{path} needs features [rows, columns] under {', '.join(FEATURES)}, and classes [rows] under "
            f"{', '.join(LABELS)}, or keys of the form <split>-<class>-<file>."
        )
    return checked(path, features, labels, splits if splits is not None else of_key[0])
