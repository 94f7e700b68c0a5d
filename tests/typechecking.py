"""The type checker of the tests' import hook."""

from beartype import beartype
from beartype.roar import BeartypeDecorHintPep673Exception


def typechecked(function):
    """`beartype`, except for functions that mention `Self`, which it refuses outside of a decorated class."""
    try:
        return beartype(function)
    except BeartypeDecorHintPep673Exception:
        return function
