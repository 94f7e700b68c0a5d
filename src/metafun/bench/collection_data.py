"""Collections of related regression tasks: two that are always there, and files of a user."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from ..data.arrays import read_npz
from ..data.csv_columns import read_csv
from ..data.table import printable
from ..errors import InvalidConfig, InvalidData, suggest
from ..estimators.base import LARGEST
from ..estimators.task_rows import encode_columns
from ..tasks.scaling import MeanStdScaling

TaskRows = tuple[NDArray, NDArray]
# From the context (X [n, dx], y [n]) and X [m, dx] of a new task to the means and standard deviations of y, [m] each.
Predict = Callable[[NDArray, NDArray, NDArray], tuple[NDArray, NDArray]]
# Learns from tasks (X, y) and a seed. X and y are standardised over all training rows.
Learn = Callable[[Sequence[TaskRows], int], Predict]

# Share of the tasks that is held out.
TEST_SHARE = 0.25


@dataclass(frozen=True)
class Collection:
    """Regression tasks of one kind.

    Args:
        name: its name in results.
        source: name or path, as it was given.
        tasks: (X [n, dx], y [n]) of each task; n may differ.
    """

    name: str
    source: str
    tasks: Sequence[tuple[NDArray, NDArray]]

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all rows."""
        digest = hashlib.sha256()
        for array in (array for task in self.tasks for array in task):
            digest.update(f"{array.shape}".encode() + np.ascontiguousarray(array, float).tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Context:
    """A held-out task: some of its points, and the others to predict. All are standardised by the training tasks."""

    x: NDArray
    y: NDArray
    x_target: NDArray
    y_target: NDArray


class Split:
    """Training tasks, and held-out ones.

    Args:
        collection: the tasks.
        seed: seed of the choice of held-out tasks and of their contexts.
    """

    def __init__(self, collection: Collection, seed: int):
        tasks, self.seed = collection.tasks, seed
        order = np.random.default_rng(seed).permutation(len(tasks))
        count = max(1, round(TEST_SHARE * len(tasks)))
        train = [tasks[i] for i in order[count:]]
        inputs, outputs = (
            np.concatenate([a.reshape(len(a), -1) for a in arrays]) for arrays in zip(*train, strict=True)
        )
        self.inputs, self.outputs = MeanStdScaling.of(inputs), MeanStdScaling.of(outputs)
        # Errors are divided by the deviation of all y, in the units of the standardised y.
        self.deviation = np.concatenate([y for _, y in tasks]).std() / self.outputs.deviation[0]
        self.train = [self._scaled(*task) for task in train]
        self._test = [self._scaled(*tasks[i]) for i in order[:count]]

    def _scaled(self, x: NDArray, y: NDArray) -> tuple[NDArray, NDArray]:
        return self.inputs(x), self.outputs(y[:, None])[:, 0]

    @property
    def largest_test(self) -> int:
        """Points of the largest held-out task."""
        return max(len(y) for _, y in self._test)

    def contexts(self, points: int) -> list[Context]:
        """Each held-out task with more than so many points, `points` of which are its context."""
        rng, found = np.random.default_rng((self.seed, points)), []
        for x, y in self._test:
            chosen, rest = np.split(rng.permutation(len(y)), [points])
            if len(rest):
                found.append(Context(x[chosen], y[chosen], x[rest], y[rest]))
        return found


def _digits() -> list[tuple[NDArray, NDArray]]:
    """The first 200 of scikit-learn's images of digits; a task is an image, from the place of a pixel to its ink."""
    images = load_digits().images[:200]
    places = np.indices(images.shape[1:]).reshape(2, -1).T.astype(float)
    return [(places, image.ravel()) for image in images]


def _growth() -> list[tuple[NDArray, NDArray]]:
    """60 synthetic growth curves of 12 points: logistic in time, with limit, rate and onset of each task."""
    rng = np.random.default_rng(0)
    limit, rate, onset = rng.normal(10, 1.5, 60), rng.lognormal(0, 0.3, 60), rng.normal(4, 1, 60)
    times = np.sort(rng.uniform(0, 10, (60, 12)), axis=1)
    sizes = limit[:, None] / (1 + np.exp(-rate[:, None] * (times - onset[:, None])))
    noisy = sizes + rng.normal(0, 0.2, sizes.shape)
    return [(t[:, None], y) for t, y in zip(times, noisy, strict=True)]


BUNDLED: dict[str, Callable[[], list[tuple[NDArray, NDArray]]]] = {"digits": _digits, "growth": _growth}


def open_collection(source: str, target: str, task: str) -> Collection:
    """A bundled collection by name, or one from a file, whose text, dates and gaps are encoded as in `meta_fit`.

    Args:
        source: the name, or a CSV or .npz file; an .npz file has the inputs in X or x.
        target: column or array of the outputs.
        task: column or array that names the task of each row.
    """
    if source in BUNDLED:
        return Collection(source, source, BUNDLED[source]())
    path = Path(source)
    if not path.is_file():
        raise InvalidConfig(f"there is no file {source}, and no bundled collection; {suggest(source, BUNDLED)}")
    x, y, names = (_read_npz if path.suffix == ".npz" else _read_csv)(path, target, task)
    if len({len(x), len(y), len(names)}) > 1 or y.ndim != 1:
        raise InvalidData(f"{source} has {len(x)} rows of inputs, outputs {list(y.shape)} and {len(names)} tasks.")
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise InvalidData(f"{source} holds NaN or infinity; this benchmark needs complete rows: drop or fill them.")
    if max(np.abs(x).max(), np.abs(y).max()) > LARGEST:
        raise InvalidData(f"{source} holds numbers beyond {LARGEST:g}; rescale them.")
    if (y == y[0]).all():
        raise InvalidData(f"{source}: the output is {y[0]:g} in every row; there is nothing to predict.")
    if np.ptp(y) < 1 / LARGEST:
        raise InvalidData(f"{source}: the outputs differ by {np.ptp(y):.3g}; rescale them.")
    tasks = [(x[names == name], y[names == name]) for name in np.unique(names)]
    tasks = [(x, y) for x, y in tasks if len(y) > 1]  # one point cannot be context and target
    if len(tasks) < 4:
        raise InvalidData(f"{source} has {len(tasks)} tasks of two points or more; the benchmark needs at least 4.")
    return Collection(path.stem, source, tasks)


def _read_csv(path: Path, target: str, task: str) -> tuple[NDArray, NDArray, NDArray]:
    columns = read_csv(path)
    for name in (target, task):
        columns.expect(name)
    inputs = [name for name in columns.names if name not in (target, task)]
    if not inputs:
        raise InvalidData(printable(f"{path} has no column beside '{target}' and '{task}' to predict from."))
    x, _ = encode_columns([columns.column(name) for name in inputs])
    return x, columns.numbers([target])[:, 0], np.array(columns.labels(task))


def _read_npz(path: Path, target: str, task: str) -> tuple[NDArray, NDArray, NDArray]:
    arrays = read_npz(path, ["X", "x", target, task])
    inputs = "X" if "X" in arrays else "x"
    for name in (inputs, target, task):
        if name not in arrays:
            raise InvalidData(f"{path} has no array '{name}'; it needs X, {target} and {task}.")
        array, is_number = arrays[name], arrays[name].dtype.kind in "biuf"
        if not array.size or not array.ndim or (name == task and array.ndim > 1) or not (is_number or name == task):
            found = f"{'numbers' if is_number else 'text'} {list(array.shape)}"
            wanted = "a name or number" if name == task else "numbers"
            raise InvalidData(f"{path}: '{name}' holds {found}; expected {wanted} for each row.")
    x = np.asarray(arrays[inputs], float)
    return x.reshape(len(x), -1), np.asarray(arrays[target], float), arrays[task]
