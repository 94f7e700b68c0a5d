"""The parts of an encoder: initial representation, pooling and update, one dataclass for each kind."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
from jaxtyping import PRNGKeyArray

from ..errors import InvalidConfig
from ..model.initial import Constant, Initial, Parametric, Zero
from ..model.nn import MLP
from ..model.pooling import Attention, DeepKernel, Mean, Pooling, SquaredExponential
from ..model.updates import SUMMARIES, ClasswiseUpdate, GradientUpdate, GradientUpdatePerClass, MLPUpdate, Update
from ..values import ClassCount, Depth, Part, Positive, Width, WidthOrZero


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

    @property
    def classifies(self) -> bool:
        return self.dy == 0

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
    """A part of a model.

    `problem` is "regression", "classification", or None if it serves both; `accepts_latent` says whether the decoder
    may see a latent besides r.
    """

    kind: str = ""

    problem: ClassVar[str | None] = None
    accepts_latent: ClassVar[bool] = True


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

    width: Width = 128
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

    width: WidthOrZero = 128
    layers: Depth = 3
    heads: Width = 1


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
        scale: initial scale σ of the kernel.
        lengthscale: initial lengthscale ℓ of the kernel.
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
        summary: how m is summarised over the classes: its mean, as in the authors' program, or its sum, as in
            Equation 11 of the paper.
    """

    kind: Literal["classwise"] = "classwise"
    width: Width = 64
    inputs: bool | None = None
    summary: Literal["mean", "sum"] = "mean"

    added = {"summary": "mean"}  # noqa: RUF012
    problem = "classification"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        key_m, key_positive, key_negative = jax.random.split(key, 3)
        seen = sizes.dx if self.inputs else 0
        return ClasswiseUpdate(
            m=sizes.mlp(sizes.dr, self.width, self.layers - 1, self.width, key_m),
            positive=sizes.mlp(2 * self.width + seen, self.width, self.layers, sizes.dr, key_positive),
            negative=sizes.mlp(2 * self.width, self.width, self.layers, sizes.dr, key_negative),
            sees_inputs=bool(self.inputs),
            summary=SUMMARIES[self.summary],
        )


@dataclass(frozen=True)
class GradientUpdateConfig(PartConfig):
    """u = λ ⊙ ∂L/∂r(x), the gradient of the context loss.

    Each entry of λ is trainable and starts at 1.

    Args:
        classes: in classification, the number of classes if each has its own λ, as in the authors' program. If not
            given, all classes share one λ and a task may have any number of them.
    """

    kind: Literal["gradient"] = "gradient"
    classes: ClassCount | None = None

    # The context loss is decoded from r alone: z is known only after the updates.
    accepts_latent = False

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        return GradientUpdate(sizes.dr) if self.classes is None else GradientUpdatePerClass(self.classes, sizes.dr)
