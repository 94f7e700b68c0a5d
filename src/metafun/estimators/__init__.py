"""scikit-learn estimators over a trained model: `fit` encodes the context, `predict` evaluates and decodes."""

from .base import MetaFunClassifier, MetaFunRegressor

__all__ = ["MetaFunClassifier", "MetaFunRegressor"]
