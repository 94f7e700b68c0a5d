"""Mistakes a user can mend. The command line prints one line and exits with 2."""

import difflib
from collections.abc import Iterable


class MetaFunError(ValueError):
    """The family: what was expected, what came, and the remedy."""


class InvalidTask(MetaFunError):
    """Arrays that do not form a task."""


class InvalidData(MetaFunError):
    """A file of data that is damaged, foreign or hostile."""


class InvalidConfig(MetaFunError):
    """An unknown preset or key, or a value that does not fit."""


class UnknownKind(InvalidConfig):
    """A `kind` that no part has. In a file that was written by metafun, it may be that of a plugin."""

    remedy = "If it is a part of your own, name its file with --plugin; in Python, import it first."


class InvalidCheckpoint(MetaFunError):
    """A file that does not hold the model it should."""


class InvalidRun(MetaFunError):
    """A run folder that is missing, foreign, or in the way."""


class Busy(InvalidRun):
    """A folder in which another process is at work."""


class InvalidSearch(MetaFunError):
    """A study that cannot be reached, or is another one."""


class NotEnoughMemory(MetaFunError):
    """A computation that needs more memory than there is."""


class InvalidResults(MetaFunError):
    """Measurements that cannot be read, or pages that do not show them."""


class Diverged(MetaFunError):
    """Training met a loss that is not finite."""


def _quoted(names: list[str]) -> list[str]:
    """Names with a comma in quotes: a list of them could not be read otherwise."""
    return list(map(repr, names)) if any("," in name for name in names) else names


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The known names that a mistyped one may stand for, at most three."""
    return difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint for a mistyped name: the nearest known ones, or all of them."""
    known = sorted(known)
    near = nearest(name, known)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"known: {', '.join(_quoted(known))}."
