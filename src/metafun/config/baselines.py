"""The methods that the paper compares with. As in MetaFun, no parameter depends on the number of classes."""

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from ..baselines import LEO, MAML, LogisticRegression, Matching, Prototypes
from ..baselines.leo import LatentDecoder
from ..model.nn import MLP
from ..model.regularisers import regularisers
from ..values import Activation, Depth, DepthOrZero, LoopCount, NonNegative, Part, Positive, Width
from .losses import CrossEntropyConfig, GaussianConfig, SquaredErrorConfig


@dataclass(frozen=True)
class MAMLConfig:
    """A network adapted to each task by gradient descent: MAML, or Meta-SGD with `learn_rates`.

    Args:
        width: number of units in each hidden layer.
        layers: number of hidden layers.
        activation: activation function of the hidden layers.
        steps: gradient steps in training.
        test_steps: gradient steps otherwise.
        rate: step size.
        learn_rates: whether each parameter has a trainable step size that starts at `rate`.
        first_order: whether training treats the gradients of the steps as constants.
        loss: the loss of a prediction; it also decides between regression and classification.
    """

    kind: Literal["maml"] = "maml"
    width: Width = 40
    layers: DepthOrZero = 2
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
class ClassifierConfig:
    """A baseline for classification alone."""

    problem = "classification"


@dataclass(frozen=True)
class MetricConfig(ClassifierConfig):
    """Comparison of embedded points.

    Args:
        width: number of units in each layer of the embedding.
        layers: number of layers of the embedding, the last one linear; with 0, inputs themselves are compared.
        activation: activation function of the hidden layers.
        cosine: whether similarity is the cosine instead of the negative squared distance.
        temperature: initial temperature of the softmax; cosines, which lie within ±1, need a small one.
        loss: the loss of a prediction.
    """

    width: Width = 640
    layers: DepthOrZero = 2
    activation: Activation = "relu"
    cosine: bool = False
    temperature: Positive = 1.0
    loss: CrossEntropyConfig = CrossEntropyConfig()

    def parts(self, dx: int, key: PRNGKeyArray) -> dict[str, Any]:
        """The arguments of the learner, for inputs of length `dx`."""
        return {
            "embedding": MLP([dx, *[self.width] * self.layers], self.activation, key=key) if self.layers else None,
            "log_temperature": jnp.log(self.temperature),
            "likelihood": self.loss.build(),
            "cosine": self.cosine,
        }


@dataclass(frozen=True)
class PrototypesConfig(MetricConfig):
    """Prototypical networks: comparison with the mean of each class."""

    kind: Literal["prototypes"] = "prototypes"

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> Prototypes:
        return Prototypes(**self.parts(dx, key))


@dataclass(frozen=True)
class MatchingConfig(MetricConfig):
    """Matching networks: comparison with each point of the context.

    P(y|x) is the mean of their labels, weighted by similarity.
    """

    kind: Literal["matching"] = "matching"

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> Matching:
        return Matching(**self.parts(dx, key))


@dataclass(frozen=True)
class LogisticConfig(ClassifierConfig):
    """Logistic regression on the context.

    Args:
        c: initial inverse strength C of the penalty on the weights, which is trained.
        steps: steps of gradient descent.
        loss: the loss of a prediction.
    """

    kind: Literal["logistic"] = "logistic"
    c: Positive = 1.0
    steps: LoopCount = 100
    loss: CrossEntropyConfig = CrossEntropyConfig()

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> LogisticRegression:
        return LogisticRegression(self.loss.build(), c=self.c, steps=self.steps)


@dataclass(frozen=True)
class LEOConfig(ClassifierConfig):
    """LEO; the default sizes and rates are its authors'.

    Args:
        latent: length of the latent z of each class.
        latent_steps: gradient steps on z.
        weight_steps: gradient steps on the weights that are decoded from z.
        latent_rate: initial step size on z.
        weight_rate: initial step size on the weights.
        dropout: rate of the dropout on x in training.
        kl: β, weight of the divergence of the encoded z from 𝒩(0, 1).
        encoder_penalty: γ, weight of the squared distance between the encoded z and the adapted one.
        l2: weight of the penalty on squared weights.
        orthogonality: weight of the penalty that makes the rows of the decoder orthogonal.
        loss: the loss of a prediction.
    """

    kind: Literal["leo"] = "leo"
    latent: Width = 64
    latent_steps: Depth = 5
    weight_steps: Depth = 5
    latent_rate: Positive = 1.0
    weight_rate: Positive = 0.001
    dropout: Part = 0.3
    kl: NonNegative = 0.0
    encoder_penalty: NonNegative = 0.0
    l2: NonNegative = 0.0
    orthogonality: NonNegative = 0.0
    loss: CrossEntropyConfig = CrossEntropyConfig()

    renamed = {"stay": "encoder_penalty"}  # noqa: RUF012

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
            weight_encoder=self.encoder_penalty,
            regularisers=regularisers(self.l2, self.orthogonality),
        )
