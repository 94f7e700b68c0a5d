"""A search space: the range of each setting that a search decides."""

import contextlib
import hashlib
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from ..errors import InvalidConfig, suggest
from ..files import read_text
from ..schema import current_name, flatten, parse, to_table
from .config import Config
from .experiment import program
from .load import parse_toml, with_changes


@dataclass(frozen=True)
class Range:
    """The values of one setting: exactly one of the four ranges is given, bounds included.

    Args:
        choices: a list of values.
        integers: smallest and largest integer.
        uniform: smallest and largest number.
        log_uniform: smallest and largest number, uniform in the logarithm.
        also: settings that get the same value, where the configuration has them.
    """

    choices: tuple[Any, ...] | None = None
    integers: tuple[int, int] | None = None
    uniform: tuple[float, float] | None = None
    log_uniform: tuple[float, float] | None = None
    also: tuple[str, ...] = ()

    @property
    def examples(self) -> tuple[Any, ...]:
        """The choices, or the two bounds: if these are valid, so is every value."""
        given = (self.choices, self.integers, self.uniform, self.log_uniform)
        return next(values for values in given if values is not None)

    def value_at(self, u: float) -> Any:
        """The value for `u` in [0, 1): if `u` is uniform, the value is distributed as the range says."""
        if self.choices is not None:
            return self.choices[int(u * len(self.choices))]
        low, high = self.examples
        if self.integers is not None:
            return low + int(u * (high - low + 1))
        return low + u * (high - low) if self.uniform is not None else low * (high / low) ** u


@dataclass(frozen=True)
class Space:
    """A configuration and the settings of it that a search decides.

    Args:
        config: the configuration that all trials share.
        ranges: the range of each setting.
        fixed: settings that keep their value; their range may still decide the settings in `also`.
    """

    config: Config
    ranges: dict[str, Range]
    fixed: frozenset[str] = frozenset()

    def configure(self, values: Mapping[str, Any]) -> Config:
        """The configuration of one trial."""
        config = with_changes(self.config, {key: value for key, value in values.items() if key not in self.fixed})
        settings = flatten(to_table(config))
        others = [(current_name(Config, other), v) for key, v in values.items() for other in self.ranges[key].also]
        also = {other: value for other, value in others if other in settings}
        return with_changes(config, also)

    def draw(self, seed: int, trial: int) -> dict[str, Any]:
        """The values of one trial of a random search, drawn independently of all other trials.

        The values come from a hash of seed, trial and setting. They do not depend on a library's random generator or on
        the other settings of the space.

        Args:
            seed: of the search.
            trial: number of the trial.
        """
        return {key: values.value_at(_uniform(f"{seed} {trial} {key}")) for key, values in self.ranges.items()}

    def together(self, trials: Mapping[int, Mapping[str, Any]]) -> list[list[int]]:
        """The numbers of the trials, grouped by those that `combine` accepts; without invalid configurations."""
        groups: dict[Hashable, list[int]] = {}
        for number, values in trials.items():
            # Settings that are valid alone may be invalid together.
            with contextlib.suppress(InvalidConfig):
                config = self.configure(values)
                groups.setdefault(program(config), []).append(number)
        return list(groups.values())

    def combine(self, trials: Iterable[Mapping[str, Any]]) -> Config:
        """One configuration for trials that differ only in `batchable` settings: each trial is a variant."""
        configs = [self.configure(values) for values in trials]
        tables = [flatten(to_table(config)) for config in configs]
        if len(configs) == 1:
            return configs[0]
        differ = [key for key in tables[0] if len({repr(table.get(key)) for table in tables}) > 1]
        # Equal trials remain separate variants.
        keys = differ or ["training.learning_rate"]
        return with_changes(configs[0], {"vary": {key: tuple(table.get(key) for table in tables) for key in keys}})

    @cached_property
    def batchable(self) -> set[str]:
        """Settings whose values can train as variants of one run."""
        return {key for key, values in self.ranges.items() if self._is_batchable(key, values.examples)}

    def _is_batchable(self, key: str, examples: tuple[Any, ...]) -> bool:
        try:
            self.combine([{key: value} for value in examples])
        except InvalidConfig:
            return False
        return all(isinstance(value, float) for value in examples)


def _uniform(text: str) -> float:
    """A number in [0, 1) that a hash of the text determines."""
    return (int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 11) / 2**53


# The search spaces shipped with the package, from the most specific one to the one for any configuration.
SPACES = ("space-table4", "space-metafun", "space-training")


def space_text(source: str) -> str:
    """The TOML of a shipped space, by its name, or of a file."""
    if source in SPACES:
        return (_folder() / f"{source}.toml").read_text("utf-8")
    if not source.endswith(".toml"):
        raise InvalidConfig(f"unknown space '{source}'; {suggest(source, SPACES)} A TOML file ends in .toml.")
    try:
        return read_text(Path(source))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"cannot read {source}: {error}.") from None


def default_space(config: Config, fixed: Iterable[str] = ()) -> str:
    """The name of the first shipped space whose ranges the configuration has and can take.

    Args:
        config: the configuration that trials start from.
        fixed: settings of the space that keep the value of `config`.
    """
    for keep in (fixed, ()):
        for name in SPACES:
            with contextlib.suppress(InvalidConfig):
                load_space(name, config, keep)
                return name
    return SPACES[-1]  # which says what is wrong with the configuration


def load_space(source: str, config: Config, fixed: Iterable[str] = ()) -> Space:
    """A checked search space.

    Args:
        source: the name of a shipped space or the path of a TOML file.
        config: the configuration that trials start from.
        fixed: settings of the space that keep the value of `config`.
    """
    table = {current_name(Config, key): value for key, value in parse_toml(space_text(source), source).items()}
    fixed = frozenset(current_name(Config, key) for key in fixed)
    for key in fixed - set(table):
        raise InvalidConfig(f"{source} has no setting '{key}' to fix; {suggest(key, table)}")
    settings = flatten(to_table(config))
    ranges = {}
    for key, value in table.items():
        if key not in settings and key not in fixed:
            raise InvalidConfig(f"{source}: the configuration has no setting '{key}'; {suggest(key, settings)}")
        if not isinstance(value, Mapping):
            raise InvalidConfig(f"{source}: {key} = {value!r}, but it must be a table such as uniform = [0.0, 1.0].")
        found = _check(source, key, parse(Range, value, f"{key}."))
        if found.also or key not in fixed:
            ranges[key] = found
    if not ranges:
        raise InvalidConfig(f"{source} leaves no setting to search; add a range, or fix fewer settings.")
    if not config.training.validate_every or config.vary is not None:
        raise InvalidConfig(
            "a search compares trials on validation: training.validate_every must not be 0, and vary must not be set."
        )
    space = Space(config, ranges, fixed)
    for key, values in ranges.items():
        for value in values.examples:
            space.configure({key: value})
    return space


def _check(source: str, key: str, values: Range) -> Range:
    kinds = ("choices", "integers", "uniform", "log_uniform")
    given = [kind for kind in kinds if getattr(values, kind) is not None]
    if len(given) != 1:
        raise InvalidConfig(f"{source}: {key} must have one of {', '.join(kinds)}, not {len(given)} of them.")
    low, *rest = values.examples or (None,)
    if low is None:
        raise InvalidConfig(f"{source}: {key} has an empty list of choices.")
    if given != ["choices"] and (rest[0] < low or (given == ["log_uniform"] and low <= 0)):
        raise InvalidConfig(
            f"{source}: {key} = {list(values.examples)}: the lower bound comes first and, for log_uniform, is positive."
        )
    return values


def _folder() -> Any:
    return resources.files("metafun") / "paper"
