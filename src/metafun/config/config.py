"""The settings of a whole experiment: model, tasks, training and evaluation, as `config.toml` holds them."""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Literal

import tomli_w

from ..schema import to_table
from ..tasks import AnyCurveTasks, CollectedTasks, CurveTasks, EpisodeTasks, SinusoidTasks, TableTasks
from ..values import ClassCount, Count, NonNegative, Part, PointCount, PointCountOrZero, Seed, Size
from .baselines import LEOConfig, LogisticConfig, MAMLConfig, MatchingConfig, PrototypesConfig
from .embedding import ColumnsConfig, ConvNetConfig, LinearConfig
from .model import MetaFunConfig


@dataclass(frozen=True)
class TrainingConfig:
    """Adam. All seeds, one model each, train at once. Gradients are clipped in the order of the three settings.

    Args:
        steps: length of the schedule, in steps.
        stop: step after which training ends, if before the end of the schedule.
        batch: tasks in a step.
        seeds: one model is trained for each.
        learning_rate: its highest value.
        schedule: constant, or cosine decay to 0 after the warm-up.
        warmup: steps in which the cosine schedule's learning rate rises from 0.
        clip_entries: largest absolute value of an entry of the gradient; not clipped if not given.
        clip_arrays: largest norm of the gradient of each array; not clipped if not given.
        clip: largest norm of the whole gradient; not clipped if not given.
        average: decay of the moving average of the parameters that is evaluated; 0 for no averaging.
        chunk: steps compiled into one program; logging and validation happen between chunks.
        validate_every: steps between validations, a multiple of `chunk`; 0 keeps the last parameters, not the best.
        validation_tasks: tasks of a validation.
        validate_first: whether to validate before the first step too, for models that are useful untrained.
        patience: validations without improvement after which training stops.
        keep: which parameters are the model, the best on validation or the last. The last are the better choice where
            new tasks never run out: nothing overfits, and validation on heavy-tailed errors chooses by chance.
    """

    steps: Count = 40_000
    stop: Size | None = None
    batch: PointCount = 64
    seeds: tuple[Seed, ...] = (0,)
    learning_rate: NonNegative = 1e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: Size = 1000
    clip_entries: NonNegative | None = None
    clip_arrays: NonNegative | None = None
    clip: NonNegative | None = None
    average: Part = 0.0
    chunk: Count = 200
    validate_every: Size = 2000
    validation_tasks: PointCount = 1000
    validate_first: bool = False
    patience: Count | None = None
    keep: Literal["best", "last"] = "best"

    added = {"keep": "best", "validate_first": False}  # noqa: RUF012

    @property
    def end(self) -> int:
        """The last step."""
        return self.steps if self.stop is None else self.stop


@dataclass(frozen=True)
class EvaluationConfig:
    """Test tasks, the same for every model. Settings that are not given are chosen by the kind of tasks.

    Args:
        tasks: number of test tasks of each kind.
        seed: seed of the test tasks.
        shots: context sizes; in classification, rows of each class.
        ways: numbers of classes; for episodes only.
        targets: targets of a task; in classification, of each class.
    """

    tasks: PointCount = 10_000
    seed: Seed = 2020
    shots: tuple[PointCountOrZero, ...] | None = None
    ways: tuple[ClassCount, ...] | None = None
    targets: PointCount | None = None


@dataclass(frozen=True)
class Config:
    """What `config.toml` in a run folder holds.

    Args:
        model: the learner.
        embedding: network from rows (images, tables) to vectors, trained with the model.
        tasks: what to learn from.
        training: optimiser, schedule, seeds and validation.
        evaluation: test tasks.
        vary: values of numeric settings, equally many of each. The variants train at once, each with all seeds; the
            best on validation is the run's model.
    """

    model: MetaFunConfig | MAMLConfig | PrototypesConfig | MatchingConfig | LogisticConfig | LEOConfig = MetaFunConfig()
    embedding: ConvNetConfig | ColumnsConfig | LinearConfig | None = None
    tasks: SinusoidTasks | CurveTasks | AnyCurveTasks | EpisodeTasks | CollectedTasks | TableTasks = SinusoidTasks()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    vary: dict[str, tuple[float, ...]] | None = None

    def to_toml(self) -> str:
        """The settings as TOML; `parse_config` is the inverse."""
        return tomli_w.dumps(to_table(self))


def settings_hash(config: Config, search: Any = None) -> str:
    """A hash of what is trained, independent of the seeds and of settings that were added or renamed since.

    Args:
        config: the settings.
        search: what else the training depends on, such as a search before it; ready for JSON.
    """
    plain = to_table(replace(config, training=replace(config.training, seeds=(0,))), original=True)
    return hashlib.sha256(json.dumps((plain, search)).encode()).hexdigest()[:12]
