"""The parts of a model: initial representation, pooling, update, decoder and latent, one dataclass for each kind."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
from jaxtyping import PRNGKeyArray

from ..errors import InvalidConfig
from ..model.decoders import Conditioned, Decoder, Identity, Logits, PredictorWeights, SoftmaxWeights
from ..model.initial import Constant, Initial, Parametric, Zero
from ..model.learner import Learner
from ..model.metafun import MetaFun
from ..model.nn import MLP
from ..model.pooling import Attention, DeepKernel, Mean, Pooling, SquaredExponential
from ..model.stochastic import Latent, StochasticMetaFun
from ..model.updates import ClasswiseUpdate, GradientUpdate, MLPUpdate, Update
from ..values import Count, Depth, Part, Positive, Share, Size


@dataclass(frozen=True)
class Sizes:
    """The sizes that all parts of a model must agree on.

    Args:
        dx: dim(x).
        dy: dim(y); 0 in classification.
        dr: dim(r).
        activation: name of φ.
    """

    dx: int
    dy: int
    dr: int
    activation: str

    def mlp(self, i: int, width: int, hidden: int, o: int, key: PRNGKeyArray) -> MLP:
        """A network from `i` to `o` entries with `hidden` layers of `width` units between them."""
        return MLP([i, *[width] * hidden, o], self.activation, key=key)

    def embedding(self, width: int, layers: int, heads: int, key: PRNGKeyArray) -> MLP:
        """The transformation a(x) of a pooling.

        Args:
            width: units in each layer; 0 stands for dim(x).
            layers: number of layers, the last one linear.
            heads: number of equal slices that a(x) and r must be divisible into.
            key: source of the initial weights.
        """
        width = width or self.dx
        for name, size in (("pooling.width", width), ("representation", self.dr)):
            if size % heads:
                raise InvalidConfig(f"model.{name} = {size} cannot be divided among model.pooling.heads = {heads}.")
        return self.mlp(self.dx, width, layers - 1, width, key)


@dataclass(frozen=True)
class PartConfig:
    """A part of a model; `problem` is "regression", "classification", or None if it serves both."""

    kind: str = ""

    problem: ClassVar[str | None] = None


@dataclass(frozen=True)
class ConstantConfig(PartConfig):
    """r⁽⁰⁾(x) = c, a trainable vector."""

    kind: Literal["constant"] = "constant"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Initial:
        return Constant(sizes.dr)


@dataclass(frozen=True)
class ZeroConfig(PartConfig):
    """r⁽⁰⁾(x) = 0."""

    kind: Literal["zero"] = "zero"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Initial:
        return Zero(size=sizes.dr)


@dataclass(frozen=True)
class MLPConfig(PartConfig):
    """A part made of multi-layer perceptrons.

    Args:
        width: number of units in each hidden layer.
        layers: number of hidden layers.
    """

    width: Count = 128
    layers: Depth = 3


@dataclass(frozen=True)
class ParametricConfig(MLPConfig):
    """r⁽⁰⁾(x) = MLP(x).

    Args:
        dropout: rate of the dropout on x in training.
    """

    kind: Literal["parametric"] = "parametric"
    dropout: Part = 0.0

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Initial:
        return Parametric(sizes.mlp(sizes.dx, self.width, self.layers, sizes.dr, key), self.dropout)


@dataclass(frozen=True)
class MeanConfig(PartConfig):
    """The mean over the context, as in neural processes."""

    kind: Literal["mean"] = "mean"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return Mean()


@dataclass(frozen=True)
class EmbeddedPoolingConfig(PartConfig):
    """A pooling that compares transformed inputs a(x).

    Args:
        width: units in each layer of a; 0 stands for dim(x).
        layers: number of layers of a, the last one linear.
        heads: number of slices of a(x) and r that are pooled separately; the paper has one.
    """

    width: Size = 128
    layers: Depth = 3
    heads: Count = 1


@dataclass(frozen=True)
class AttentionConfig(EmbeddedPoolingConfig):
    """Dot-product attention, the paper's DFP."""

    kind: Literal["attention"] = "attention"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return Attention(sizes.embedding(self.width, self.layers, self.heads, key), self.heads)


@dataclass(frozen=True)
class KernelConfig(PartConfig):
    """A squared-exponential kernel with trainable σ and ℓ.

    Args:
        scale: initial σ.
        lengthscale: initial ℓ.
    """

    scale: Positive = 1.0
    lengthscale: Positive = 1.0

    def kernel(self) -> SquaredExponential:
        return SquaredExponential(self.scale, self.lengthscale)


@dataclass(frozen=True)
class DeepKernelConfig(KernelConfig, EmbeddedPoolingConfig):
    """A kernel on a(x), the paper's KFP."""

    kind: Literal["deep-kernel"] = "deep-kernel"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return DeepKernel(sizes.embedding(self.width, self.layers, self.heads, key), self.kernel(), self.heads)


@dataclass(frozen=True)
class SquaredExponentialConfig(KernelConfig):
    """A kernel on x itself."""

    kind: Literal["squared-exponential"] = "squared-exponential"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return self.kernel()


@dataclass(frozen=True)
class MLPUpdateConfig(MLPConfig):
    """u = MLP([x, y, r(x)])."""

    kind: Literal["mlp"] = "mlp"

    problem = "regression"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        return MLPUpdate(sizes.mlp(sizes.dx + sizes.dy + sizes.dr, self.width, self.layers, sizes.dr, key))


@dataclass(frozen=True)
class ClasswiseUpdateConfig(MLPConfig):
    """The update of each class, from networks m, u₊ and u₋.

    Args:
        width: number of units in each hidden layer, and length of m.
        layers: number of hidden layers of u₊ and u₋; m has as many layers, the last one linear.
        inputs: whether u₊ also sees x, which it does not in the paper.
    """

    kind: Literal["classwise"] = "classwise"
    width: Count = 64
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
class GradientUpdateConfig(PartConfig):
    """u = λ ⊙ ∂L/∂r(x), the gradient of the context loss.

    Each entry of λ is trainable and starts at 1.
    """

    kind: Literal["gradient"] = "gradient"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        return GradientUpdate(sizes.dr)


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
class IdentityConfig(DecoderConfig):
    """f(x) = r(x), for functional gradient descent.

    The entries of r(x) are the mean and the s that the standard deviation is computed from.
    """

    kind: Literal["identity"] = "identity"

    problem = "regression"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        _expect_representation("identity", "r itself, (μ, s)", 2 * sizes.dy, sizes)
        return Identity()


@dataclass(frozen=True)
class SoftmaxWeightsConfig(DecoderConfig):
    """Weights of a softmax drawn from r, LEO's decoder.

    Args:
        dropout: rate of the dropout on x in training.
        bias: whether the softmax has a bias; needed for features without a common direction.
    """

    kind: Literal["softmax-weights"] = "softmax-weights"
    dropout: Part = 0.0
    bias: bool = False

    problem = "classification"
    orthogonalisable = True

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        return SoftmaxWeights(sizes.mlp(sizes.dr, 0, 0, 2 * (sizes.dx + self.bias), key), self.dropout, self.bias)


@dataclass(frozen=True)
class LogitsConfig(DecoderConfig):
    """The logit of a class is r itself, for functional gradient descent."""

    kind: Literal["logits"] = "logits"

    problem = "classification"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        _expect_representation("logits", "rᵏ itself, a scalar for each class", 1, sizes)
        return Logits()


# MetaFun with a decoder for representations of the given sizes.
BuildMetaFun = Callable[[Sizes, PRNGKeyArray], MetaFun]


@dataclass(frozen=True)
class NoLatentConfig(PartConfig):
    """A deterministic representation."""

    kind: Literal["none"] = "none"

    def build(self, metafun: BuildMetaFun, sizes: Sizes, key: PRNGKeyArray) -> Learner:
        return metafun(sizes, key)


@dataclass(frozen=True)
class GlobalLatentConfig(PartConfig):
    """A latent z for the whole function, to draw functions.

    Args:
        size: length of z.
        width: number of units in each hidden layer.
        layers: number of hidden layers for each point; two more follow the mean over points.
        samples: number of draws of z that a prediction mixes.
    """

    kind: Literal["global"] = "global"
    size: Count = 64
    width: Count = 128
    layers: Depth = 3
    samples: Count = 50

    problem = "regression"

    def build(self, metafun: BuildMetaFun, sizes: Sizes, key: PRNGKeyArray) -> Learner:
        key_metafun, key_latent = jax.random.split(key)
        key_each, key_pooled = jax.random.split(key_latent)
        latent = Latent(
            each=sizes.mlp(sizes.dx + sizes.dy + sizes.dr, self.width, self.layers, self.width, key_each),
            pooled=sizes.mlp(self.width, self.width, 2, 2 * self.size, key_pooled),
        )
        # The decoder sees [z, r(x)].
        inner = metafun(dataclasses.replace(sizes, dr=self.size + sizes.dr), key_metafun)
        return StochasticMetaFun(metafun=inner, latent=latent, likelihood=inner.likelihood, samples=self.samples)


def _expect_representation(decoder: str, predicts: str, expected: int, sizes: Sizes) -> None:
    if sizes.dr != expected:
        raise InvalidConfig(
            f"decoder '{decoder}' predicts {predicts}: model.representation must be {expected}, not {sizes.dr}."
        )
