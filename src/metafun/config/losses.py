"""The losses ℓ(f(x), y), each with the predictive distribution that it needs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..model.likelihoods import CrossEntropy, Gaussian, NormalLikelihood, SquaredError
from ..values import Share


@dataclass(frozen=True)
class CrossEntropyConfig:
    """Cross-entropy of the predicted class probabilities.

    Args:
        label_smoothing: share of each label that is spread evenly over the classes.
    """

    kind: Literal["cross-entropy"] = "cross-entropy"
    label_smoothing: Share = 0.0

    problem = "classification"

    def build(self) -> CrossEntropy:
        return CrossEntropy(self.label_smoothing)


@dataclass(frozen=True)
class NormalConfig:
    """A loss of a predicted mean and standard deviation.

    Args:
        min_std: the least standard deviation that can be predicted.
    """

    kind: str = ""
    min_std: Share = 0.1

    problem = "regression"
    likelihood: ClassVar[type[NormalLikelihood]]

    def build(self) -> NormalLikelihood:
        return self.likelihood(self.min_std)


@dataclass(frozen=True)
class SquaredErrorConfig(NormalConfig):
    """The squared error of the mean; the standard deviation is not trained."""

    kind: Literal["squared-error"] = "squared-error"
    likelihood = SquaredError


@dataclass(frozen=True)
class GaussianConfig(NormalConfig):
    """The negative log-likelihood of a normal distribution."""

    kind: Literal["gaussian"] = "gaussian"
    likelihood = Gaussian
