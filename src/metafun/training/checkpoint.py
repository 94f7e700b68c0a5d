"""Checkpoints that describe themselves: named tensors, with the configuration in the header (safetensors)."""

import contextlib
import json
import warnings
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

from ..config import Experiment, parse_config, parse_toml
from ..errors import InvalidCheckpoint, MetaFunError, UnknownKind
from ..files import require_file, write_atomically
from ..model import Learner
from ..model.nn import is_array

FORMAT = "metafun-1"


def save(path: Path, experiment: Experiment, groups: Mapping[str, PyTree], record: Mapping[str, Any]) -> None:
    """Writes a checkpoint atomically.

    Args:
        path: the file.
        experiment: what the models were trained on; its configuration goes into the header.
        groups: trees of arrays by name; an array is called `group.path.to.array`.
        record: anything JSON can hold, for the header.
    """
    tensors = {name: array for group, tree in groups.items() for name, array in arrays(group, tree).items()}
    header = {"format": FORMAT, "config": experiment.config.to_toml(), "record": json.dumps(dict(record))}
    write_atomically(path, safetensors.numpy.save(tensors, header))


class Checkpoint:
    """An opened checkpoint: `experiment` and `record` are read once; tensors stay on disk until they are asked for.

    Args:
        path: a file written by `save`; it is checked, and nothing in it is executed.
    """

    def __init__(self, path: Path):
        self.path = path
        with _open(path) as file:
            header = file.metadata() or {}
        if header.get("format") != FORMAT:
            raise InvalidCheckpoint(
                f"{path} is not a checkpoint of metafun: its header has format {header.get('format')!r}, "
                f"expected {FORMAT!r}."
            )
        try:
            # Settings may have been renamed since the file was written.
            with warnings.catch_warnings(action="ignore", category=FutureWarning):
                config = parse_config(parse_toml(header["config"], "its configuration"))
            self.experiment = Experiment(config)
            self.record = json.loads(header["record"])
        except UnknownKind as error:
            raise InvalidCheckpoint(f"{path}: {error} {error.remedy}") from None
        except (MetaFunError, KeyError, ValueError, RecursionError) as error:  # an integer may have too many digits
            raise InvalidCheckpoint(f"{path} has a damaged header: {error}") from None
        if not isinstance(self.record, dict):
            raise InvalidCheckpoint(f"{path} has a damaged header: its record is not a table.")

    def models(self, variant: int = 0, group: str = "best") -> Learner:
        """The models of all seeds of a variant as one, with a leading axis for the seed in every array."""
        variants, seeds = self.experiment.variants, len(self.experiment.training.seeds)

        def stacked(leaf: Any) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct((len(variants) * seeds, *leaf.shape), leaf.dtype)

        loaded = self.group(group, _map_arrays(stacked, variants[variant].blank_model()))
        return _map_arrays(lambda a: a[variant * seeds : (variant + 1) * seeds], loaded)

    def model(self, variant: int = 0, seed: int | None = None, group: str = "best") -> Learner:
        """The model of one seed, or of the first."""
        seeds = self.experiment.training.seeds
        if seed is not None and seed not in seeds:
            raise InvalidCheckpoint(f"{self.path} holds the seeds {list(seeds)}, not {seed}.")
        index = 0 if seed is None else seeds.index(seed)
        return _map_arrays(lambda a: a[index], self.models(variant, group))

    def group(self, name: str, like: PyTree) -> PyTree:
        """The arrays of a group in the structure of `like`; names, shapes and types must agree."""
        check_shapes(name, like, read_shapes(self.path, name), str(self.path))  # before the data are read
        return fill(name, like, read_arrays(self.path, name), str(self.path))


# The names of types in safetensors; others, such as 8-bit floats, are not NumPy's.
_TYPES = {
    **{f"F{8 * size}": np.dtype(f"f{size}") for size in (2, 4, 8)},
    **{f"{kind.upper()}{8 * size}": np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)},
    "BOOL": np.dtype(bool),
}


def read_shapes(path: Path, group: str) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes and types of all arrays of a group by name, from the header of the file."""
    shapes = {}
    with _open(path) as file:
        for name in _names(file, group):
            described = file.get_slice(name)
            if (dtype := described.get_dtype()) not in _TYPES:
                raise InvalidCheckpoint(
                    f"{path}: '{name[:100]}' is of type {dtype}, expected one of {', '.join(_TYPES)}."
                )
            shapes[name] = jax.ShapeDtypeStruct(tuple(described.get_shape()), _TYPES[dtype])
    return shapes


def read_arrays(path: Path, group: str) -> dict[str, np.ndarray]:
    """All arrays of a group by name; empty if the file has no such group."""
    with _open(path) as file:
        return {name: file.get_tensor(name) for name in _names(file, group)}


def _names(file: Any, group: str) -> list[str]:
    return [name for name in file.keys() if name.startswith(group + ".")]  # noqa: SIM118


def arrays(group: str, tree: PyTree) -> dict[str, np.ndarray]:
    """All arrays of a tree by name; `fill` is the inverse."""
    # safetensors writes memory as it lies, so arrays must be in C order.
    return {name: np.asarray(array, order="C") for name, array in _named(group, tree)}


def fill(group: str, like: PyTree, found: Mapping[str, np.ndarray], source: str) -> PyTree:
    """The structure of `like` with the arrays `found`.

    Args:
        group: the prefix of the arrays' names.
        like: a tree with arrays or shapes as leaves.
        found: arrays by name; InvalidCheckpoint unless names, shapes and types are those of `like`.
        source: where they come from, for the error message.
    """
    check_shapes(group, like, found, source)
    dynamic, static = eqx.partition(like, is_array)
    leaves = [jnp.asarray(found[name]) for name, _ in _named(group, dynamic)]
    return eqx.combine(jax.tree.unflatten(jax.tree.structure(dynamic), leaves), static)


def check_shapes(group: str, like: PyTree, found: Mapping[str, Any], source: str) -> None:
    """InvalidCheckpoint unless names, shapes and types of `found` are those of `like`; arguments as in `fill`."""
    expected = dict(_named(group, like))
    if odd := sorted(found.keys() ^ expected.keys()):
        raise InvalidCheckpoint(
            f"{source} does not hold the model it describes: '{odd[0][:200]}' is missing or unexpected."
        )
    for name, array in found.items():
        dtype, shape = expected[name].dtype, expected[name].shape
        if (array.dtype, array.shape) != (dtype, shape):
            raise InvalidCheckpoint(
                f"{source}: '{name}' is {array.dtype}{list(array.shape)}, expected {dtype}{list(shape)}."
            )


def _map_arrays(function: Callable, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda leaf: function(leaf) if is_array(leaf) else leaf, tree)


def _named(group: str, tree: PyTree) -> list[tuple[str, Any]]:
    paths = jax.tree_util.tree_leaves_with_path(eqx.filter(tree, is_array))
    return [(f"{group}.{jax.tree_util.keystr(path, simple=True, separator='.')}", leaf) for path, leaf in paths]


@contextlib.contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        require_file(path)
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file
    except FileNotFoundError:
        raise InvalidCheckpoint(f"there is no checkpoint at {path}.") from None
    except (safetensors.SafetensorError, OSError) as error:
        raise InvalidCheckpoint(f"{path} is truncated or not a safetensors file: {error}.") from None
