"""Settings of episodes: which classes of a table, how many rows of each, and how rows become inputs."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import Table, absolute
from ..errors import InvalidConfig, InvalidData
from ..values import ClassCount, Count, NonNegative, PointCount, Positive, Power, Real, Share, Size, TrainingSplit
from .base import TaskSource
from .directions import SHRINKAGES, Scatter, along_first_component, discriminant, principal
from .episodes import Episodes, check
from .preprocessing import POWERS, NearestMeans, Preprocessing, best_temperature, clearly_best, raised, unit
from .row_transforms import Pixels, RowTransform, Unchanged, UnitLength
from .rows import open_unchanged, rows_of
from .scaling import UNSCALED, TaskScaling

# Name of the split of classes of val that are not trained on.
HELD_OUT = "held-out"
# Folds of the validation classes, where the others are trained on.
FOLDS = 2
# Tasks on which ways of preprocessing are compared.
CHOICE_TASKS = 1000


Source = TypeVar("Source", bound="EpisodeTasks")


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
    """Episodes over a table of features or images. Features are raised to a power, centred, and scaled to length one.

    Args:
        data: name or path of the table.
        train_on: splits whose classes are trained on.
        ways: classes of a task.
        shots: context rows of each class.
        queries: target rows of each class.
        noise: in training, length of the normal noise added to features of length one.
        pixels: if given, rows are images.
        centre: whether the mean of the rows of train is subtracted from features before they are scaled; with
            `val_share`, the means of train and val are weighted by it.
        power: exponent of the absolute features, before they are centred.
        choose: whether `centre` and `power` are chosen when a run begins: those with which the nearest class mean is
            best on the validation classes; with `val_share`, on folds of them, as in the protocol.
        discriminant: whether a model with `embedding.directions` starts in the directions that tell the training
            classes apart; otherwise these are principal components, which leave cosines as they are. With `choose`,
            only if the nearest class mean is better that way.
        shrinkage: of these directions: the larger, the less they differ from principal components; with `choose`,
            chosen too.
        val_share: share of the training tasks whose classes are all of val, where val is trained on, as in the
            protocol; the classes of the others are all of train. If not given, tasks mix the classes of both.
        held_out: fold and number of folds: this fold of the classes of val is not trained on, and validates instead.
            Classes of a fold are alike.
        features: columns of the table; filled in when a run begins.
        image: height and width of the images; filled in when a run begins.
        fingerprint: SHA-256 of the table; filled in when a run begins.
        mean: mean of each column, with `centre`; filled in when a run begins.
        temperature: with which a model's similarity term starts; if not given, `model.similarity.temperature`. Filled
            in with `choose` and `discriminant`: the most likely one of the nearest class mean.
    """

    kind: Literal["episodes"] = "episodes"
    data: str = "glyphs"
    train_on: tuple[TrainingSplit, ...] = ("train",)
    ways: ClassCount = 5
    shots: PointCount = 1
    queries: PointCount = 15
    noise: NonNegative = 0.0
    pixels: PixelSettings | None = None
    centre: bool = False
    power: Power = 1.0
    choose: bool = False
    discriminant: bool = False
    shrinkage: Positive = 1.0
    val_share: Share | None = None
    held_out: tuple[Size, Count] | None = None
    features: Count | None = None
    image: tuple[Count, Count] | None = None
    fingerprint: str | None = None
    mean: tuple[Real, ...] | None = None
    temperature: Positive | None = None

    added = {"centre": False, "power": 1.0, "choose": False, "discriminant": False, "shrinkage": 1.0}  # noqa: RUF012
    problem = "classification"
    splits_classes = True
    test_settings = ("fingerprint",)

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
        if "val" in self.train_on and validates and self.held_out is None:
            raise InvalidConfig(
                "tasks.train_on includes val, so val cannot be used for validation; set training.validate_every=0."
            )
        if self.held_out is not None and not self.held_out[0] < self.held_out[1]:
            fold, folds = self.held_out
            raise InvalidConfig(
                f"tasks.held_out = [{fold}, {folds}], but the first number, the fold, must be from 0 to {folds - 1}."
            )
        if self.pixels is not None:
            for name in ("centre", "power", "choose", "discriminant"):
                if getattr(self, name) != self.added[name]:
                    raise InvalidConfig(f"tasks.{name} is for features, but tasks.pixels makes rows images; drop one.")

    def resolve(self, validates: bool) -> Self:
        known = self.features is not None and self.fingerprint is not None and self.centre == (self.mean is not None)
        if known and not self.choose:
            return self
        if self.choose:
            return self._chosen(validates).resolve(validates)
        table = self.table()
        trained = [self.train_on] if self._shares is None else [(split,) for split in self._shares]
        for splits in [*trained, *[(self._validation_split,)] * validates]:
            check(table, splits, ways=self.ways, shots=self.shots, queries=self.queries)
        return dataclasses.replace(
            self,
            data=absolute(self.data),
            features=table.features.shape[1],
            image=self._image(table),
            fingerprint=table.fingerprint,
            mean=self._mean(table),
        )

    def _chosen(self, validates: bool) -> Self:
        """With the preprocessing that is best for a nearest class mean on the validation classes."""
        options = [
            dataclasses.replace(self, choose=False, discriminant=False, centre=centre, power=power, mean=None)
            for power in POWERS
            for centre in (True, False)
        ]
        if not validates:
            return options[0]
        best = _best(options)
        if self.discriminant:
            # A common direction of all classes tells none apart.
            along = [dataclasses.replace(best, centre=True, discriminant=True, shrinkage=s) for s in SHRINKAGES]
            best = _best([best, *along])
            best = dataclasses.replace(best, temperature=best_temperature(best.nearest_means(CHOICE_TASKS)))
        return best

    def nearest_means(self, count: int) -> list[NearestMeans]:
        """Nearest class means of the preprocessed features on the validation classes, or on folds of them.

        Args:
            count: number of tasks, together.
        """
        folds = self.tuning_sources(FOLDS)
        return [fold._nearest_means(count // len(folds)) for fold in folds]

    def _nearest_means(self, count: int) -> NearestMeans:
        table = self.table()
        resolved = dataclasses.replace(self, mean=self._mean(table))
        tasks = self._episodes(table, (self._validation_split,), Unchanged())
        rows = resolved._known_preprocessing(np.asarray(tasks.features, np.float32))
        if self.discriminant:
            rows = unit(rows @ resolved.directions())
        return NearestMeans.of(dataclasses.replace(tasks, features=jnp.asarray(rows)), jax.random.key(0), count)

    def directions(self) -> Float[np.ndarray, "dx dx"] | None:
        if self.pixels is not None:
            return None
        table, preprocess = self.table(), self._known_preprocessing

        def scatter(*splits: str) -> Scatter:
            rows = (table.features[each.start : each.start + each.count] for each in table.split(*splits))
            return Scatter.of(preprocess(each.astype(np.float32)) for each in rows)

        found = Scatter.mixed(
            [(1.0, scatter(*self.train_on))]
            if self._shares is None
            else [(share, scatter(split)) for split, share in self._shares.items()]
        )
        return (discriminant(found, self.shrinkage) if self.discriminant else principal(found)).astype(np.float32)

    def _mean(self, table: Table) -> tuple[float, ...] | None:
        """The mean that was subtracted in training stays, also with other data: it is part of the model."""
        if not self.centre or self.mean is not None:
            return self.mean if self.centre else None
        shares = self._shares or {"train": 1.0}
        means = [
            share * raised(rows_of(table, split)[0].astype(np.float32), self.power).mean(0, dtype=np.float64)
            for split, share in shares.items()
        ]
        return tuple(sum(means).tolist())

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
        if self.held_out is not None:
            return dataclasses.replace(self, held_out=None, mean=None)
        if self.train_on != ("train",):
            raise InvalidConfig("the protocol validates on val: leave tasks.train_on at ['train'].")
        return dataclasses.replace(self, train_on=("train", "val"), mean=None if self.val_share else self.mean)

    def tuning_sources(self, folds: int) -> list[Self]:
        if self.held_out is not None:  # one of the folds: the others differ in what they hold out, and so in the mean
            others = range(self.held_out[1])
            return [dataclasses.replace(self, held_out=(fold, len(others)), mean=None) for fold in others]
        if self.val_share is None:
            return [self]
        if len(self.table().split("val")) < folds * self.ways:  # a fold is too small for a task
            return [dataclasses.replace(self, val_share=None)]
        return [dataclasses.replace(self.including_validation(), held_out=(fold, folds)) for fold in range(folds)]

    def table(self) -> Table:
        """The data; InvalidData if they have changed since the run began."""
        table = open_unchanged(self.data, self.fingerprint)
        if self.features not in (None, table.features.shape[1]):
            raise InvalidData(f"data '{self.data}' have {table.features.shape[1]} features; expected {self.features}.")
        return table if self.held_out is None else _with_held_out(table, *self.held_out)

    @property
    def _validation_split(self) -> str:
        return "val" if self.held_out is None else HELD_OUT

    @property
    def _shares(self) -> dict[str, float] | None:
        """How often a training task has the classes of each split; None if classes of all splits are mixed."""
        if self.val_share is None or "val" not in self.train_on:
            return None
        return {"train": 1 - self.val_share, "val": self.val_share}

    def training(self) -> Episodes:
        if self.pixels is None or self.image is None:
            transform: RowTransform = UnitLength(self.noise, self._known_preprocessing)
        else:
            transform = Pixels(self.image, self.pixels.rotations, self.pixels.jitter)
        return self._episodes(self.table(), self.train_on, transform, self._shares)

    def validation(self) -> Episodes:
        return self._episodes(self.table(), (self._validation_split,), self._plain_transform)

    def test(
        self, *, shots: Sequence[int] | None = None, ways: Sequence[int] | None = None, targets: int | None = None
    ) -> Iterator[tuple[str, Episodes]]:
        table, queries = self.table(), targets or self.queries
        for n in ways or (self.ways,):
            for k in shots or (self.shots,):
                tasks = dataclasses.replace(self, ways=n, shots=k, queries=queries)
                yield f"{n}way_{k}shot", tasks._episodes(table, ("test",), self._plain_transform)

    @property
    def test_sizes(self) -> Mapping[str, Any]:
        return {"ways": (self.ways,), "shots": (self.shots,), "targets": self.queries}

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        """Rows of length one, or pixels from 0 to 1."""
        if self.pixels is not None:
            return TaskScaling(lambda x: x / 255, UNSCALED.outputs)
        mean = None if self.mean is None else np.array(self.mean)
        return TaskScaling(Preprocessing(self.power, mean), UNSCALED.outputs)

    @property
    def _plain_transform(self) -> RowTransform:
        """Without training-time noise or augmentation."""
        return UnitLength(preprocessing=self._known_preprocessing) if self.image is None else Pixels(self.image)

    @property
    def _known_preprocessing(self) -> Preprocessing:
        if self.choose or (self.centre and self.mean is None):
            raise InvalidConfig("tasks.mean is not known before the data are read; resolve the configuration.")
        return self._preprocessing(self.mean)

    def _preprocessing(self, mean: tuple[float, ...] | None) -> Preprocessing:
        return Preprocessing(self.power, None if mean is None else np.array(mean, np.float32))

    def _episodes(
        self, table: Table, splits: Sequence[str], transform: RowTransform, shares: Mapping[str, float] | None = None
    ) -> Episodes:
        sizes = {"ways": self.ways, "shots": self.shots, "queries": self.queries}
        return Episodes.over(table, splits, **sizes, transform=transform, shares=shares)


def _best(options: Sequence[Source]) -> Source:
    """The option with the best nearest class mean; the mean over folds of val, if a share of it is trained on."""

    def accuracies(option: Source) -> Float[np.ndarray, " count"]:
        return np.concatenate([found.accuracies for found in option.nearest_means(CHOICE_TASKS)])

    return options[clearly_best([*map(accuracies, options)])]


def _with_held_out(table: Table, fold: int, folds: int) -> Table:
    """The table with a fold of the classes of val in a split of its own.

    Folds differ as much as they can, because test classes may be of other kinds than all that are trained on.
    """
    classes = table.split("val")
    means = [unit(table.features[c.start : c.start + c.count].astype(np.float32)).mean(0) for c in classes]
    held_out = [classes[i] for i in np.array_split(along_first_component(np.stack(means)), folds)[fold]]
    split = [dataclasses.replace(rows, split=HELD_OUT) if rows in held_out else rows for rows in table.classes]
    return dataclasses.replace(table, classes=tuple(split))
