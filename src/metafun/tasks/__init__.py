"""Task distributions: modules with `sample(key) -> Task`, drawn on the device."""

from .collected import Collected, Scale
from .curves import Curves
from .episodes import Episodes
from .sinusoid import Sinusoid
from .tasks import Tasks

__all__ = ["Collected", "Curves", "Episodes", "Scale", "Sinusoid", "Tasks"]
