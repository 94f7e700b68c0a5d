"""A whole experiment: model, tasks, training and evaluation."""

import dataclasses
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import equinox as eqx
import jax
import tomli_w
from jaxtyping import PRNGKeyArray

from ..embeddings.base import Embedded
from ..errors import InvalidConfig, suggest
from ..model.learner import Learner
from ..schema import current_name, flatten, merge, nested, parse, to_table
from .baselines import LEOConfig, LogisticConfig, MAMLConfig, MatchingConfig, PrototypesConfig
from .embedding import ColumnsConfig, ConvNetConfig
from .model import MetaFunConfig
from .tables import CollectedConfig, EpisodesConfig
from .tasks import AnyTableConfig, CurvesConfig, EvaluationConfig, SinusoidConfig
from .values import Count, NonNegative, Part, Seed, Size

Model = MetaFunConfig | MAMLConfig | PrototypesConfig | MatchingConfig | LogisticConfig | LEOConfig


@dataclass(frozen=True)
class TrainingConfig:
    """Adam. One seed is one model; all of them train at once.

    A gradient is clipped entry by entry, then in the length of each array's part, then in its whole length.

    Training ends after `stop` of the `steps` that the schedule is made for. The model that is kept is the moving
    `average` of the parameters (0: the parameters themselves) that does best on validation (0: the last one).
    """

    steps: Count = 40_000
    stop: Count | None = None
    batch: Count = 64
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
    validation_tasks: Count = 1000
    patience: Count | None = None

    @property
    def end(self) -> int:
        """The step after which training is over."""
        return self.stop or self.steps


@dataclass(frozen=True)
class Config:
    """What `config.toml` in a run folder holds.

    `vary` lists values of numeric settings, as many of each: variants of the configuration that are trained at once,
    each with all seeds. The best of them on validation is the run's model. An `embedding` turns inputs, images or rows
    of a table, into vectors before the model sees them, and is trained with it.
    """

    model: Model = MetaFunConfig()
    embedding: ConvNetConfig | ColumnsConfig | None = None
    tasks: SinusoidConfig | CurvesConfig | EpisodesConfig | CollectedConfig | AnyTableConfig = SinusoidConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    vary: dict[str, tuple[float, ...]] | None = None

    def resolved(self) -> "Config":
        """With what only the data can tell."""
        return dataclasses.replace(self, tasks=self.tasks.resolved(validates=self.training.validate_every > 0))

    def variants(self) -> tuple["Config", ...]:
        """A configuration for each column of `vary`, or this one alone."""
        table = to_table(dataclasses.replace(self, vary=None))
        rows = [[nested(key, value) for value in values] for key, values in (self.vary or {}).items()]
        return tuple(parse(Config, reduce(merge, column, table)) for column in zip(*rows, strict=True)) or (self,)

    def build_model(self, key: PRNGKeyArray) -> Learner:
        if self.embedding is None:
            return self.model.build(*self.tasks.sizes, key)
        key_embedding, key_model = jax.random.split(key)
        dx, dy = self.tasks.sizes
        embedding = self.embedding.build((dx, dy), getattr(self.tasks, "image", None), key_embedding)
        return Embedded(embedding, self.model.build(embedding.size, dy, key_model))

    def blank_model(self) -> Learner:
        """A model without numbers, only the shapes of its arrays."""
        return eqx.filter_eval_shape(self.build_model, jax.random.key(0))

    def to_toml(self) -> str:
        return tomli_w.dumps(to_table(self))


def parse_config(table: Mapping[str, Any]) -> Config:
    """A checked configuration: its model can be built."""
    config = parse(Config, table)
    if config.vary:
        config = dataclasses.replace(config, vary={current_name(Config, key): v for key, v in config.vary.items()})
    config.tasks.check()
    _check_vary(config)
    _check_model(config)
    _check_training(config.training)
    if isinstance(config.tasks, EpisodesConfig) and "val" in config.tasks.train_on and config.training.validate_every:
        raise InvalidConfig(
            "tasks.train_on includes val, which then cannot tell when to stop; set training.validate_every=0."
        )
    return config


def _check_vary(config: Config) -> None:
    if config.vary is None:
        return
    settings = flatten(to_table(dataclasses.replace(config, vary=None)))
    if not config.training.validate_every:
        raise InvalidConfig("vary: which variant is best is told by validation; training.validate_every is 0.")
    for key, values in config.vary.items():
        if not isinstance(settings.get(key), float):
            numbers = [name for name, value in settings.items() if isinstance(value, float)]
            raise InvalidConfig(f"vary.{key} is not a numeric setting; {suggest(key, numbers)}")
        if not values or len(values) != len(next(iter(config.vary.values()))):
            raise InvalidConfig(f"vary.{key} has {len(values)} values; give as many of each setting, and at least one.")
    variants = config.variants()
    if len({_shape(variant) for variant in variants}) > 1:
        raise InvalidConfig(
            f"vary: {', '.join(config.vary)} change more of the program than its numbers. What can vary in one run: "
            "training.learning_rate; the model's step_size, dropout, label_smoothing and weights of penalties, of "
            "which none can be 0 in one variant and not in another."
        )


def _shape(config: Config) -> Hashable:
    """What configurations must have in common to be trained by one program."""
    training = dataclasses.replace(config.training, learning_rate=0.0)
    return config.tasks, training, jax.tree.structure(_check_model(config))


def _check_model(config: Config) -> Learner:
    """The shapes of the model, if it can be built."""
    if config.tasks.problem != config.model.problem:
        raise InvalidConfig(
            f"tasks.kind = '{config.tasks.kind}' is {config.tasks.problem}, but model.loss.kind = "
            f"'{config.model.loss.kind}' is for {config.model.problem}; change one of them."
        )
    tasks = config.tasks
    if isinstance(tasks, EpisodesConfig | CollectedConfig):
        # Any number that the heads of a pooling can share will do to see whether the parts fit.
        tasks = tasks.presumed(getattr(getattr(config.model, "pooling", None), "heads", 1))
    return dataclasses.replace(config, tasks=tasks).blank_model()


def _check_training(training: TrainingConfig) -> None:
    seeds = training.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise InvalidConfig(f"training.seeds = {list(seeds)}, but it must name at least one seed, and none twice.")
    if training.end > training.steps:
        raise InvalidConfig(f"training.stop = {training.stop} lies beyond training.steps = {training.steps}.")
    if training.patience is not None and not training.validate_every:
        raise InvalidConfig("training.patience waits for validation to improve; training.validate_every is 0.")
    if training.validate_every % training.chunk:
        raise InvalidConfig(
            f"training.validate_every = {training.validate_every} must be a multiple of "
            f"training.chunk = {training.chunk}: validation happens between chunks."
        )
