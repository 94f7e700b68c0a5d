"""Hyperparameter search (the paper's Appendix): trials of an Optuna study, trained together where their shapes agree.

Workers share nothing but the study's storage. A trial knows the folder that it is trained in, so that a worker that was
killed goes on with what it had begun.
"""

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import tomli_w
from optuna.samplers import BaseSampler, PartialFixedSampler, QMCSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from .config import Space, load_config
from .config.space import Range
from .devices import forget_programs
from .errors import Diverged, InvalidSearch
from .runs import Report, Run
from .schema import flatten, merge, nested, to_table

SAMPLERS: dict[str, type[BaseSampler]] = {"random": RandomSampler, "tpe": TPESampler, "qmc": QMCSampler}
PRUNERS = {"none": optuna.pruners.NopPruner, "median": optuna.pruners.MedianPruner}
# A server that does not answer by then is not there.
SECONDS_TO_CONNECT = 10
ATTEMPTS = 3
# Settings of a trial that are not those of the model it is for.
OF_A_TRIAL = {"training.steps", "training.seeds", "tasks.features", "tasks.fingerprint"}

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class Progress:
    """A moment of a search."""

    trials: tuple[int, ...]
    run: Run
    report: Report | None


def open_study(name: str, storage: str, space: Space, *, pruner: str = "median") -> optuna.Study:
    """The study of that name, a new one or one that other workers began with the same space and configuration."""
    identity = repr((space.config, space.ranges))
    study = _connect(name, storage, pruner)
    there = study.user_attrs.get("identity")
    if there is None:
        study.set_user_attr("identity", identity)
    if there not in (None, identity):
        raise InvalidSearch(
            f"the study '{name}' was begun with another configuration or space; choose another --study or --out."
        )
    return study


def _connect(name: str, storage: str, pruner: str) -> optuna.Study:
    for attempt in range(ATTEMPTS):
        try:
            return optuna.create_study(
                study_name=name, storage=_storage(storage), pruner=PRUNERS[pruner](), load_if_exists=True
            )
        except ImportError as error:
            raise InvalidSearch(f"the storage {_public(storage)} needs a driver: pip install {error.name}.") from None
        except Exception as error:
            # SQLAlchemy and each driver have errors of their own. Two workers that make the tables of a new
            # database at once disturb each other; the next attempt finds them made.
            if attempt == ATTEMPTS - 1 or "connection" in str(error).lower():
                reason = str(error).splitlines()[0]
                raise InvalidSearch(f"the storage {_public(storage)} cannot be used: {reason}") from None
            time.sleep(1)
    raise AssertionError("unreachable")


def _public(storage: str) -> str:
    """An address without its password."""
    return re.sub(r"//([^:/@]*):.*@", r"//\1:***@", storage)


def work(
    study: optuna.Study, space: Space, folder: Path, *, trials: int, batch: int, sampler: str = "random", seed: int = 0
) -> Iterator[Progress]:
    """Goes on with the trials begun in `folder`, then takes new ones until the study has `trials` of them."""
    folder = folder.resolve()
    for begun in _begun(study, space, folder):
        yield from _train(study, space, begun)
    while asked := _ask(study, space, folder, trials, batch, SAMPLERS[sampler], seed):
        yield from _train(study, space, asked)
        forget_programs()


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that came to an end, the best first; those that were given up are behind those that were not."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return sorted(done, key=lambda trial: (trial.state != TrialState.COMPLETE, error(trial)))


def running(study: optuna.Study) -> list[FrozenTrial]:
    return list(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))


def forget(study: optuna.Study) -> int:
    """Gives up the trials that no worker will finish, so that others take their place."""
    lost = running(study)
    for trial in lost:
        study.tell(trial.number, state=TrialState.FAIL)
    return len(lost)


def winner(study: optuna.Study, space: Space, source: str) -> str:
    """The best configuration as TOML: what sets it apart from the preset or file that the search began with."""
    best = finished(study)
    if not best or best[0].state != TrialState.COMPLETE:
        raise InvalidSearch(f"the study '{study.study_name}' has no finished trial yet.")
    found, known = (flatten(to_table(c)) for c in (space.configure(best[0].params), load_config(source)))
    table: dict[str, Any] = {"base": str(Path(source).resolve()) if source.endswith(".toml") else source}
    for key, value in found.items():
        if key not in OF_A_TRIAL and known.get(key) != value:
            table = merge(table, nested(key, value))
    return tomli_w.dumps(table)


def _ask(
    study: optuna.Study, space: Space, folder: Path, limit: int, batch: int, sampler: type[BaseSampler], seed: int
) -> list[Trial]:
    """Trials of one shape: the first is free, the others differ from it in numbers."""
    # Another seed for each batch of each worker: two of the same would do the same trials.
    words = [seed, len(study.get_trials(deepcopy=False)), *str(folder).encode()]
    study.sampler = free = sampler(seed=int(np.random.SeedSequence(words).generate_state(1)[0]))  # type: ignore[call-arg]
    asked: list[Trial] = []
    while len(asked) < (batch if space.numbers else 1) and _places(study) < limit:
        trial = study.ask()
        if _places(study, before=trial.number) >= limit:  # another worker took the last place meanwhile
            study.tell(trial, state=TrialState.FAIL)
            break
        asked.append(trial)
        trial.set_user_attr("run", str(folder / f"trials-{asked[0].number:05}"))
        values = {key: _suggest(trial, key, values) for key, values in space.ranges.items()}
        shape = {key: value for key, value in values.items() if key not in space.numbers}
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            study.sampler = PartialFixedSampler(shape, free)
    return asked


def _begun(study: optuna.Study, space: Space, folder: Path) -> Iterator[list[Trial]]:
    """The trials of each run in `folder` of which some are not told yet."""
    by_run: dict[str, list[FrozenTrial]] = {}
    for trial in study.get_trials(deepcopy=False):
        if "run" in trial.user_attrs and trial.state != TrialState.FAIL:
            by_run.setdefault(trial.user_attrs["run"], []).append(trial)
    for run, trials in by_run.items():
        if Path(run).parent != folder:
            continue
        # A worker that is killed while it asks leaves one of which not all is known.
        for trial in trials:
            if trial.state == TrialState.RUNNING and set(trial.params) != set(space.ranges):
                study.tell(trial.number, state=TrialState.FAIL)
        whole = [trial for trial in trials if set(trial.params) == set(space.ranges)]
        if any(trial.state == TrialState.RUNNING for trial in whole):
            yield [Trial(study, trial._trial_id) for trial in whole]


def _train(study: optuna.Study, space: Space, trials: Sequence[Trial]) -> Iterator[Progress]:
    """Trains the trials as variants of one run, and tells the study how they did."""
    path = Path(trials[0].user_attrs["run"])
    config = space.together([trial.params for trial in trials])
    run = Run.create(path, config) if Run.is_free(path) else Run(path)
    numbers = tuple(trial.number for trial in trials)
    hopeless = np.zeros(len(trials), bool)
    yield Progress(numbers, run, None)
    try:
        for report in run.train():
            if report.validation is not None:
                hopeless |= _hopeless(study, trials, report)
            yield Progress(numbers, run, report)
            if hopeless.all():
                break
        errors = _by_variant(run.record.best_error, len(trials))
    except Diverged:
        errors = np.full(len(trials), np.inf)
    for trial, error, given_up in zip(_untold(study, trials), errors, hopeless, strict=True):
        if trial is not None and np.isfinite(error) and not given_up:
            study.tell(trial, float(error))
        elif trial is not None:
            study.tell(trial, state=TrialState.PRUNED)


def _hopeless(study: optuna.Study, trials: Sequence[Trial], report: Report) -> np.ndarray:
    """The trials that do worse than the pruner bears with, or have diverged."""
    assert report.validation is not None
    errors = _by_variant(report.validation, len(trials))
    given_up = ~np.isfinite(errors)
    for i, trial in enumerate(_untold(study, trials)):
        if trial is not None and not given_up[i]:
            trial.report(float(errors[i]), report.record.step)
            given_up[i] = trial.should_prune()
    return given_up


def _untold(study: optuna.Study, trials: Sequence[Trial]) -> list[Trial | None]:
    """The trials, without those that the study knows the end of."""
    open_ones = {trial.number for trial in running(study)}
    return [trial if trial.number in open_ones else None for trial in trials]


def _by_variant(errors: Sequence[float], variants: int) -> np.ndarray:
    """The mean over the seeds."""
    return np.reshape(errors, (variants, -1)).mean(1)


def _places(study: optuna.Study, before: int | None = None) -> int:
    """How many trials there are, those aside that failed."""
    trials = study.get_trials(deepcopy=False)
    return sum(t.state != TrialState.FAIL for t in trials if before is None or t.number < before)


def _suggest(trial: Trial, key: str, values: Range) -> Any:
    if values.choices is not None:
        return trial.suggest_categorical(key, values.choices)
    if values.integers is not None:
        return trial.suggest_int(key, *values.integers)
    if values.uniform is not None:
        return trial.suggest_float(key, *values.uniform)
    return trial.suggest_float(key, *values.examples, log=True)


def _storage(storage: str) -> BaseStorage:
    """A database by its URL, or a journal file by its path."""
    if "://" not in storage:
        return JournalStorage(JournalFileBackend(storage))
    network = not storage.startswith("sqlite")
    arguments = {"connect_args": {"connect_timeout": SECONDS_TO_CONNECT}} if network else {}
    return RDBStorage(storage, engine_kwargs=arguments)


def error(trial: FrozenTrial) -> float:
    """What a trial came to, or came to last before it was given up."""
    if trial.value is not None:
        return trial.value
    return min(trial.intermediate_values.values(), default=np.inf)
