"""Every choice and every default: a frozen dataclass per component, each with `build`."""

from .experiment import Config, TrainingConfig, parse_config
from .load import describe_preset, load_config, parse_setting, parse_toml, presets, with_changes
from .model import MetaFunConfig
from .space import Space, load_space, spaces
from .tables import CollectedConfig, EpisodesConfig
from .tasks import CurvesConfig, EvaluationConfig, SinusoidConfig

__all__ = [
    "CollectedConfig",
    "Config",
    "CurvesConfig",
    "EpisodesConfig",
    "EvaluationConfig",
    "MetaFunConfig",
    "SinusoidConfig",
    "Space",
    "TrainingConfig",
    "describe_preset",
    "load_config",
    "load_space",
    "parse_config",
    "parse_setting",
    "parse_toml",
    "presets",
    "spaces",
    "with_changes",
]
