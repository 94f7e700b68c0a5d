"""Tasks that are drawn from tables: classes of rows, and rows (x, y) of collected tasks."""

import dataclasses
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ..data import Table, open_table
from ..errors import InvalidConfig, InvalidData
from ..schema import Between
from ..tasks import Collected, Episodes, MeanStdScaling
from ..tasks import collected as collecting
from ..tasks.episodes import check
from ..tasks.row_transforms import Pixels, RowTransform, UnitLength, unit
from ..tasks.rows import Rows, of_splits
from .tasks import AS_THEY_ARE, AsTrained, EvaluationConfig
from .values import Count, NonNegative, Positive, Real, Size, TrainingSplit


@dataclass(frozen=True)
class PixelsConfig:
    """Rows are images. With `rotations`, each training class is there four times, turned by multiples of 90°.

    With `jitter`, each training image is turned, stretched, slanted and moved a little, at random.
    """

    rotations: bool = False
    jitter: NonNegative = 0.0


@dataclass(frozen=True)
class EpisodesConfig(AsTrained):
    """`ways` classes a task, `shots` context rows and `queries` targets of each, from a table of features.

    Rows are scaled to length one, and in training `noise` of this length is added; or they are `pixels`. `features`,
    `image` and `fingerprint` are filled in from the data when a run begins, and hold it to them.
    """

    kind: Literal["episodes"] = "episodes"
    data: str = "glyphs"
    train_on: tuple[TrainingSplit, ...] = ("train",)
    ways: Annotated[int, Between(2, 2**31 - 1)] = 5
    shots: Count = 1
    queries: Count = 15
    noise: NonNegative = 0.0
    pixels: PixelsConfig | None = None
    features: Count | None = None
    image: tuple[Count, Count] | None = None
    fingerprint: str | None = None

    problem = "classification"
    output_scaling = AS_THEY_ARE
    inputs = output_bounds = None

    @property
    def trained_on(self) -> str:
        return f"{self.data}, {'+'.join(self.train_on)}"

    @property
    def tested_on(self) -> str:
        return f"{self.data}, test"

    @property
    def sizes(self) -> tuple[int, int]:
        if self.features is None:
            raise InvalidConfig("tasks.features is not known before the data are; use the configuration's resolved().")
        return self.features, 0

    def presumed(self, features: int) -> "EpisodesConfig":
        """With that many features, or some image, unless the data have told how many there are."""
        if self.features is not None:
            return self
        image = (28, 28) if self.pixels is not None else None
        return dataclasses.replace(self, features=features if image is None else math.prod(image), image=image)

    def resolved(self, validates: bool) -> "EpisodesConfig":
        """With what the data tell, if such tasks can be drawn from them at all."""
        if self.features is not None and self.fingerprint is not None:
            return self
        table = self.table()
        for splits in (self.train_on, ("val",))[: 1 + validates]:
            check(table, splits, **self._sizes)
        return dataclasses.replace(
            self,
            data=_anchored(self.data),
            features=table.features.shape[1],
            image=self._image(table),
            fingerprint=table.fingerprint,
        )

    def _image(self, table: Table) -> tuple[int, int] | None:
        if self.pixels is None:
            return None
        if table.image is None:
            raise InvalidData(f"data '{self.data}' are not images; import a folder of them, or leave tasks.pixels out.")
        if self.pixels.rotations and table.image[0] != table.image[1]:
            raise InvalidData(
                f"data '{self.data}': images of {table.image} pixels cannot be turned; they are not square."
            )
        return table.image

    def prepare(self, x: Rows) -> Rows:
        """Rows as the model takes them: of length one, or from 0 to 1."""
        return unit(x) if self.pixels is None else x / 255

    def check(self) -> None:
        if not self.train_on or len(set(self.train_on)) < len(self.train_on):
            raise InvalidConfig(f"tasks.train_on = {list(self.train_on)}, but it must name splits, none of them twice.")

    def table(self) -> Table:
        """The data, if they are those the run began with."""
        table = _open_table(self.data, self.fingerprint)
        if self.features not in (None, table.features.shape[1]):
            raise InvalidData(f"data '{self.data}' have {table.features.shape[1]} features; expected {self.features}.")
        return table

    def training(self) -> Episodes:
        if self.pixels is None or self.image is None:
            inputs: RowTransform = UnitLength(self.noise)
        else:
            inputs = Pixels(self.image, self.pixels.rotations, self.pixels.jitter)
        return Episodes.over(self.table(), self.train_on, **self._sizes, inputs=inputs)

    def validation(self) -> Episodes:
        return Episodes.over(self.table(), ("val",), **self._sizes, inputs=self._inputs)

    def test(self, evaluation: EvaluationConfig) -> Iterator[tuple[str, Episodes]]:
        """One after another, so that the table is on the device only once."""
        table, queries = self.table(), evaluation.targets or self.queries
        for ways in evaluation.ways or (self.ways,):
            for shots in evaluation.shots or (self.shots,):
                yield (
                    f"{ways}way_{shots}shot",
                    Episodes.over(table, ("test",), ways=ways, shots=shots, queries=queries, inputs=self._inputs),
                )

    @property
    def _inputs(self) -> RowTransform:
        """As they are but for training."""
        return UnitLength() if self.image is None else Pixels(self.image)

    @property
    def _sizes(self) -> dict[str, int]:
        return {"ways": self.ways, "shots": self.shots, "queries": self.queries}


@dataclass(frozen=True)
class CollectedConfig(AsTrained):
    """n context points, uniform in `context`, and up to `targets` others of a task, from a table of rows (x, y).

    The last `outputs` columns are y. A model is given each column with its `mean` taken off and divided by its
    `deviation`; these are of all training tasks and, as `fingerprint`, filled in when a run begins.
    """

    kind: Literal["collected"] = "collected"
    data: str = ""
    outputs: Count = 1
    context: tuple[Size, Size] = (1, 32)
    targets: Count = 32
    mean: tuple[Real, ...] | None = None
    deviation: tuple[Positive, ...] | None = None
    fingerprint: str | None = None

    problem = "regression"
    inputs = output_bounds = None

    @property
    def trained_on(self) -> str:
        return f"{self.data}, train"

    @property
    def tested_on(self) -> str:
        return f"{self.data}, test"

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self._columns.mean) - self.outputs, self.outputs

    def presumed(self, inputs: int) -> "CollectedConfig":
        """With that many inputs, unless the data have told how many there are."""
        count = inputs + self.outputs
        return (
            self if self.mean is not None else dataclasses.replace(self, mean=(0.0,) * count, deviation=(1.0,) * count)
        )

    def resolved(self, validates: bool) -> "CollectedConfig":
        if self.mean is not None and self.deviation is not None and self.fingerprint is not None:
            return self
        if not self.data:
            raise InvalidConfig("tasks.data names the table of tasks to learn from; give it, or --data.")
        table = _open_table(self.data, self.fingerprint)
        for split in ("train", "val")[: 1 + validates]:
            collecting.check(table, split, self.outputs)
        columns = MeanStdScaling.of(of_splits(table, "train")[0])
        return dataclasses.replace(
            self,
            data=_anchored(self.data),
            mean=columns.mean,
            deviation=columns.deviation,
            fingerprint=table.fingerprint,
        )

    def check(self) -> None:
        if self.context[0] > self.context[1]:
            raise InvalidConfig(f"tasks.context = {list(self.context)}, but the least comes first.")
        if self.mean is not None and not self.outputs < len(self.mean) == len(self.deviation or ()):
            raise InvalidConfig("tasks.mean and tasks.deviation must have a number for each input and output.")

    def prepare(self, x: Rows) -> Rows:
        """Inputs as the model takes them."""
        return self._columns[: self.sizes[0]](x)

    @property
    def output_scaling(self) -> MeanStdScaling:
        return self._columns[self.sizes[0] :]

    def training(self) -> Collected:
        return self._tasks("train", self.context, self.targets)

    def validation(self) -> Collected:
        return self._tasks("val", self.context, self.targets)

    def test(self, evaluation: EvaluationConfig) -> Iterator[tuple[str, Collected]]:
        """Errors are in deviations of the outputs."""
        if evaluation.ways is not None:
            raise InvalidConfig("evaluation.ways is for classification; these tasks have no classes.")
        targets = evaluation.targets or self.targets
        if evaluation.shots is None:
            yield "anyshot", self._tasks("test", self.context, targets)
        for n in evaluation.shots or ():
            yield f"{n}shot", self._tasks("test", (n, n), targets)

    def _tasks(self, split: str, context: tuple[int, int], targets: int) -> Collected:
        table = _open_table(self.data, self.fingerprint)
        return Collected.over(table, split, outputs=self.outputs, context=context, targets=targets, scale=self._columns)

    @property
    def _columns(self) -> MeanStdScaling:
        if self.mean is None or self.deviation is None:
            raise InvalidConfig("tasks.mean is not known before the data are; use the configuration's resolved().")
        return MeanStdScaling(self.mean, self.deviation)


def _open_table(data: str, fingerprint: str | None) -> Table:
    """The data, if they are those with that fingerprint."""
    table = open_table(data)
    if fingerprint not in (None, table.fingerprint):
        raise InvalidData(
            f"data '{data}' are not what they were when this run began; put them back, train again with "
            "--overwrite, or evaluate with --data NAME."
        )
    return table


def _anchored(data: str) -> str:
    """A path that leads to the same file from wherever the run is used; a name stays a name."""
    return str(Path(data).expanduser().resolve()) if os.sep in data or data.endswith(".npz") else data
