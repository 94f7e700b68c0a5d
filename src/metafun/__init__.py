"""Meta-learning with functional representations."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import Config, load_config, presets
    from .errors import MetaFunError
    from .estimators import MetaFunClassifier, MetaFunRegressor
    from .estimators.predict_folder import predict_folder
    from .model import FunctionalRepresentation, MetaFun, Points, Task, stack
    from .training.run import Run
    from .training.session import load_model
    from .training.trainer import Trainer

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
    "predict_folder",
    "presets",
    "stack",
]

# The module of each name. Names are imported on first use: `import metafun` must not load JAX.
_HOMES = {
    "config": ("Config", "load_config", "presets"),
    "errors": ("MetaFunError",),
    "estimators": ("MetaFunClassifier", "MetaFunRegressor"),
    "estimators.predict_folder": ("predict_folder",),
    "model": ("FunctionalRepresentation", "MetaFun", "Points", "Task", "stack"),
    "training.session": ("load_model",),
    "training.run": ("Run",),
    "training.trainer": ("Trainer",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f".{home}", __name__), name)
    raise AttributeError(f"module 'metafun' has no attribute '{name}'")


def __dir__() -> list[str]:
    return __all__
