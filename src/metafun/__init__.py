"""Meta-learning with functional representations."""

from .checkpoint import load_model
from .config import Config, load_config, presets
from .errors import MetaFunError
from .model import FunctionalRepresentation, MetaFun
from .runs import Run
from .task import Points, Task, stack
from .training import Trainer

__version__ = "0.1.0"

__all__ = [
    "Config",
    "FunctionalRepresentation",
    "MetaFun",
    "MetaFunError",
    "Points",
    "Run",
    "Task",
    "Trainer",
    "load_config",
    "load_model",
    "presets",
    "stack",
]
