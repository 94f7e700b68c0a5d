"""Task distributions: modules with `sample(key) -> Task`, drawn on the device."""

from .sinusoid import Sinusoid

__all__ = ["Sinusoid"]
