"""N-way K-shot episodes over any table of features (Section 4.2)."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, Shaped

from ..data import Table, absolute
from ..errors import InvalidConfig, InvalidData
from ..model.task import Points, Task
from ..values import ClassCount, Count, NonNegative, Real, TrainingSplit
from .base import TaskDistribution, TaskSource
from .row_transforms import Pixels, RowTransform, UnitLength, unit
from .rows import choose, open_unchanged, rows_of
from .scaling import UNSCALED, TaskScaling


class Episodes(TaskDistribution):
    """N classes with K context rows and some target rows each; no row is drawn twice.

    The table stays on the device in its stored precision. A row is transformed when it is drawn.

    Args:
        features: all rows, grouped by class.
        starts: index of the first row of each class.
        counts: rows of each class.
        largest: rows of the largest class.
        ways: classes of a task, N.
        shots: context rows of each class, K.
        queries: target rows of each class.
        transform: from stored rows to inputs.
    """

    features: Shaped[Array, "rows dx"]
    starts: Int[Array, " c"]
    counts: Int[Array, " c"]
    largest: int = eqx.field(static=True)
    ways: int = eqx.field(static=True)
    shots: int = eqx.field(static=True)
    queries: int = eqx.field(static=True)
    transform: RowTransform

    @classmethod
    def over(
        cls,
        table: Table,
        splits: Sequence[str],
        *,
        ways: int,
        shots: int,
        queries: int,
        transform: RowTransform | None = None,
    ) -> "Episodes":
        """Episodes over the classes of some splits; InvalidData if these are too few or too small."""
        check(table, splits, ways=ways, shots=shots, queries=queries)
        features, starts, counts = rows_of(table, *splits)
        return cls(
            features=jax.device_put(features),
            starts=jnp.asarray(starts),
            counts=jnp.asarray(counts),
            largest=int(counts.max()),
            ways=ways,
            shots=shots,
            queries=queries,
            transform=transform or UnitLength(),
        )

    def sample(self, key: PRNGKeyArray) -> Task:
        key_rows, key_transform = jax.random.split(key)
        rows, copy = self.draw(key_rows)
        x = self.transform(self.features[rows].astype(float), copy, key_transform)
        context, target = jnp.split(x, [self.shots], axis=1)
        return Task(_points(context), _points(target))

    def draw(self, key: PRNGKeyArray) -> tuple[Int[Array, "ways each"], Int[Array, " ways"]]:
        """Row indices of a task, context rows first, and the index of each class's copy (e.g. its rotation)."""
        key_classes, key_rows = jax.random.split(key)
        chosen = choose(key_classes, jnp.ones(len(self.counts) * self.transform.copies, bool), self.ways)
        classes, copy = jnp.divmod(chosen, self.transform.copies)
        exists = jnp.arange(self.largest) < self.counts[classes, None]
        rows = choose(key_rows, exists, self.shots + self.queries)
        return self.starts[classes, None] + rows, copy


def _points(x: Float[Array, "ways each dx"]) -> Points:
    ways, each, dx = x.shape
    y = jnp.repeat(jnp.eye(ways, dtype=x.dtype), each, axis=0)
    return Points(x.reshape(-1, dx), y, jnp.ones(ways * each, bool))


def check(table: Table, splits: Sequence[str], *, ways: int, shots: int, queries: int) -> None:
    """InvalidData if the splits have too few classes for such tasks, or classes with too few rows."""
    classes, where = table.split(*splits), f"data '{table.name}', {'+'.join(splits)}"
    if len(classes) < ways:
        raise InvalidData(
            f"{where}: {ways} ways need as many classes, and there are {len(classes)}; use fewer (tasks.ways, --ways)."
        )
    if shots < 1:
        raise InvalidData(f"{where}: shots = {shots}, but every class needs at least one context row.")
    small = [f"'{rows.name}' ({rows.count})" for rows in classes if rows.count < shots + queries]
    if small:
        more = f" and {len(small) - 5} more" if len(small) > 5 else ""
        raise InvalidData(
            f"{where}: shots and queries need {shots} + {queries} rows of each class; these have fewer: "
            f"{', '.join(small[:5])}{more}; use fewer (tasks.shots, tasks.queries), or remove these classes."
        )


@dataclass(frozen=True)
class PixelSettings:
    """Rows are images.

    Args:
        rotations: in training, each class appears four times, rotated by multiples of 90°.
        jitter: in training, strength of a random affine map of each image.
    """

    rotations: bool = False
    jitter: NonNegative = 0.0


@dataclass(frozen=True)
class EpisodeTasks(TaskSource):
    """Episodes over a table of features or images. Features are scaled to length one, and centred before if asked.

    Args:
        data: name or path of the table.
        train_on: splits whose classes are trained on.
        ways: classes of a task.
        shots: context rows of each class.
        queries: target rows of each class.
        noise: in training, length of the normal noise added to features of length one.
        pixels: if given, rows are images.
        centre: whether the mean of the rows of the split train is subtracted from features before they are scaled.
        features: columns of the table; filled in when a run begins.
        image: height and width of the images; filled in when a run begins.
        fingerprint: SHA-256 of the table; filled in when a run begins.
        mean: mean of each column over the split train, with `centre`; filled in when a run begins.
    """

    kind: Literal["episodes"] = "episodes"
    data: str = "glyphs"
    train_on: tuple[TrainingSplit, ...] = ("train",)
    ways: ClassCount = 5
    shots: Count = 1
    queries: Count = 15
    noise: NonNegative = 0.0
    pixels: PixelSettings | None = None
    centre: bool = False
    features: Count | None = None
    image: tuple[Count, Count] | None = None
    fingerprint: str | None = None
    mean: tuple[Real, ...] | None = None

    added = {"centre": False}  # noqa: RUF012
    problem = "classification"
    splits_classes = True

    @property
    def sizes(self) -> tuple[int, int]:
        if self.features is None:
            raise InvalidConfig("tasks.features is not known before the data are read; resolve the configuration.")
        return self.features, 0

    @property
    def classes(self) -> int:
        return self.ways

    @property
    def trained_on(self) -> str:
        return f"{self.data}, {'+'.join(self.train_on)}"

    @property
    def tested_on(self) -> str:
        return f"{self.data}, test"

    def check(self, validates: bool) -> None:
        if not self.train_on or len(set(self.train_on)) < len(self.train_on):
            raise InvalidConfig(f"tasks.train_on = {list(self.train_on)}; it must name splits, none of them twice.")
        if "val" in self.train_on and validates:
            raise InvalidConfig(
                "tasks.train_on includes val, so val cannot be used for validation; set training.validate_every=0."
            )
        if self.centre and self.pixels is not None:
            raise InvalidConfig("tasks.centre is for features, but tasks.pixels makes rows images; drop one of them.")

    def resolve(self, validates: bool) -> Self:
        if self.features is not None and self.fingerprint is not None and self.centre == (self.mean is not None):
            return self
        table = self.table()
        for splits in (self.train_on, ("val",))[: 1 + validates]:
            check(table, splits, ways=self.ways, shots=self.shots, queries=self.queries)
        return dataclasses.replace(
            self,
            data=absolute(self.data),
            features=table.features.shape[1],
            image=self._image(table),
            fingerprint=table.fingerprint,
            mean=self._mean(table),
        )

    def _mean(self, table: Table) -> tuple[float, ...] | None:
        """The mean that was subtracted in training stays, also with other data: it is part of the model."""
        if not self.centre or self.mean is not None:
            return self.mean if self.centre else None
        return tuple(rows_of(table, "train")[0].mean(0, dtype=np.float64).tolist())

    def _image(self, table: Table) -> tuple[int, int] | None:
        if self.pixels is None:
            return None
        if table.image is None:
            raise InvalidData(f"data '{self.data}' are not images; import a folder of images, or drop tasks.pixels.")
        if self.pixels.rotations and table.image[0] != table.image[1]:
            raise InvalidData(f"data '{self.data}': only square images can be rotated; these are {table.image}.")
        return table.image

    def with_assumed_inputs(self, columns: int) -> Self:
        if self.features is not None:
            return self
        image = (28, 28) if self.pixels is not None else None
        return dataclasses.replace(self, features=columns if image is None else math.prod(image), image=image)

    def with_data(self, data: str) -> Self:
        return dataclasses.replace(self, data=data, fingerprint=None)

    def including_validation(self) -> Self:
        if self.train_on != ("train",):
            raise InvalidConfig("the protocol validates on val: leave tasks.train_on at ['train'].")
        return dataclasses.replace(self, train_on=("train", "val"))

    def table(self) -> Table:
        """The data; InvalidData if they have changed since the run began."""
        table = open_unchanged(self.data, self.fingerprint)
        if self.features not in (None, table.features.shape[1]):
            raise InvalidData(f"data '{self.data}' have {table.features.shape[1]} features; expected {self.features}.")
        return table

    def training(self) -> Episodes:
        if self.pixels is None or self.image is None:
            transform: RowTransform = UnitLength(self.noise, self._centre)
        else:
            transform = Pixels(self.image, self.pixels.rotations, self.pixels.jitter)
        return self._episodes(self.table(), self.train_on, transform)

    def validation(self) -> Episodes:
        return self._episodes(self.table(), ("val",), self._plain_transform)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, Episodes]]:
        table, queries = self.table(), targets or self.queries
        for n in ways or (self.ways,):
            for k in shots or (self.shots,):
                tasks = dataclasses.replace(self, ways=n, shots=k, queries=queries)
                yield f"{n}way_{k}shot", tasks._episodes(table, ("test",), self._plain_transform)

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        """Rows of length one, or pixels from 0 to 1."""
        if self.pixels is not None:
            return TaskScaling(lambda x: x / 255, UNSCALED.outputs)
        mean = self.mean
        scale_inputs = unit if mean is None else lambda x: unit(x - np.array(mean))
        return TaskScaling(scale_inputs, UNSCALED.outputs)

    @property
    def _plain_transform(self) -> RowTransform:
        """Without training-time noise or augmentation."""
        return UnitLength(mean=self._centre) if self.image is None else Pixels(self.image)

    @property
    def _centre(self) -> Float[Array, " dx"] | None:
        """The mean that is subtracted, if any."""
        if self.centre and self.mean is None:
            raise InvalidConfig("tasks.mean is not known before the data are read; resolve the configuration.")
        return None if self.mean is None else jnp.array(self.mean)

    def _episodes(self, table: Table, splits: Sequence[str], transform: RowTransform) -> Episodes:
        sizes = {"ways": self.ways, "shots": self.shots, "queries": self.queries}
        return Episodes.over(table, splits, **sizes, transform=transform)
