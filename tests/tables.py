"""A small table in every form that can be read."""

import pickle

import numpy as np

from metafun.data import SPLITS

SPLIT_OF = dict(zip(["ant", "bee", "cat", "dog", "eel", "fox"], ["train"] * 3 + ["val", "test", "test"], strict=True))


def example(rows: int = 4, columns: int = 3):
    """Features, and for each the class and the split; the classes are mixed."""
    labels = np.array(list(SPLIT_OF) * rows)
    features = np.random.default_rng(0).normal(size=(len(labels), columns)).astype(np.float32)
    return features, labels, np.array([SPLIT_OF[label] for label in labels])


def keys_of(labels, splits):
    return np.array(
        [f"{split}-{label}-{label}_{i}.jpg" for i, (label, split) in enumerate(zip(labels, splits, strict=True))]
    )


def write_leo(folder, names=("embeddings", "keys", "labels"), text=np.asarray):
    """The three pickles of the LEO archive, protocol 2 as there."""
    features, labels, splits = example()
    keys = keys_of(labels, splits)
    folder.mkdir(parents=True, exist_ok=True)
    for split in SPLITS:
        chosen = splits == split
        content = {"embeddings": features[chosen], "keys": text(keys[chosen]), "labels": text(labels[chosen])}
        kept = {name: content[name] for name in names}
        (folder / f"{split}_embeddings.pkl").write_bytes(pickle.dumps(kept, protocol=2))
    return folder


def write_npy(folder, divided):
    features, labels, _ = example()
    for label in SPLIT_OF:
        path = folder / SPLIT_OF[label] / f"{label}.npy" if divided else folder / f"{label}.npy"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, features[labels == label])
    return folder


def write_npz(path, **changes):
    features, labels, splits = example()
    arrays = {"embeddings": features, "labels": labels, "splits": splits} | changes
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def check_is_example(table):
    features, labels, _ = example()
    assert {rows.name: rows.split for rows in table.classes} == SPLIT_OF
    for rows in table.classes:
        np.testing.assert_array_equal(
            table.features[rows.start : rows.start + rows.count], features[labels == rows.name], strict=True
        )
