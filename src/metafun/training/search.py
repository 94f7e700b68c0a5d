"""Hyperparameter search (the paper's Appendix): trials of an Optuna study; trials of equal shape train together.

Workers share only the study's storage. Each trial records its worker and its run, so that a killed worker can resume.
"""

import re
import time
import uuid
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import tomli_w
from optuna.samplers import BaseSampler, QMCSampler, RandomSampler, TPESampler
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ..config import Space, load_config
from ..config.space import Range
from ..errors import Diverged, InvalidSearch
from ..files import locked, read_text, require_file, write_atomically
from ..schema import flatten, merge, nested, to_table
from .devices import forget_programs
from .journal import check_trials, open_journal
from .run import Run
from .session import ChunkMetrics

SAMPLERS: dict[str, type[BaseSampler]] = {"random": RandomSampler, "tpe": TPESampler, "qmc": QMCSampler}
PRUNERS = {"none": optuna.pruners.NopPruner, "median": optuna.pruners.MedianPruner}
SECONDS_TO_CONNECT = 10
ATTEMPTS = 3
# Settings of a trial, or filled in from the data: not part of the configuration that the search recommends.
TRIAL_ONLY = {"training.steps", "training.seeds", "tasks.features", "tasks.image", "tasks.fingerprint"}

optuna.logging.set_verbosity(optuna.logging.WARNING)


@dataclass(frozen=True)
class TrialProgress:
    """Progress of the trials that train together.

    Args:
        trials: their numbers in the study.
        run: their run; each trial is a variant of it.
        metrics: the last chunk; None before the first.
    """

    trials: tuple[int, ...]
    run: Run
    metrics: ChunkMetrics | None


def open_study(name: str, storage: str, space: Space, *, pruner: str = "median") -> optuna.Study:
    """A new study, or one that other workers began with the same space and configuration.

    Args:
        name: its name in the storage.
        storage: the URL of a database or the path of a journal file.
        space: what is searched; InvalidSearch if the study has another one.
        pruner: `median` or `none`.
    """
    identity = repr((to_table(space.config, original=True), space.ranges, sorted(space.fixed)))
    study = _connect(name, storage, pruner)
    known = study.user_attrs.get("identity")
    if known is None:
        study.set_user_attr("identity", identity)
    if known not in (None, identity):
        raise InvalidSearch(
            f"the study '{name}' was begun with another configuration or space; choose another --study or --out."
        )
    check_trials(study, space)
    return study


def _connect(name: str, storage: str, pruner: str) -> optuna.Study:
    for attempt in range(ATTEMPTS):
        try:
            return optuna.create_study(
                study_name=name, storage=_storage(storage), pruner=PRUNERS[pruner](), load_if_exists=True
            )
        except InvalidSearch:
            raise
        except ImportError as error:
            raise InvalidSearch(
                f"the storage {_public(storage)} needs a driver that is not installed: {error}."
            ) from None
        except Exception as error:
            # SQLAlchemy and each driver have their own errors. Two workers that create the tables of a new database
            # at once disturb each other; the next attempt finds the tables.
            if attempt == ATTEMPTS - 1 or "connection" in str(error).lower() or "://" not in storage:
                reason = (str(error).splitlines() or [type(error).__name__])[0][:300]
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
) -> Generator[TrialProgress, None, None]:
    """Finishes what `worker` began in `folder`, then takes new trials until the study has `trials`.

    Args:
        study: shared by all workers.
        space: what is searched.
        folder: run folders of this worker's trials; no other worker uses it.
        worker: a name that no other worker of the study has.
        trials: trials of the study, by all workers together.
        batch: trials that are drawn at once; those of equal shape train together.
        sampler: a key of `SAMPLERS`.
        seed: of the sampler.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, "searching"):
        for begun in _begun(study, worker):
            yield from _train(study, space, folder, begun)
        while _places(study) < trials:
            for asked in _ask(study, space, worker, trials, batch, SAMPLERS[sampler], seed):
                yield from _train(study, space, folder, asked)
                forget_programs()


def worker_name(folder: Path, is_shared: bool) -> str:
    """A name that no other worker of the study has.

    Args:
        folder: the worker's folder.
        is_shared: whether several machines share the storage: their folders may have the same name.
    """
    if not is_shared:
        return folder.name
    path = folder / "name"
    require_file(path)
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, uuid.uuid4().hex.encode())
    return read_text(path, errors="replace")


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """Finished trials, the best first; pruned trials come last."""
    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    return sorted(done, key=lambda trial: (trial.state != TrialState.COMPLETE, error(trial)))


def summary(study: optuna.Study) -> list[dict[str, Any]]:
    """The finished trials as plain values, the best first; the error of a diverged trial is None."""
    return [
        {
            "trial": trial.number,
            "error": trial.value,
            "finished": trial.state == TrialState.COMPLETE,
            "settings": trial.params,
        }
        for trial in finished(study)
    ]


def running(study: optuna.Study) -> list[FrozenTrial]:
    """Trials that were begun and not finished."""
    return list(study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)))


def forget(study: optuna.Study) -> int:
    """Marks all unfinished trials as failed, so that new ones replace them; returns their number."""
    unfinished = running(study)
    for trial in unfinished:
        study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
    return len(unfinished)


def best(study: optuna.Study) -> FrozenTrial:
    """The best trial that was trained to its end; InvalidSearch if there is none."""
    found = finished(study)
    if not found or found[0].state != TrialState.COMPLETE:
        raise InvalidSearch(f"no trial of the study '{study.study_name}' was trained to its end without diverging.")
    return found[0]


def winner(study: optuna.Study, space: Space, source: str) -> str:
    """The best configuration as TOML: its differences from `source`, the preset or file that the search began with."""
    found, known = (flatten(to_table(c)) for c in (space.configure(best(study).params), load_config(source)))
    # A part of another kind keeps none of its old settings.
    kinds = {key for key, value in found.items() if key.endswith(".kind") and known.get(key) != value}
    other = tuple(key.removesuffix("kind") for key in kinds)
    table: dict[str, Any] = {"base": str(Path(source).resolve()) if source.endswith(".toml") else source}
    for key, value in found.items():
        if key not in TRIAL_ONLY and (known.get(key) != value or key.startswith(other)):
            table = merge(table, nested(key, value))
    return tomli_w.dumps(table)


def _ask(
    study: optuna.Study, space: Space, worker: str, limit: int, batch: int, sampler: type[BaseSampler], seed: int
) -> list[list[Trial]]:
    """New trials, each drawn by itself, in groups of equal shape."""
    # Each batch of each worker has its own seed; with equal seeds they would draw the same trials.
    words = [seed, len(study.get_trials(deepcopy=False)), *worker.encode()]
    study.sampler = sampler(seed=int(np.random.SeedSequence(words).generate_state(1)[0]))  # type: ignore[call-arg]
    asked: dict[int, Trial] = {}
    while len(asked) < batch and _places(study) < limit:
        trial = _new_trial(study, worker)
        if _places(study, before=trial.number) >= limit:  # another worker was faster
            study.tell(trial, state=TrialState.FAIL)
            break
        for key, values in space.ranges.items():
            _suggest(trial, key, values)
        asked[trial.number] = trial
    groups = space.together({number: trial.params for number, trial in asked.items()})
    for number in set(asked) - {number for group in groups for number in group}:
        # Settings that are valid alone may be invalid together. The trial counts, or the search might not end.
        study.tell(number, state=TrialState.PRUNED)
    for group in groups:
        for number in group:
            asked[number].set_user_attr("run", f"trials-{group[0]:05}")
    return [[asked[number] for number in group] for group in groups]


def _new_trial(study: optuna.Study, worker: str) -> Trial:
    """A trial that has its worker from the first moment: killed later, the worker knows that it must finish it."""
    study.add_trial(create_trial(state=TrialState.RUNNING, user_attrs={"worker": worker}))
    mine = [t for t in study.get_trials(deepcopy=False) if t.user_attrs.get("worker") == worker]
    return Trial(study, mine[-1]._trial_id)


def _begun(study: optuna.Study, worker: str) -> Iterator[list[Trial]]:
    """The trials of each unfinished run of `worker`."""
    runs: dict[str, list[FrozenTrial]] = {}
    for trial in study.get_trials(deepcopy=False):
        if trial.user_attrs.get("worker") != worker:
            continue
        if "run" in trial.user_attrs:
            runs.setdefault(str(trial.user_attrs["run"]), []).append(trial)
        elif trial.state == TrialState.RUNNING:
            # Its worker was killed before all settings were drawn.
            study.tell(trial.number, state=TrialState.FAIL)
    for trials in runs.values():
        if any(trial.state == TrialState.RUNNING for trial in trials):
            yield [Trial(study, trial._trial_id) for trial in trials]


def _train(study: optuna.Study, space: Space, folder: Path, trials: Sequence[Trial]) -> Iterator[TrialProgress]:
    """Trains the trials as variants of one run, and tells the study their errors.

    All continue while one of them is promising, since they are one program.
    """
    path = _run_path(folder, trials[0].user_attrs["run"])
    config = space.combine([trial.params for trial in trials])
    run = Run.open(path, config, resume=True)
    numbers = tuple(trial.number for trial in trials)
    unfinished = {trial.number for trial in running(study)}
    hopeless = np.array([trial.number not in unfinished for trial in trials])
    yield TrialProgress(numbers, run, None)
    try:
        for metrics in run.train():
            if metrics.validation is not None:
                hopeless |= _hopeless(trials, hopeless, metrics)
            yield TrialProgress(numbers, run, metrics)
            if hopeless.all():
                break
        errors = _by_variant(run.record.best_error, len(trials))
        ended = run.record.step >= config.training.end or run.record.stopped_early
    except Diverged:
        errors, ended = np.full(len(trials), np.inf), True
    for trial, error in zip(trials, errors, strict=True):
        complete = ended and np.isfinite(error)
        # Another worker may have marked it as failed.
        value, state = (float(error), None) if complete else (None, TrialState.PRUNED)
        study.tell(trial.number, value, state=state, skip_if_finished=True)


def _run_path(folder: Path, name: Any) -> Path:
    """The folder of a run; its name comes from the study, which others may have written."""
    path = folder / str(name)
    if not re.fullmatch(r"trials-\d{5,18}", str(name)) or path.is_symlink() or folder.is_symlink():
        raise InvalidSearch(
            f"the study says that trials were trained in {str(name)[:100]!r}, but that is not a run folder of this "
            "search; the study was changed by another program: begin a new one."
        )
    return path


def _hopeless(trials: Sequence[Trial], known: np.ndarray, metrics: ChunkMetrics) -> np.ndarray:
    """Which trials the pruner rejects, or have diverged."""
    assert metrics.validation is not None
    errors = _by_variant(metrics.validation, len(trials))
    rejected = ~np.isfinite(errors)
    for i in np.flatnonzero(~(rejected | known)).tolist():
        try:
            with warnings.catch_warnings():  # a resumed trial may report a step again
                warnings.filterwarnings("ignore", "The reported value is ignored")
                trials[i].report(float(errors[i]), metrics.record.step)
            rejected[i] = trials[i].should_prune()
        except optuna.exceptions.UpdateFinishedTrialError:
            rejected[i] = True
    return rejected


def _by_variant(errors: Sequence[float], variants: int) -> np.ndarray:
    """The mean over the seeds."""
    return np.reshape(errors, (variants, -1)).mean(1)


def _places(study: optuna.Study, before: int | None = None) -> int:
    """How many trials have not failed."""
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
        return open_journal(Path(storage))
    network = not storage.startswith("sqlite")
    arguments = {"connect_args": {"connect_timeout": SECONDS_TO_CONNECT}} if network else {}
    return RDBStorage(storage, engine_kwargs=arguments)


def error(trial: FrozenTrial) -> float:
    """The validation error of a trial; infinite if it has none."""
    return np.inf if trial.value is None else trial.value
