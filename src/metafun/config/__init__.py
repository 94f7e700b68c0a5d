"""Every choice and every default: a frozen dataclass per component, each with `build`."""

from .experiment import Config, TrainingConfig, parse_config
from .load import describe_preset, load_config, parse_setting, parse_toml, presets
from .model import MetaFunConfig
from .tasks import CurvesConfig, EpisodesConfig, EvaluationConfig, SinusoidConfig

__all__ = [
    "Config",
    "CurvesConfig",
    "EpisodesConfig",
    "EvaluationConfig",
    "MetaFunConfig",
    "SinusoidConfig",
    "TrainingConfig",
    "describe_preset",
    "load_config",
    "parse_config",
    "parse_setting",
    "parse_toml",
    "presets",
]
