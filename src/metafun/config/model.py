"""A whole model, assembled from its parts."""

from dataclasses import dataclass
from typing import Annotated, Literal

import jax
from jaxtyping import PRNGKeyArray

from ..errors import InvalidConfig
from ..model.learner import Learner
from ..model.metafun import MetaFun
from ..model.regularisers import regularisers
from ..schema import Between
from ..values import Activation, NonNegative, Real, Width
from .decoders import (
    ConcatenatedConfig,
    ConditionedConfig,
    IdentityConfig,
    LogitsConfig,
    PredictorWeightsConfig,
    SoftmaxWeightsConfig,
)
from .latents import GlobalLatentConfig, NoLatentConfig
from .losses import CrossEntropyConfig, GaussianConfig, SquaredErrorConfig
from .parts import (
    AttentionConfig,
    ClasswiseUpdateConfig,
    ConstantConfig,
    DeepKernelConfig,
    GradientUpdateConfig,
    MeanConfig,
    MLPUpdateConfig,
    ParametricConfig,
    PartConfig,
    Sizes,
    SquaredExponentialConfig,
    ZeroConfig,
)
from .populations import MixturePopulationConfig, NoPopulationConfig, PopulationConfig, TablePopulationConfig
from .similarities import ClassMeanConfig, NoSimilarityConfig


@dataclass(frozen=True)
class MetaFunConfig:
    """MetaFun; the defaults are the paper's Table 6.

    Args:
        iterations: number of updates T; with 0, the context enters only through the latent.
        representation: length of r(x); in classification, for each class.
        step_size: initial step size α of an update, trainable.
        activation: activation function of all networks.
        per_iteration: whether each iteration has its own update and pooling.
        context_weight: weight of the mean loss of the context points.
        target_weight: weight of the mean loss of the target points.
        l2: weight of the penalty on squared weights.
        orthogonality: weight of the penalty that makes the rows of the decoder 'softmax-weights' orthogonal.
        loss: the loss of a prediction; it also decides between regression and classification.
        initial: the representation before any update, r⁽⁰⁾.
        pooling: the functional pooling, which spreads local updates to other inputs.
        update: the local update u of each context point.
        decoder: the map from r(x) to a prediction.
        latent: a random variable beside r, to draw functions.
        similarity: logits that the decoder's add to, in classification.
        population: the prediction that MetaFun corrects.
    """

    kind: Literal["metafun"] = "metafun"
    iterations: Annotated[int, Between(0, 100)] = 5
    representation: Width = 128
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
    decoder: (
        PredictorWeightsConfig
        | ConditionedConfig
        | ConcatenatedConfig
        | IdentityConfig
        | SoftmaxWeightsConfig
        | LogitsConfig
    ) = PredictorWeightsConfig()
    latent: NoLatentConfig | GlobalLatentConfig = NoLatentConfig()
    similarity: NoSimilarityConfig | ClassMeanConfig = NoSimilarityConfig()

    population: NoPopulationConfig | PopulationConfig | MixturePopulationConfig | TablePopulationConfig = (
        NoPopulationConfig()
    )

    added = {"similarity": NoSimilarityConfig(), "population": NoPopulationConfig()}  # noqa: RUF012

    @property
    def problem(self) -> str:
        return self.loss.problem

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> Learner:
        """A model with random weights.

        Args:
            dx: dim(x).
            dy: dim(y); 0 in classification, where no parameter depends on the number of classes.
            key: source of the initial weights.
        """
        self._check_part("update", self.update)
        self._check_part("decoder", self.decoder)
        self._check_part("similarity", self.similarity)
        if self.orthogonality and not self.decoder.orthogonalisable:
            raise InvalidConfig("model.orthogonality is a penalty on the decoder 'softmax-weights'; set it to 0.")
        sizes = Sizes(dx, dy, self.representation, self.activation)
        self._check_part("population", self.population)
        self.population.check(self.loss.kind, self.update.kind)
        return self.population.build(self._metafun, sizes, self.loss, self.latent, key)

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
            regularisers=regularisers(self.l2, self.orthogonality),
            similarity=self.similarity.build(),
        )

    def _check_part(self, name: str, part: PartConfig) -> None:
        if part.problem not in (None, self.loss.problem):
            raise InvalidConfig(
                f"model.{name}.kind = '{part.kind}' is for {part.problem}, but model.loss.kind = '{self.loss.kind}' "
                f"is for {self.loss.problem}; change one of them."
            )
        if self.latent.size and not part.accepts_latent:
            raise InvalidConfig(
                f"model.{name}.kind = '{part.kind}' works on r alone, but model.latent.kind = '{self.latent.kind}' "
                "adds z to it; change one of them."
            )
