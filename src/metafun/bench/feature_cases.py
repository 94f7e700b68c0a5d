"""What the benchmark on features measures: every method on every table with every number of shots."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import cast

from ..config import (
    Config,
    Experiment,
    has_setting,
    load_config,
    parse_setting,
    parse_toml,
    resolve,
    settings_hash,
)
from ..data import open_table
from ..errors import InvalidConfig, suggest
from ..schema import parse
from ..tasks import EpisodeTasks
from ..tasks.episodes import check
from ..training.protocol import check_protocol

# Settings that have an option of their own.
OPTIONS = {
    "tasks.data": "--data",
    "tasks.ways": "--ways",
    "tasks.shots": "--shots",
    "training.seeds": "--seeds",
    "evaluation.tasks": "--tasks",
    "evaluation.ways": "--ways",
    "evaluation.shots": "--shots",
}


@dataclass(frozen=True)
class Contender:
    """A method of the benchmark.

    Args:
        name: its name in results, tables and figures.
        preset: its configuration.
        settings: changes of the preset, as `key=value`.
        ours: whether the figure highlights it.
    """

    name: str
    preset: str
    settings: tuple[str, ...] = ()
    ours: bool = False


@dataclass(frozen=True)
class _Contenders:
    contenders: tuple[Contender, ...]


@dataclass(frozen=True)
class Setup:
    """How a method is trained and tested.

    Args:
        ways: classes of a task.
        shots: context rows of each class.
        seeds: number of models, with seeds 0, 1, …
        tasks: number of test tasks.
        settings: changes of every method that has the setting, as `key=value`.
    """

    ways: int
    shots: int
    seeds: int
    tasks: int
    settings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """One method on one table with one number of shots.

    Args:
        contender: the method.
        setup: how it is trained and tested; its settings are those that the method has.
        source: name or path of the table, as it was given.
        data: name of the table.
        experiment: what to train.
    """

    contender: Contender
    setup: Setup
    source: str
    data: str
    experiment: Experiment

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the table."""
        return self.experiment.tasks.fingerprint or ""

    @property
    def job(self) -> str:
        """A hash of what is trained, independent of the seeds and of the table."""
        return job_hash(self.contender, self.setup)

    def __str__(self) -> str:
        return f"{self.data}, {self.contender.name}, {self.setup.ways}-way {self.setup.shots}-shot"


@cache
def contenders() -> Mapping[str, Contender]:
    """All methods by name."""
    text = (resources.files("metafun") / "bench" / "features.toml").read_text("utf-8")
    return {each.name: each for each in parse(_Contenders, parse_toml(text, "features.toml")).contenders}


def configure(contender: Contender, setup: Setup) -> Config:
    """The configuration of a method, without its table.

    Args:
        contender: the method.
        setup: how it is trained and tested; settings that the method does not have are ignored.
    """
    changes = {
        "tasks.ways": setup.ways,
        "tasks.shots": setup.shots,
        "training.seeds": list(range(setup.seeds)),
        "evaluation.tasks": setup.tasks,
    }
    queries = dict(map(parse_setting, setup.settings)).get("tasks.queries")
    if queries is not None:  # the test tasks of all methods
        changes["evaluation.targets"] = queries
    settings = (*contender.settings, *settings_of(contender, setup.settings))
    return load_config(contender.preset, settings, changes)


def settings_of(contender: Contender, settings: Sequence[str]) -> tuple[str, ...]:
    """Those of the settings that a method has."""
    config = load_config(contender.preset, contender.settings)
    return tuple(setting for setting in settings if has_setting(config, parse_setting(setting)[0]))


def job_hash(contender: Contender, setup: Setup) -> str:
    """A hash of what a case trains, independent of the seeds and of the table, which has a fingerprint of its own."""
    config = configure(contender, setup)
    return settings_hash(replace(config, tasks=config.tasks.with_data("")))


def plan(data: Sequence[str], shots: Sequence[int], setup: Setup, only: Sequence[str] = ()) -> list[Case]:
    """All cases; InvalidConfig or InvalidData if one of them could not be trained or tested.

    Args:
        data: names or paths of tables.
        shots: numbers of context rows of each class.
        setup: everything else; its own number of shots does not matter.
        only: names of methods; all by default.
    """
    methods = [_contender(name) for name in only or contenders()]
    _check_settings(setup.settings, methods)
    cases = [case for source in dict.fromkeys(data) for case in _cases(source, methods, shots, setup)]
    sources: dict[str, str] = {}
    for case in cases:
        if sources.setdefault(case.data, case.source) != case.source:
            raise InvalidConfig(
                f"--data {sources[case.data]} and --data {case.source} are both called '{case.data}'; rename one."
            )
    return cases


def _cases(source: str, methods: Sequence[Contender], shots: Sequence[int], setup: Setup) -> Iterator[Case]:
    table = open_table(source)
    for count in dict.fromkeys(shots):
        for method in methods:
            chosen = replace(setup, shots=count, settings=settings_of(method, setup.settings))
            config = configure(method, chosen)
            check_protocol(config)
            tasks = cast(EpisodeTasks, config.tasks)  # the protocol takes no others
            queries = config.evaluation.targets or tasks.queries
            # Before the first training: `resolve` checks only the classes that are trained on.
            check(table, ("test",), ways=chosen.ways, shots=count, queries=queries)
            yield Case(method, chosen, source, table.name, resolve(replace(config, tasks=tasks.with_data(source))))


def _contender(name: str) -> Contender:
    if name not in contenders():
        raise InvalidConfig(f"method '{name}' is not known; {suggest(name, contenders())}")
    return contenders()[name]


def _check_settings(settings: Sequence[str], methods: Sequence[Contender]) -> None:
    for setting in settings:
        key, _ = parse_setting(setting)
        if key in OPTIONS:
            raise InvalidConfig(f"--set {setting}: this benchmark sets {key} itself; give {OPTIONS[key]} instead.")
        if not any(settings_of(method, [setting]) for method in methods):
            names = ", ".join(method.name for method in methods)
            raise InvalidConfig(f"--set {setting}: none of the methods ({names}) has the setting '{key}'.")
