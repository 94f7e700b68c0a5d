"""scikit-learn estimators over a trained model: `fit` encodes the context, `predict` evaluates and decodes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .classifier import MetaFunClassifier
    from .regressor import MetaFunRegressor

# Imported on first use: commands that only open a model must not wait for scikit-learn.
_HOMES = {"MetaFunClassifier": "classifier", "MetaFunRegressor": "regressor"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
