"""Out of memory as an error with a remedy, wherever the allocation failed."""

import contextlib
import re
from collections.abc import Iterator

import jax

from ..errors import NotEnoughMemory

# XLA's words differ by device and by the moment of the allocation.
_WORDS = re.compile(r"RESOURCE_EXHAUSTED|out of memory|bad_alloc|failed to allocate|unable to allocate", re.IGNORECASE)


@contextlib.contextmanager
def enough_memory(remedy: str) -> Iterator[None]:
    """NotEnoughMemory, with the remedy, where the enclosed computation runs out of memory.

    Args:
        remedy: what the user can do, "use fewer rows".
    """
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and not _WORDS.search(str(error)):
            raise
        raise NotEnoughMemory(f"not enough memory; {remedy}.") from None
