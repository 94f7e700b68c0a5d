"""The parts of a model: initial representation, pooling, update and decoder, one dataclass for each kind.

`problem` says whether a part is for regression or classification; one without it serves both.
"""

from dataclasses import dataclass
from typing import Literal

import jax
from jaxtyping import PRNGKeyArray

from ..errors import InvalidConfig
from ..model.decoders import Conditioned, Decoder, Identity, Logits, PredictorWeights, SoftmaxWeights
from ..model.initial import Constant, Initial, Parametric, Zero
from ..model.nn import MLP
from ..model.pooling import Attention, DeepKernel, Mean, Pooling, SquaredExponential
from ..model.stochastic import Latent
from ..model.updates import ClasswiseUpdate, GradientUpdate, MLPUpdate, Update
from ..values import Count, Depth, Part, Positive, Share, Size


@dataclass(frozen=True)
class Sizes:
    """What the parts must agree on: dim(x), dim(y) (0 in classification), dim(r) and the activation φ."""

    dx: int
    dy: int
    dr: int
    activation: str

    def mlp(self, i: int, width: int, hidden: int, o: int, key: PRNGKeyArray) -> MLP:
        return MLP([i, *[width] * hidden, o], self.activation, key=key)

    def embedding(self, width: int, layers: int, heads: int, key: PRNGKeyArray) -> MLP:
        """a(x), of which each head of a pooling has a slice, as it has of r."""
        width = width or self.dx
        for name, size in (("pooling.width", width), ("representation", self.dr)):
            if size % heads:
                raise InvalidConfig(f"model.{name} = {size} cannot be divided among model.pooling.heads = {heads}.")
        return self.mlp(self.dx, width, layers - 1, width, key)


@dataclass(frozen=True)
class ZeroConfig:
    kind: Literal["zero"] = "zero"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Initial:
        return Zero(sizes.dr)


@dataclass(frozen=True)
class ConstantConfig:
    kind: Literal["constant"] = "constant"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Initial:
        return Constant(sizes.dr)


@dataclass(frozen=True)
class ParametricConfig:
    """`layers` hidden layers and a linear one."""

    kind: Literal["parametric"] = "parametric"
    width: Count = 128
    layers: Depth = 3
    dropout: Part = 0.0

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Initial:
        return Parametric(sizes.mlp(sizes.dx, self.width, self.layers, sizes.dr, key), self.dropout)


@dataclass(frozen=True)
class MeanConfig:
    kind: Literal["mean"] = "mean"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return Mean()


@dataclass(frozen=True)
class AttentionConfig:
    """`layers` layers in all, the last one linear; a `width` of 0 stands for dim(x). The paper has one head."""

    kind: Literal["attention"] = "attention"
    width: Size = 128
    layers: Depth = 3
    heads: Count = 1

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return Attention(sizes.embedding(self.width, self.layers, self.heads, key), self.heads)


@dataclass(frozen=True)
class DeepKernelConfig:
    """The embedding is that of an attention; σ and ℓ are trainable."""

    kind: Literal["deep-kernel"] = "deep-kernel"
    width: Size = 128
    layers: Depth = 3
    heads: Count = 1
    scale: Positive = 1.0
    lengthscale: Positive = 1.0

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        a = sizes.embedding(self.width, self.layers, self.heads, key)
        return DeepKernel(a, SquaredExponential(self.scale, self.lengthscale), self.heads)


@dataclass(frozen=True)
class SquaredExponentialConfig:
    """σ and ℓ are trainable."""

    kind: Literal["squared-exponential"] = "squared-exponential"
    scale: Positive = 1.0
    lengthscale: Positive = 1.0

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return SquaredExponential(self.scale, self.lengthscale)


@dataclass(frozen=True)
class MLPUpdateConfig:
    """`layers` hidden layers and a linear one."""

    kind: Literal["mlp"] = "mlp"
    width: Count = 128
    layers: Depth = 3

    problem = "regression"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        return MLPUpdate(sizes.mlp(sizes.dx + sizes.dy + sizes.dr, self.width, self.layers, sizes.dr, key))


@dataclass(frozen=True)
class ClasswiseUpdateConfig:
    """m has `layers` layers, the last one linear; u₊ and u₋ have `layers` hidden layers and a linear one.

    With `inputs`, u₊ is given xᵢ too, which the paper does not do.
    """

    kind: Literal["classwise"] = "classwise"
    width: Count = 64
    layers: Depth = 3
    inputs: bool | None = None

    problem = "classification"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        key_m, key_positive, key_negative = jax.random.split(key, 3)
        seen = sizes.dx if self.inputs else 0
        return ClasswiseUpdate(
            m=sizes.mlp(sizes.dr, self.width, self.layers - 1, self.width, key_m),
            positive=sizes.mlp(2 * self.width + seen, self.width, self.layers, sizes.dr, key_positive),
            negative=sizes.mlp(2 * self.width, self.width, self.layers, sizes.dr, key_negative),
            sees_inputs=bool(self.inputs),
        )


@dataclass(frozen=True)
class GradientUpdateConfig:
    kind: Literal["gradient"] = "gradient"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        return GradientUpdate(sizes.dr)


@dataclass(frozen=True)
class PredictorWeightsConfig:
    """`layers` hidden layers emit the weights of a predictor with `layers` − 1 hidden layers."""

    kind: Literal["predictor-weights"] = "predictor-weights"
    width: Count = 128
    layers: Depth = 3

    problem = "regression"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        predictor = [sizes.dx, *[self.width] * (self.layers - 1), 2 * sizes.dy]
        return PredictorWeights([sizes.dr, *[self.width] * self.layers], predictor, sizes.activation, key=key)


@dataclass(frozen=True)
class ConditionedConfig:
    """A predictor with `layers` − 1 hidden layers that sees the first `share` of r."""

    kind: Literal["conditioned"] = "conditioned"
    width: Count = 128
    layers: Depth = 3
    share: Share = 1.0

    problem = "regression"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        predictor = [sizes.dx, *[self.width] * (self.layers - 1), 2 * sizes.dy]
        return Conditioned(int(self.share * sizes.dr), predictor, sizes.activation, key=key)


@dataclass(frozen=True)
class IdentityConfig:
    kind: Literal["identity"] = "identity"

    problem = "regression"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        _expect_representation("identity", "r itself, (μ, s)", 2 * sizes.dy, sizes)
        return Identity()


@dataclass(frozen=True)
class SoftmaxWeightsConfig:
    """LEO's decoder; dropout is on x. A bias is needed for features without a common direction."""

    kind: Literal["softmax-weights"] = "softmax-weights"
    dropout: Part = 0.0
    bias: bool = False

    problem = "classification"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        return SoftmaxWeights(sizes.mlp(sizes.dr, 0, 0, 2 * (sizes.dx + self.bias), key), self.dropout, self.bias)


@dataclass(frozen=True)
class LogitsConfig:
    kind: Literal["logits"] = "logits"

    problem = "classification"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        _expect_representation("logits", "rᵏ itself, one number a class", 1, sizes)
        return Logits()


@dataclass(frozen=True)
class NoLatentConfig:
    kind: Literal["none"] = "none"


@dataclass(frozen=True)
class GlobalLatentConfig:
    """z of `size` numbers, one for the whole function; predictions are mixtures over `samples` draws of it.

    `layers` hidden layers for each point and two after the mean.
    """

    kind: Literal["global"] = "global"
    size: Count = 64
    width: Count = 128
    layers: Depth = 3
    samples: Count = 50

    problem = "regression"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Latent:
        key_each, key_pooled = jax.random.split(key)
        return Latent(
            each=sizes.mlp(sizes.dx + sizes.dy + sizes.dr, self.width, self.layers, self.width, key_each),
            pooled=sizes.mlp(self.width, self.width, 2, 2 * self.size, key_pooled),
        )


def _expect_representation(decoder: str, predicts: str, expected: int, sizes: Sizes) -> None:
    if sizes.dr != expected:
        raise InvalidConfig(
            f"decoder '{decoder}' predicts {predicts}: model.representation must be {expected}, not {sizes.dr}."
        )
