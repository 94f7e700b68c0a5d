"""The journal of a study, a file to which workers append a line for each event; and checks of what a study holds."""

import json
import warnings
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

from ..config import Space
from ..errors import InvalidSearch
from ..files import write_atomically

# A line is an event; the longest has the settings of a trial.
MOST_BYTES = 2**28


def open_journal(path: Path) -> JournalStorage:
    """The storage in a journal file. What a killed worker or a full disk left of its last line is moved aside.

    Args:
        path: the file, which is created if it is missing; InvalidSearch if it is not a journal.
    """
    # Not the default lock, a symbolic link: Windows creates these for administrators only.
    lock = JournalFileOpenLock(str(path))
    if path.exists() or path.is_symlink():
        _check_file(path)
        lock.acquire()
        try:
            _cut_torn_line(path)
        finally:
            lock.release()
    return JournalStorage(JournalFileBackend(str(path), lock))


def _check_file(path: Path) -> None:
    """Before anything is written: the folder may be from a stranger, or the name mistyped."""
    if path.is_symlink() or not path.is_file():
        raise InvalidSearch(f"{path} is a link or not a file; give the path of the journal itself.")
    if (size := path.stat().st_size) > MOST_BYTES:
        raise InvalidSearch(f"{path} has {size:,} bytes; a journal has at most {MOST_BYTES:,}.")
    with open(path, "rb") as file:
        first = file.readline()
    try:
        is_journal = not first.endswith(b"\n") or "op_code" in json.loads(first)
    except (ValueError, TypeError, RecursionError):
        is_journal = False
    if not is_journal or not (b'{"op_code"'.startswith(first[:10]) or first.startswith(b'{"')):
        raise InvalidSearch(f"{path} is not the journal of a study; choose another path.")


def _cut_torn_line(path: Path) -> None:
    """Optuna would append the next event to it, and could never read the journal again."""
    with open(path, "r+b") as file:
        whole, _, torn = file.read().rpartition(b"\n")
        if not torn:
            return
        aside = path.with_name(f"{path.name}.torn")
        write_atomically(aside, torn)
        file.truncate(len(whole) + bool(whole))
    warnings.warn(
        f"{path}: the last line was incomplete, as after a full disk; it was moved to {aside.name}.", stacklevel=2
    )


def check_trials(study: optuna.Study, space: Space) -> None:
    """InvalidSearch unless every trial has what a worker gives it; other programs may have written the study.

    Args:
        study: the study, as it was found.
        space: what it searches.
    """
    for trial in study.get_trials(deepcopy=False):
        ended = trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        if (ended or "run" in trial.user_attrs) and trial.state != TrialState.FAIL:
            lacking = [name for name in space.ranges if not isinstance(trial.params.get(name), int | float | str)]
            lacking += ["its error"] if trial.state == TrialState.COMPLETE and not _is_error(trial.values) else []
            if lacking:
                raise InvalidSearch(
                    f"the study '{study.study_name}' is damaged: trial {trial.number} lacks {lacking[0]}; "
                    "begin a new one with another --out or --study."
                )


def _is_error(values: Any) -> bool:
    return isinstance(values, list) and len(values) == 1 and isinstance(values[0], int | float)
