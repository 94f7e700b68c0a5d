"""Every setting with its default: frozen dataclasses to and from TOML. `resolve` makes an experiment of them."""

from .config import Config, EvaluationConfig, TrainingConfig, settings_hash
from .experiment import Experiment, parse_config, resolve
from .load import (
    describe_preset,
    has_setting,
    load_config,
    parse_setting,
    parse_toml,
    presets,
    says_no_tasks,
    with_changes,
)
from .model import MetaFunConfig
from .parts import PartConfig
from .plugins import load_plugin, register_part
from .space import SPACES, Space, default_space, load_space
