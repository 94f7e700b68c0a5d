"""The type checker of the tests' import hook."""

from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeDecorHintPep673Exception

_check = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int is a float


def typechecked(function):
    """`beartype`, except for functions that mention `Self`, which it refuses outside of a decorated class."""
    try:
        return _check(function)
    except BeartypeDecorHintPep673Exception:
        return function
