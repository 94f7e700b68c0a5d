"""The decoder of a model, one dataclass for each kind."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import jax
from jaxtyping import PRNGKeyArray

from ..errors import InvalidConfig
from ..model.decoders import Concatenated, Conditioned, Decoder, Identity, Logits, PredictorWeights, SoftmaxWeights
from ..model.nn import MLP, with_random_biases
from ..schema import Between
from ..values import Part, Share, Width
from .parts import MLPConfig, PartConfig, Sizes


@dataclass(frozen=True)
class DecoderConfig(PartConfig):
    """A decoder; `orthogonalisable` says whether it has the matrix that model.orthogonality is a penalty on."""

    orthogonalisable: ClassVar[bool] = False


@dataclass(frozen=True)
class PredictorConfig(DecoderConfig, MLPConfig):
    """A decoder with a predictor f, an MLP of x.

    Args:
        width: number of units in each hidden layer.
        layers: number of layers of f, the last one linear.
    """

    problem = "regression"

    def sizes_of_predictor(self, sizes: Sizes) -> list[int]:
        return [sizes.dx, *[self.width] * (self.layers - 1), 2 * sizes.dy]


@dataclass(frozen=True)
class PredictorWeightsConfig(PredictorConfig):
    """f(x) = MLP(x; w), with weights w = MLP(r(x)) from a network of `layers` hidden layers."""

    kind: Literal["predictor-weights"] = "predictor-weights"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        hidden = [sizes.dr, *[self.width] * self.layers]
        return PredictorWeights(hidden, self.sizes_of_predictor(sizes), sizes.activation, key=key)


@dataclass(frozen=True)
class ConditionedConfig(PredictorConfig):
    """f(x) = MLP([r(x), x]), r(x) fed to every layer.

    Args:
        share: share of r's entries, from the first on, that f sees.
    """

    kind: Literal["conditioned"] = "conditioned"
    share: Share = 1.0

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        return Conditioned(int(self.share * sizes.dr), self.sizes_of_predictor(sizes), sizes.activation, key=key)


@dataclass(frozen=True)
class ConcatenatedConfig(PredictorConfig):
    """f(x) = MLP([x, r(x)]), r(x) fed to the first layer alone."""

    kind: Literal["concatenated"] = "concatenated"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        first, *rest = self.sizes_of_predictor(sizes)
        return Concatenated(MLP([first + sizes.dr, *rest], sizes.activation, key=key))


@dataclass(frozen=True)
class IdentityConfig(DecoderConfig):
    """f(x) = r(x), for functional gradient descent.

    The entries of r(x) are the mean and the s that the standard deviation is computed from.
    """

    kind: Literal["identity"] = "identity"

    problem = "regression"
    accepts_latent = False

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        _expect_representation("identity", "r itself, (μ, s)", 2 * sizes.dy, sizes)
        return Identity()


@dataclass(frozen=True)
class SoftmaxWeightsConfig(DecoderConfig):
    """Weights of a softmax drawn from r, LEO's decoder.

    Args:
        dropout: rate of the dropout on x in training.
        bias: whether the softmax has a bias; needed for features without a common direction.
        width: number of units in each hidden layer.
        layers: number of hidden layers between r and the mean and deviation of the weights; 0 for a linear map, as in
            the authors' program.
    """

    kind: Literal["softmax-weights"] = "softmax-weights"
    dropout: Part = 0.0
    bias: bool = False
    width: Width = 128
    layers: Annotated[int, Between(0, 100)] = 0

    added = {"width": 128, "layers": 0}  # noqa: RUF012
    problem = "classification"
    orthogonalisable = True

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        emitted = 2 * (sizes.dx + self.bias)
        if not self.layers:
            return SoftmaxWeights(sizes.mlp(sizes.dr, 0, 0, emitted, key), self.dropout, self.bias)
        key_hidden, key_biases, key_linear = jax.random.split(key, 3)
        # Training often starts at r = 0, where hidden layers need biases to pass a gradient on.
        hidden = with_random_biases(
            sizes.mlp(sizes.dr, self.width, self.layers - 1, self.width, key_hidden), key_biases
        )
        linear = sizes.mlp(self.width, 0, 0, emitted, key_linear)
        return SoftmaxWeights(linear, self.dropout, self.bias, hidden)


@dataclass(frozen=True)
class LogitsConfig(DecoderConfig):
    """The logit of a class is r itself, for functional gradient descent."""

    kind: Literal["logits"] = "logits"

    problem = "classification"
    accepts_latent = False

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        _expect_representation("logits", "rᵏ itself, a scalar for each class", 1, sizes)
        return Logits()


def _expect_representation(decoder: str, predicts: str, expected: int, sizes: Sizes) -> None:
    if sizes.dr != expected:
        raise InvalidConfig(
            f"decoder '{decoder}' predicts {predicts}: model.representation must be {expected}, not {sizes.dr}."
        )
