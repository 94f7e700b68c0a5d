"""A whole model, put together from its parts."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jax
from jaxtyping import PRNGKeyArray

from ..errors import InvalidConfig
from ..model.learner import Learner
from ..model.metafun import MetaFun
from ..model.regularisers import Regulariser, regularisers
from ..model.stochastic import StochasticMetaFun
from ..schema import Between
from ..values import Activation, Count, NonNegative, Real
from .losses import CrossEntropyConfig, GaussianConfig, SquaredErrorConfig
from .parts import (
    AttentionConfig,
    ClasswiseUpdateConfig,
    ConditionedConfig,
    ConstantConfig,
    DeepKernelConfig,
    GlobalLatentConfig,
    GradientUpdateConfig,
    IdentityConfig,
    LogitsConfig,
    MeanConfig,
    MLPUpdateConfig,
    NoLatentConfig,
    ParametricConfig,
    PredictorWeightsConfig,
    Sizes,
    SoftmaxWeightsConfig,
    SquaredExponentialConfig,
    ZeroConfig,
)


@dataclass(frozen=True)
class MetaFunConfig:
    """Defaults are the paper's Table 6. `l2` and `orthogonality` are the weights of penalties.

    With no `iterations` r stays r⁽⁰⁾, and only a latent tells of the context.
    """

    kind: Literal["metafun"] = "metafun"
    iterations: Annotated[int, Between(0, 100)] = 5
    representation: Count = 128
    step_size: Real = 0.1
    activation: Activation = "relu"
    per_iteration: bool = False
    context_weight: NonNegative = 1.0
    target_weight: NonNegative = 1.0
    l2: NonNegative = 0.0
    orthogonality: NonNegative = 0.0
    loss: SquaredErrorConfig | GaussianConfig | CrossEntropyConfig = SquaredErrorConfig()
    initial: ZeroConfig | ConstantConfig | ParametricConfig = ZeroConfig()
    pooling: AttentionConfig | DeepKernelConfig | SquaredExponentialConfig | MeanConfig = AttentionConfig()
    update: MLPUpdateConfig | ClasswiseUpdateConfig | GradientUpdateConfig = MLPUpdateConfig()
    decoder: PredictorWeightsConfig | ConditionedConfig | IdentityConfig | SoftmaxWeightsConfig | LogitsConfig = (
        PredictorWeightsConfig()
    )
    latent: NoLatentConfig | GlobalLatentConfig = NoLatentConfig()

    @property
    def problem(self) -> str:
        return self.loss.problem

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> Learner:
        """`dy` is 0 in classification: no parameter depends on the number of classes."""
        for name in ("update", "decoder", "latent"):
            self._check_problem(name, getattr(self, name))
        sizes = Sizes(dx, dy, self.representation, self.activation)
        if isinstance(self.latent, NoLatentConfig):
            return self._metafun(sizes, sizes, key)
        key_metafun, key_latent = jax.random.split(key)
        # The decoder is given [z, r(x)].
        decoded = dataclasses.replace(sizes, dr=self.latent.size + sizes.dr)
        return StochasticMetaFun(
            metafun=self._metafun(sizes, decoded, key_metafun),
            latent=self.latent.build(sizes, key_latent),
            likelihood=self.loss.build(),
            samples=self.latent.samples,
        )

    def _metafun(self, sizes: Sizes, decoded: Sizes, key: PRNGKeyArray) -> MetaFun:
        key_initial, key_update, key_pool, key_decoder = jax.random.split(key, 4)
        copies = self.iterations if self.per_iteration else min(1, self.iterations)
        return MetaFun(
            initial=self.initial.build(sizes, key_initial),
            update=tuple(self.update.build(sizes, k) for k in jax.random.split(key_update, copies)),
            pool=tuple(self.pooling.build(sizes, k) for k in jax.random.split(key_pool, copies)),
            decode=self.decoder.build(decoded, key_decoder),
            likelihood=self.loss.build(),
            step_size=self.step_size,
            iterations=self.iterations,
            context_weight=self.context_weight,
            target_weight=self.target_weight,
            regularisers=self._regularisers(),
        )

    def _regularisers(self) -> tuple[Regulariser, ...]:
        if self.orthogonality and not isinstance(self.decoder, SoftmaxWeightsConfig):
            raise InvalidConfig("model.orthogonality is a penalty on the decoder 'softmax-weights'; set it to 0.")
        return regularisers(self.l2, self.orthogonality)

    def _check_problem(self, name: str, part: Any) -> None:
        problem = getattr(part, "problem", self.loss.problem)
        if problem != self.loss.problem:
            raise InvalidConfig(
                f"model.{name}.kind = '{part.kind}' is for {problem}, but model.loss.kind = '{self.loss.kind}' "
                f"is for {self.loss.problem}; change one of them."
            )
