"""What the paper compares with. As in MetaFun, no parameter depends on the number of classes."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..baselines import LEO, MAML, LogisticRegression, Matching, Prototypes
from ..baselines.leo import LatentDecoder
from ..model.nn import MLP
from ..model.regularisers import regularisers
from ..values import Activation, Count, Depth, NonNegative, Part, Positive, Size
from .losses import CrossEntropyConfig, GaussianConfig, SquaredErrorConfig


@dataclass(frozen=True)
class MAMLConfig:
    """A network with `layers` hidden layers, adapted by `steps` gradient steps in training, `test_steps` otherwise.

    With `learn_rates`, each parameter has a rate of its own: Meta-SGD.
    """

    kind: Literal["maml"] = "maml"
    width: Count = 40
    layers: Size = 2
    activation: Activation = "relu"
    steps: Depth = 1
    test_steps: Depth = 10
    rate: Positive = 0.01
    learn_rates: bool = False
    first_order: bool = False
    loss: SquaredErrorConfig | GaussianConfig | CrossEntropyConfig = SquaredErrorConfig()

    @property
    def problem(self) -> str:
        return self.loss.problem

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> MAML:
        """In classification `dy` is 0, and the last layer has one column, from which each class starts."""
        outputs = {"squared-error": dy, "gaussian": 2 * dy, "cross-entropy": 1}[self.loss.kind]
        return MAML(
            MLP([dx, *[self.width] * self.layers, outputs], self.activation, key=key),
            self.loss.build(),
            rate=self.rate,
            learn_rates=self.learn_rates,
            steps=self.steps,
            test_steps=self.test_steps,
            first_order=self.first_order,
        )


@dataclass(frozen=True)
class MetricConfig:
    """An embedding of `layers` layers, the last one linear; with none, inputs are compared as they are.

    The `temperature` is trained from this value on; cosines, which lie within ±1, need a small one.
    """

    width: Count = 640
    layers: Size = 2
    activation: Activation = "relu"
    cosine: bool = False
    temperature: Positive = 1.0
    loss: CrossEntropyConfig = CrossEntropyConfig()

    problem = "classification"

    def parts(self, dx: int, key: PRNGKeyArray) -> dict[str, Any]:
        return {
            "embedding": MLP([dx, *[self.width] * self.layers], self.activation, key=key) if self.layers else None,
            "log_temperature": jnp.log(self.temperature),
            "likelihood": self.loss.build(),
            "cosine": self.cosine,
        }


@dataclass(frozen=True)
class PrototypesConfig(MetricConfig):
    kind: Literal["prototypes"] = "prototypes"

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> Prototypes:
        return Prototypes(**self.parts(dx, key))


@dataclass(frozen=True)
class MatchingConfig(MetricConfig):
    kind: Literal["matching"] = "matching"

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> Matching:
        return Matching(**self.parts(dx, key))


@dataclass(frozen=True)
class LogisticConfig:
    """`c` is where the trained C begins: the larger, the less the weights are held back."""

    kind: Literal["logistic"] = "logistic"
    c: Positive = 1.0
    steps: Count = 100
    loss: CrossEntropyConfig = CrossEntropyConfig()

    problem = "classification"

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> LogisticRegression:
        return LogisticRegression(self.loss.build(), c=self.c, steps=self.steps)


@dataclass(frozen=True)
class LEOConfig:
    """Sizes and rates are its authors'. `kl` and `stay` are the weights β and γ of its loss."""

    kind: Literal["leo"] = "leo"
    latent: Count = 64
    latent_steps: Depth = 5
    weight_steps: Depth = 5
    latent_rate: Positive = 1.0
    weight_rate: Positive = 0.001
    dropout: Part = 0.3
    kl: NonNegative = 0.0
    stay: NonNegative = 0.0
    l2: NonNegative = 0.0
    orthogonality: NonNegative = 0.0
    loss: CrossEntropyConfig = CrossEntropyConfig()

    problem = "classification"

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> LEO:
        keys, two = jax.random.split(key, 3), 2 * self.latent
        return LEO(
            encoder=MLP([dx, self.latent], "relu", bias=False, key=keys[0]),
            relation=MLP([two, two, two, two], "relu", bias=False, key=keys[1]),
            decode=LatentDecoder(MLP([self.latent, 2 * dx], "relu", bias=False, key=keys[2])),
            latent_rate=jnp.full(self.latent, self.latent_rate),
            weight_rate=jnp.full(dx, self.weight_rate),
            likelihood=self.loss.build(),
            latent_steps=self.latent_steps,
            weight_steps=self.weight_steps,
            dropout=self.dropout,
            weight_kl=self.kl,
            weight_stay=self.stay,
            regularisers=regularisers(self.l2, self.orthogonality),
        )
