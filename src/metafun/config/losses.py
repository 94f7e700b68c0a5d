"""The losses ℓ(f(x), y), and with them what a prediction is."""

from dataclasses import dataclass
from typing import Literal

from ..model.likelihoods import CrossEntropy, Gaussian, SquaredError
from ..values import Share


@dataclass(frozen=True)
class SquaredErrorConfig:
    kind: Literal["squared-error"] = "squared-error"
    min_std: Share = 0.1

    problem = "regression"

    def build(self) -> SquaredError:
        return SquaredError(self.min_std)


@dataclass(frozen=True)
class GaussianConfig:
    kind: Literal["gaussian"] = "gaussian"
    min_std: Share = 0.1

    problem = "regression"

    def build(self) -> Gaussian:
        return Gaussian(self.min_std)


@dataclass(frozen=True)
class CrossEntropyConfig:
    kind: Literal["cross-entropy"] = "cross-entropy"
    label_smoothing: Share = 0.0

    problem = "classification"

    def build(self) -> CrossEntropy:
        return CrossEntropy(self.label_smoothing)
