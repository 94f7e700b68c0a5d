"""Task distributions: modules with `sample(key) -> Task`, drawn on the device."""

from .base import Tasks
from .collected import Collected, MeanStdScaling
from .curves import Curves
from .episodes import Episodes
from .sinusoid import Sinusoid

__all__ = ["Collected", "Curves", "Episodes", "MeanStdScaling", "Sinusoid", "Tasks"]
