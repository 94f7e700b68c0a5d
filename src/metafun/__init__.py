"""Meta-learning with functional representations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .checkpoint import load_model
    from .config import Config, load_config, presets
    from .errors import MetaFunError
    from .estimators import MetaFunClassifier, MetaFunRegressor
    from .model import FunctionalRepresentation, MetaFun
    from .runs import Run
    from .task import Points, Task, stack
    from .training import Trainer

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

# Where they are. Each is imported when it is first asked for, so that no one waits for what is not used.
_HOMES = {
    "checkpoint": ("load_model",),
    "config": ("Config", "load_config", "presets"),
    "errors": ("MetaFunError",),
    "estimators": ("MetaFunClassifier", "MetaFunRegressor"),
    "model": ("FunctionalRepresentation", "MetaFun"),
    "runs": ("Run",),
    "task": ("Points", "Task", "stack"),
    "training": ("Trainer",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module 'metafun' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
