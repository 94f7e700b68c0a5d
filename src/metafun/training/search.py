"""Hyperparameter search (the paper's Appendix): trials of an Optuna study, trained together where their shapes agree.

Workers share nothing but the study's storage. A trial knows its worker and the run that it is part of, so that a worker
that was killed goes on with what it had begun.
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
from optuna.exceptions import StorageInternalError
from optuna.samplers import BaseSampler, PartialFixedSampler, QMCSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from ..config import Space, load_config
from ..config.space import Range
from ..errors import Diverged, InvalidConfig, InvalidSearch
from ..files import locked
from ..schema import flatten, merge, nested, to_table
from .devices import forget_programs
from .run_folder import ChunkMetrics, Run

__all__ = ["StorageInternalError", "best", "error", "finished", "forget", "open_study", "running", "winner", "work"]

SAMPLERS: dict[str, type[BaseSampler]] = {"random": RandomSampler, "tpe": TPESampler, "qmc": QMCSampler}
PRUNERS = {"none": optuna.pruners.NopPruner, "median": optuna.pruners.MedianPruner}
# A server that does not answer by then is not there.
SECONDS_TO_CONNECT = 10
ATTEMPTS = 3
# Settings of a trial that are not those of the model it is for.
OF_A_TRIAL = {"training.steps", "training.seeds", "tasks.features", "tasks.fingerprint"}

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class TrialProgress:
    """A moment of a search."""

    trials: tuple[int, ...]
    run: Run
    report: ChunkMetrics | None


def open_study(name: str, storage: str, space: Space, *, pruner: str = "median") -> optuna.Study:
    """The study of that name, a new one or one that other workers began with the same space and configuration."""
    identity = repr((to_table(space.config, original_names=True), space.ranges, sorted(space.fixed)))
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
            raise InvalidSearch(
                f"the storage {_public(storage)} needs a driver that is not installed: {error}."
            ) from None
        except Exception as error:
            # SQLAlchemy and each driver have errors of their own. Two workers that make the tables of a new
            # database at once disturb each other; the next attempt finds them made.
            if attempt == ATTEMPTS - 1 or "connection" in str(error).lower():
                reason = str(error).splitlines()[0]
                raise InvalidSearch(
                    f"the storage {_public(storage)} cannot be used: {_public(reason)}. "
                    "It must be the URL of a database, postgresql://user@host/name, or the path of a journal file."
                ) from None
            time.sleep(1)
    raise AssertionError("unreachable")


def _public(address: str) -> str:
    """Without passwords."""
    return re.sub(r"password=[^&\s]*", "password=***", re.sub(r"/([^:/@\s]*):[^\s]*@", r"/\1:***@", address))


def work(
    study: optuna.Study,
    space: Space,
    folder: Path,
    *,
    worker: str,
    trials: int,
    batch: int,
    sampler: str = "random",
    seed: int = 0,
) -> Iterator[TrialProgress]:
    """Goes on with what `worker` began in `folder`, then takes new trials until the study has `trials` of them.

    No two workers of a study may have the same name, nor the same folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "searching"):
        for begun in _begun(study, space, worker):
            yield from _train(study, space, folder, begun)
        while asked := _ask(study, space, worker, trials, batch, SAMPLERS[sampler], seed):
            yield from _train(study, space, folder, asked)
            forget_programs()


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that came to an end, the best first; those that were given up are behind those that were not."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return sorted(done, key=lambda trial: (trial.state != TrialState.COMPLETE, error(trial)))


def running(study: optuna.Study) -> list[FrozenTrial]:
    return list(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))


def forget(study: optuna.Study) -> int:
    """Gives up all trials that were begun and not finished, so that others take their place."""
    lost = running(study)
    for trial in lost:
        study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
    return len(lost)


def best(study: optuna.Study) -> FrozenTrial:
    """Of the trials that were trained to the end."""
    found = finished(study)
    if not found or found[0].state != TrialState.COMPLETE:
        raise InvalidSearch(f"no trial of the study '{study.study_name}' was trained to its end without diverging.")
    return found[0]


def winner(study: optuna.Study, space: Space, source: str) -> str:
    """The best configuration as TOML: what sets it apart from the preset or file that the search began with."""
    found, known = (flatten(to_table(c)) for c in (space.configure(best(study).params), load_config(source)))
    # Where the kind is another one, nothing of the old part is left.
    kinds = {key for key, value in found.items() if key.endswith(".kind") and known.get(key) != value}
    other = tuple(key.removesuffix("kind") for key in kinds)
    table: dict[str, Any] = {"base": str(Path(source).resolve()) if source.endswith(".toml") else source}
    for key, value in found.items():
        if key not in OF_A_TRIAL and (known.get(key) != value or key.startswith(other)):
            table = merge(table, nested(key, value))
    return tomli_w.dumps(table)


def _ask(
    study: optuna.Study, space: Space, worker: str, limit: int, batch: int, sampler: type[BaseSampler], seed: int
) -> list[Trial]:
    """Trials of one shape: the first is free, the others differ from it in numbers."""
    # Another seed for each batch of each worker: two of the same would do the same trials.
    words = [seed, len(study.get_trials(deepcopy=False)), *worker.encode()]
    study.sampler = free = sampler(seed=int(np.random.SeedSequence(words).generate_state(1)[0]))  # type: ignore[call-arg]
    asked: list[Trial] = []
    while len(asked) < (batch if space.numbers else 1) and _places(study) < limit:
        trial = study.ask()
        if _places(study, before=trial.number) >= limit:  # another worker took the last place meanwhile
            study.tell(trial, state=TrialState.FAIL)
            break
        trial.set_user_attr("worker", worker)
        values = {key: _suggest(trial, key, values) for key, values in space.ranges.items()}
        try:
            space.configure(values)
        except InvalidConfig:
            # Settings that fit one by one need not fit together; such a trial keeps its place, or asking would not end.
            study.tell(trial, state=TrialState.PRUNED)
            continue
        asked.append(trial)
        trial.set_user_attr("run", f"trials-{asked[0].number:05}")
        shape = {key: value for key, value in values.items() if key not in space.numbers}
        with warnings.catch_warnings(action="ignore", category=optuna.exceptions.ExperimentalWarning):
            study.sampler = PartialFixedSampler(shape, free)
    return asked


def _begun(study: optuna.Study, space: Space, worker: str) -> Iterator[list[Trial]]:
    """The trials of each run of `worker` of which some are not told yet."""
    runs: dict[str, list[FrozenTrial]] = {}
    for trial in study.get_trials(deepcopy=False):
        if trial.user_attrs.get("worker") != worker:
            continue
        if "run" in trial.user_attrs:
            runs.setdefault(trial.user_attrs["run"], []).append(trial)
        elif trial.state == TrialState.RUNNING:
            # A worker that is killed while it asks leaves one of which not all is known.
            study.tell(trial.number, state=TrialState.FAIL)
    for trials in runs.values():
        if any(trial.state == TrialState.RUNNING for trial in trials):
            yield [Trial(study, trial._trial_id) for trial in trials]


def _train(study: optuna.Study, space: Space, folder: Path, trials: Sequence[Trial]) -> Iterator[TrialProgress]:
    """Trains the trials as variants of one run, and tells the study how they did.

    While one of them is promising, all go on: they are one program. What was trained to the end is judged by its end.
    """
    path = folder / trials[0].user_attrs["run"]
    config = space.together([trial.params for trial in trials])
    run = Run.create(path, config) if Run.is_free(path) else Run(path)
    numbers = tuple(trial.number for trial in trials)
    open_ones = {trial.number for trial in running(study)}
    hopeless = np.array([trial.number not in open_ones for trial in trials])
    yield TrialProgress(numbers, run, None)
    try:
        for report in run.train():
            if report.validation is not None:
                hopeless |= _hopeless(trials, hopeless, report)
            yield TrialProgress(numbers, run, report)
            if hopeless.all():
                break
        errors = _by_variant(run.record.best_error, len(trials))
        ended = run.record.step >= config.training.end or run.record.stopped_early
    except Diverged:
        errors, ended = np.full(len(trials), np.inf), True
    for trial, error in zip(trials, errors, strict=True):
        complete = ended and np.isfinite(error)
        # Another worker may have given it up.
        value, state = (float(error), None) if complete else (None, TrialState.PRUNED)
        study.tell(trial.number, value, state=state, skip_if_finished=True)


def _hopeless(trials: Sequence[Trial], known: np.ndarray, report: ChunkMetrics) -> np.ndarray:
    """The trials that do worse than the pruner bears with, or have diverged."""
    assert report.validation is not None
    errors = _by_variant(report.validation, len(trials))
    given_up = ~np.isfinite(errors)
    for i in np.flatnonzero(~(given_up | known)).tolist():
        try:
            trials[i].report(float(errors[i]), report.record.step)
            given_up[i] = trials[i].should_prune()
        except optuna.exceptions.UpdateFinishedTrialError:
            given_up[i] = True
    return given_up


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
    return np.inf if trial.value is None else trial.value
