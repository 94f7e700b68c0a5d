"""A configuration, checked when it is parsed and resolved once against its data."""

import dataclasses
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial, reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from ..embeddings import Embedded
from ..errors import InvalidConfig, suggest
from ..model import Learner
from ..schema import current_name, flatten, merge, nested, parse, to_table
from ..tasks import TaskDistribution, TaskSource
from .config import Config, EvaluationConfig, TrainingConfig
from .limits import check_parameters, check_settings


@dataclass(frozen=True)
class Experiment:
    """A resolved configuration: the sizes and fingerprints of its data are filled in.

    Args:
        config: the settings, complete. `resolve` makes an experiment of a parsed configuration.
    """

    config: Config

    @property
    def tasks(self) -> TaskSource:
        return self.config.tasks

    @property
    def training(self) -> TrainingConfig:
        return self.config.training

    @property
    def evaluation(self) -> EvaluationConfig:
        return self.config.evaluation

    @cached_property
    def variants(self) -> tuple["Experiment", ...]:
        """One experiment for each column of `vary`, or this one alone."""
        return tuple(map(Experiment, _variants(self.config))) if self.config.vary else (self,)

    @property
    def fixed_classes(self) -> int | None:
        """The number of classes that every task must have; None if the model takes any number."""
        return flatten(to_table(self.config.model)).get("update.classes")

    def test_tasks(self) -> Iterator[tuple[str, TaskDistribution]]:
        """Each kind of test tasks by name."""
        evaluation = self.evaluation
        return self.tasks.test(shots=evaluation.shots, ways=evaluation.ways, targets=evaluation.targets)

    def build_model(self, key: PRNGKeyArray, directions: Float[Array | np.ndarray, "dx dx"] | None = None) -> Learner:
        """A fresh model with random weights.

        Args:
            key: source of the weights.
            directions: see `directions`; the columns of the data if not given.
        """
        model = _build(self.config.model, self.config.embedding, self.tasks.sizes, self.tasks.image, key)
        if directions is not None and isinstance(model, Embedded):
            model = eqx.tree_at(lambda model: model.embedding, model, model.embedding.along(directions))
        return model if self.tasks.temperature is None else model.at_temperature(self.tasks.temperature)

    def directions(self) -> Float[np.ndarray, "dx dx"] | None:
        """The directions of the data that models start with; None unless their embedding takes them."""
        embedding = {} if self.config.embedding is None else to_table(self.config.embedding)
        return self.tasks.directions() if "directions" in embedding else None

    def blank_model(self) -> Learner:
        """The structure of the model, with shapes in place of arrays."""
        config, tasks = self.config, self.tasks
        return _blank(config.model, config.embedding, tasks.sizes, tasks.image, jnp.result_type(float))


def _build(
    model: Any, embedding: Any, sizes: tuple[int, int], image: tuple[int, int] | None, key: PRNGKeyArray
) -> Learner:
    dx, dy = sizes
    if embedding is None:
        return model.build(dx, dy, key)
    key_embedding, key_model = jax.random.split(key)
    embed = embedding.build(sizes, image, key_embedding)
    return Embedded(embed, model.build(embed.size, dy, key_model))


# A search parses hundreds of configurations of a few shapes, and tracing one takes about 0.1 s. `dtype`, that of new
# parameters, is part of the key.
@lru_cache(maxsize=256)
def _blank(
    model: Any, embedding: Any, sizes: tuple[int, int], image: tuple[int, int] | None, dtype: jnp.dtype
) -> Learner:
    # The key has no value, so that nothing is computed: to read a configuration does not start XLA.
    key = jax.eval_shape(partial(jax.random.key, 0))
    return eqx.filter_eval_shape(partial(_build, model, embedding, sizes, image), key)


def resolve(config: Config | Experiment) -> Experiment:
    """The configuration with the facts of its data; the data are read unless they are known already."""
    if isinstance(config, Experiment):
        return config
    tasks: Any = config.tasks.resolve(validates=config.training.validate_every > 0)
    return Experiment(dataclasses.replace(config, tasks=tasks))


def parse_config(table: Mapping[str, Any]) -> Config:
    """A configuration from a TOML table; InvalidConfig unless its model can be built and trained."""
    config = parse(Config, table)
    if config.vary:
        config = dataclasses.replace(config, vary={current_name(Config, key): v for key, v in config.vary.items()})
    _check_training(config.training)
    config.tasks.check(validates=config.training.validate_every > 0)
    check_settings(config)
    _check_vary(config)
    check_parameters(config, _check_model(config))
    return config


def _variants(config: Config) -> list[Config]:
    table = to_table(dataclasses.replace(config, vary=None))
    columns = zip(*([nested(key, v) for v in values] for key, values in (config.vary or {}).items()), strict=True)
    return [parse(Config, reduce(merge, column, table)) for column in columns]


def _check_vary(config: Config) -> None:
    if config.vary is None:
        return
    settings = flatten(to_table(dataclasses.replace(config, vary=None)))
    if not config.training.validate_every:
        raise InvalidConfig("vary: variants are compared on validation; training.validate_every must not be 0.")
    for key, values in config.vary.items():
        if type(settings.get(key)) in (int, bool, str):
            raise InvalidConfig(
                f"vary.{key} is not a numeric setting with fractions, so its values cannot share one program; start a "
                f"run for each (--set {key}=… --out …), or search them: metafun search with --space."
            )
        if not isinstance(settings.get(key), float):
            numbers = [name for name, value in settings.items() if isinstance(value, float)]
            raise InvalidConfig(f"vary.{key} is not a numeric setting; {suggest(key, numbers)}")
        if not values or len(values) != len(next(iter(config.vary.values()))):
            raise InvalidConfig(
                f"vary.{key} has {len(values)} values; give each setting the same number, at least one."
            )
    if len({program(variant) for variant in _variants(config)}) > 1:
        raise InvalidConfig(
            f"vary: {', '.join(config.vary)} change the structure of the program. These can vary in one run: "
            "training.learning_rate; the model's step_size, dropout, label_smoothing and penalty weights, "
            "where none is 0 in one variant and positive in another."
        )


def program(config: Config) -> Hashable:
    """What configurations must have in common to train as variants of one run."""
    training = dataclasses.replace(config.training, learning_rate=0.0)
    leaves, structure = jax.tree.flatten(_check_model(config))
    return config.tasks, training, structure, tuple(getattr(leaf, "shape", None) for leaf in leaves)


def _check_model(config: Config) -> Learner:
    """The shapes of the model; InvalidConfig if it cannot be built."""
    if config.tasks.problem != config.model.problem:
        raise InvalidConfig(
            f"tasks.kind = '{config.tasks.kind}' is {config.tasks.problem}, but model.loss.kind = "
            f"'{config.model.loss.kind}' is for {config.model.problem}; change one of them."
        )
    _check_classes(config)
    _check_folds(config)
    # Before the data are read, any width that is divisible by the number of heads will do.
    heads = flatten(to_table(config.model)).get("pooling.heads", 1)
    tasks: Any = config.tasks.with_assumed_inputs(heads)
    return Experiment(dataclasses.replace(config, tasks=tasks)).blank_model()


def _check_folds(config: Config) -> None:
    """Each fold of the tasks is left out by one member of the model."""
    folds, members = (flatten(to_table(config)).get(name, 0) for name in ("tasks.folds", "model.population.members"))
    if folds and folds != members:
        raise InvalidConfig(
            f"tasks.folds = {folds}, but model.population.members = {members}; set both to the same number, or "
            "tasks.folds to 0."
        )


def _check_classes(config: Config) -> None:
    """A model with parameters for each class needs tasks of that many classes, in training and in evaluation."""
    classes, tasks = Experiment(config).fixed_classes, config.tasks
    if classes is None:
        return
    if not tasks.classes:
        raise InvalidConfig(
            f"model.update.classes = {classes} is for classification, but tasks.kind = '{tasks.kind}' is regression; "
            "drop model.update.classes."
        )
    if tasks.classes != classes:
        raise InvalidConfig(
            f"model.update.classes = {classes}, but the tasks have {tasks.classes} classes; set model.update.classes="
            f"{tasks.classes}, or drop it: one λ then serves any number of classes."
        )
    if any(ways != classes for ways in config.evaluation.ways or ()):
        raise InvalidConfig(
            f"model.update.classes = {classes}, but evaluation.ways = {list(config.evaluation.ways or ())}; use "
            "the same number, or drop model.update.classes: one λ then serves any number of classes."
        )


def _check_training(training: TrainingConfig) -> None:
    seeds = training.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise InvalidConfig(f"training.seeds = {list(seeds)}; name at least one seed, and none twice.")
    if training.end > training.steps:
        raise InvalidConfig(f"training.stop = {training.stop} exceeds training.steps = {training.steps}.")
    if training.patience is not None and not training.validate_every:
        raise InvalidConfig("training.patience needs validation; training.validate_every is 0.")
    if training.patience is not None and training.keep == "last":
        raise InvalidConfig("training.patience waits for a better model, but training.keep = 'last'; drop one of them.")
    if training.validate_every % training.chunk:
        raise InvalidConfig(
            f"training.validate_every = {training.validate_every} must be a multiple of "
            f"training.chunk = {training.chunk}: validation happens between chunks."
        )
