"""Checkpoints that describe themselves: named tensors, with the configuration in the header (safetensors)."""

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jaxtyping import PyTree

from ..config import Config, parse_config, parse_toml
from ..errors import InvalidCheckpoint, InvalidConfig
from ..files import write_atomically
from ..model.learner import Learner
from ..model.nn import is_array

FORMAT = "metafun-1"


def save(path: Path, config: Config, groups: Mapping[str, PyTree], record: Mapping[str, Any]) -> None:
    """Writes the arrays of each group as `group.path.to.array`; the file is whole or not there at all."""
    tensors = {name: array for group, tree in groups.items() for name, array in arrays(group, tree).items()}
    header = {"format": FORMAT, "config": config.to_toml(), "record": json.dumps(dict(record))}
    write_atomically(path, safetensors.numpy.save(tensors, header))


def read_header(path: Path) -> tuple[Config, dict[str, Any]]:
    """The configuration and the record of a checkpoint; tensors stay on the disk."""
    with _open(path) as file:
        header = file.metadata() or {}
        if header.get("format") != FORMAT:
            raise InvalidCheckpoint(
                f"{path} is not a checkpoint of metafun: its header has format {header.get('format')!r}, "
                f"expected {FORMAT!r}."
            )
        try:
            config = parse_config(parse_toml(header["config"], "its configuration"))
            record = json.loads(header["record"])
            if not isinstance(record, dict):
                raise InvalidConfig("its record is not a table.")
            return config, record
        except (InvalidConfig, KeyError, json.JSONDecodeError, RecursionError) as error:
            raise InvalidCheckpoint(f"{path} has a damaged header: {error}") from None


def load_models(path: Path, group: str = "best") -> Learner:
    """The models of all seeds as one, with a leading axis for the seed in every array.

    Of variants that were trained at once, those of the best one.
    """
    config, record = read_header(path)
    variants, seeds = config.variants(), len(config.training.seeds)
    best = best_variant(path, config, record)
    like = _map_arrays(
        lambda a: jax.ShapeDtypeStruct((len(variants) * seeds, *a.shape), a.dtype), variants[best].blank_model()
    )
    return _map_arrays(lambda a: a[best * seeds : (best + 1) * seeds], load_group(path, group, like))


def best_variant(path: Path, config: Config, record: Mapping[str, Any]) -> int:
    """The variant with the least error on validation, the mean over its seeds; the first, if there was none yet."""
    variants, errors = len(config.variants()), record.get("best_error")
    if variants == 1 or not errors:
        return 0
    try:
        return int(np.asarray(errors, float).reshape(variants, len(config.training.seeds)).mean(1).argmin())
    except (TypeError, ValueError):
        raise InvalidCheckpoint(f"{path} has a damaged header: best_error = {errors!r}.") from None


def load_model(path: Path, seed: int | None = None, group: str = "best") -> Learner:
    """One trained model: that of `seed`, or of the first seed."""
    seeds = read_header(path)[0].training.seeds
    if seed is not None and seed not in seeds:
        raise InvalidCheckpoint(f"{path} holds the seeds {list(seeds)}, not {seed}.")
    index = 0 if seed is None else seeds.index(seed)
    return _map_arrays(lambda a: a[index], load_models(path, group))


def load_group(path: Path, group: str, like: PyTree) -> PyTree:
    """The arrays of a group in the structure of `like`, if names, shapes and types agree."""
    return fill(group, like, read_arrays(path, group), str(path))


def read_arrays(path: Path, group: str) -> dict[str, np.ndarray]:
    """All arrays of a group, by name."""
    with _open(path) as file:
        return {name: file.get_tensor(name) for name in file.keys() if name.startswith(group + ".")}  # noqa: SIM118


def arrays(group: str, tree: PyTree) -> dict[str, np.ndarray]:
    """All arrays of a tree, by name; `fill` is the inverse."""
    # Row by row: safetensors writes what lies in memory, whatever order that has.
    return {name: np.asarray(array, order="C") for name, array in _named(group, tree)}


def fill(group: str, like: PyTree, found: Mapping[str, np.ndarray], source: str) -> PyTree:
    """The structure of `like` with the arrays `found` in `source`."""
    dynamic, static = eqx.partition(like, is_array)
    expected = dict(_named(group, dynamic))
    if odd := sorted(found.keys() ^ expected.keys()):
        raise InvalidCheckpoint(f"{source} does not hold the model it describes: '{odd[0]}' is missing or unexpected.")
    for name, array in found.items():
        dtype, shape = expected[name].dtype, expected[name].shape
        if (array.dtype, array.shape) != (dtype, shape):
            raise InvalidCheckpoint(
                f"{source}: '{name}' is {array.dtype}{list(array.shape)}, expected {dtype}{list(shape)}."
            )
    leaves = [jnp.asarray(found[name]) for name in expected]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)


def _map_arrays(function: Callable, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: function(leaf) if is_array(leaf) else leaf, tree)


def _named(group: str, tree: PyTree) -> list[tuple[str, Any]]:
    paths = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_array))
    return [(f"{group}.{jax.tree_util.keystr(path, simple=True, separator='.')}", leaf) for path, leaf in paths]


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file
    except FileNotFoundError:
        raise InvalidCheckpoint(f"there is no checkpoint at {path}.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise InvalidCheckpoint(f"{path} is truncated or not a safetensors file: {error}.") from None
