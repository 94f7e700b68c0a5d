"""Meta-learning with functional representations."""

from typing import TYPE_CHECKING, Any

from .checkpoint import load_model
from .config import Config, load_config, presets
from .errors import MetaFunError
from .model import FunctionalRepresentation, MetaFun
from .runs import Run
from .task import Points, Task, stack
from .training import Trainer

if TYPE_CHECKING:
    from .estimators import MetaFunClassifier, MetaFunRegressor

__version__ = "0.1.0"

__all__ = [
    "Config",
    "FunctionalRepresentation",
    "MetaFun",
    "MetaFunClassifier",
    "MetaFunError",
    "MetaFunRegressor",
    "Points",
    "Run",
    "Task",
    "Trainer",
    "load_config",
    "load_model",
    "presets",
    "stack",
]


def __getattr__(name: str) -> Any:
    # scikit-learn is slow to import, and only these need it.
    if name in ("MetaFunClassifier", "MetaFunRegressor"):
        from . import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'metafun' has no attribute '{name}'")
