"""Every choice and every default: a frozen dataclass per component, each with `build`."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import tomli_w
from jaxtyping import PRNGKeyArray

from .decoders import Conditioned, Decoder, Identity, PredictorWeights
from .errors import InvalidConfig, suggest
from .initial import Constant, Initial, Parametric, Zero
from .likelihoods import Gaussian, Likelihood, SquaredError
from .model import MetaFun
from .nn import MLP
from .pooling import Attention, DeepKernel, Pooling, SquaredExponential
from .schema import Between, merge, parse, to_table
from .tasks import Sinusoid
from .updates import GradientUpdate, MLPUpdate, Update

Count = Annotated[int, Between(1, 2**31 - 1)]
# A file from outside must not make us build a network without end before its shapes can be checked.
Depth = Annotated[int, Between(1, 100)]
Size = Annotated[int, Between(0, 2**31 - 1)]
Seed = Annotated[int, Between(0, 2**32 - 1)]
NonNegative = Annotated[float, Between(0, 1e30)]
Positive = Annotated[float, Between(1e-30, 1e30)]
Share = Annotated[float, Between(0, 1)]
Activation = Literal["relu", "gelu", "silu", "tanh"]


@dataclass(frozen=True)
class Sizes:
    """What the components must agree on: dim(x), dim(y), dim(r) and the activation φ."""

    dx: int
    dy: int
    dr: int
    activation: str

    def mlp(self, i: int, width: int, hidden: int, o: int, key: PRNGKeyArray) -> MLP:
        return MLP([i, *[width] * hidden, o], self.activation, key=key)


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
    dropout: Share = 0.0

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Initial:
        return Parametric(sizes.mlp(sizes.dx, self.width, self.layers, sizes.dr, key), self.dropout)


@dataclass(frozen=True)
class AttentionConfig:
    """`layers` layers in all, the last one linear."""

    kind: Literal["attention"] = "attention"
    width: Count = 128
    layers: Depth = 3

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        return Attention(sizes.mlp(sizes.dx, self.width, self.layers - 1, self.width, key))


@dataclass(frozen=True)
class DeepKernelConfig:
    """`layers` layers in all, the last one linear; σ and ℓ are trainable."""

    kind: Literal["deep-kernel"] = "deep-kernel"
    width: Count = 128
    layers: Depth = 3
    scale: Positive = 1.0
    lengthscale: Positive = 1.0

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Pooling:
        a = sizes.mlp(sizes.dx, self.width, self.layers - 1, self.width, key)
        return DeepKernel(a, SquaredExponential(self.scale, self.lengthscale))


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

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Update:
        return MLPUpdate(sizes.mlp(sizes.dx + sizes.dy + sizes.dr, self.width, self.layers, sizes.dr, key))


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

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        predictor = [sizes.dx, *[self.width] * (self.layers - 1), 2 * sizes.dy]
        return Conditioned(int(self.share * sizes.dr), predictor, sizes.activation, key=key)


@dataclass(frozen=True)
class IdentityConfig:
    kind: Literal["identity"] = "identity"

    def build(self, sizes: Sizes, key: PRNGKeyArray) -> Decoder:
        if sizes.dr != 2 * sizes.dy:
            raise InvalidConfig(
                f"decoder 'identity' predicts r itself, (μ, s): model.representation must be {2 * sizes.dy}, "
                f"not {sizes.dr}."
            )
        return Identity()


@dataclass(frozen=True)
class MetaFunConfig:
    """Defaults are the paper's Table 6."""

    iterations: Depth = 5
    representation: Count = 128
    step_size: Annotated[float, Between(-1e30, 1e30)] = 0.1
    activation: Activation = "relu"
    per_iteration: bool = False
    loss: Literal["squared-error", "gaussian"] = "squared-error"
    min_std: Share = 0.1
    context_weight: NonNegative = 1.0
    target_weight: NonNegative = 1.0
    initial: ZeroConfig | ConstantConfig | ParametricConfig = ZeroConfig()
    pooling: AttentionConfig | DeepKernelConfig | SquaredExponentialConfig = AttentionConfig()
    update: MLPUpdateConfig | GradientUpdateConfig = MLPUpdateConfig()
    decoder: PredictorWeightsConfig | ConditionedConfig | IdentityConfig = PredictorWeightsConfig()

    def build(self, dx: int, dy: int, key: PRNGKeyArray) -> MetaFun:
        sizes = Sizes(dx, dy, self.representation, self.activation)
        key_initial, key_update, key_pool, key_decoder = jax.random.split(key, 4)
        copies = self.iterations if self.per_iteration else 1
        likelihood: Likelihood = {"squared-error": SquaredError, "gaussian": Gaussian}[self.loss](self.min_std)
        return MetaFun(
            initial=self.initial.build(sizes, key_initial),
            update=tuple(self.update.build(sizes, k) for k in jax.random.split(key_update, copies)),
            pool=tuple(self.pooling.build(sizes, k) for k in jax.random.split(key_pool, copies)),
            decode=self.decoder.build(sizes, key_decoder),
            likelihood=likelihood,
            step_size=self.step_size,
            iterations=self.iterations,
            context_weight=self.context_weight,
            target_weight=self.target_weight,
        )


@dataclass(frozen=True)
class SinusoidConfig:
    """n context points, n uniform in `context`, and `targets` targets, at most `points` in all."""

    kind: Literal["sinusoid"] = "sinusoid"
    context: tuple[Size, Size] = (1, 10)
    targets: Count = 10
    points: Count | None = None

    def build(self) -> Sinusoid:
        least, most = self.context
        if least > most:
            raise InvalidConfig(f"tasks.context = [{least}, {most}], but the least comes first.")
        points = self.points if self.points is not None else most + self.targets
        if points <= most:
            raise InvalidConfig(f"tasks.points = {points} leaves no target beside {most} context points.")
        return Sinusoid((least, most), self.targets, points)


@dataclass(frozen=True)
class TrainingConfig:
    """Adam. One seed is one model; all of them train at once."""

    steps: Count = 40_000
    batch: Count = 64
    seeds: tuple[Seed, ...] = (0,)
    learning_rate: NonNegative = 1e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    warmup: Size = 1000
    clip: NonNegative | None = None
    chunk: Count = 200
    validate_every: Count = 2000
    validation_tasks: Count = 1000
    patience: Count | None = None


@dataclass(frozen=True)
class EvaluationConfig:
    """The same test tasks for every model: `tasks` of them for each number of shots, drawn from `seed`."""

    shots: tuple[Size, ...] = (5, 10)
    tasks: Count = 10_000
    targets: Count = 100
    seed: Seed = 2020


@dataclass(frozen=True)
class Config:
    """A whole experiment: what `config.toml` in a run folder holds."""

    model: MetaFunConfig = MetaFunConfig()
    tasks: SinusoidConfig = SinusoidConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    def build_model(self, key: PRNGKeyArray) -> MetaFun:
        tasks = self.tasks.build()
        return self.model.build(tasks.dx, tasks.dy, key)

    def to_toml(self) -> str:
        return tomli_w.dumps(to_table(self))


def presets() -> list[str]:
    """The names of the configurations shipped with the package."""
    return sorted(f.name.removesuffix(".toml") for f in _preset_folder().iterdir() if f.name.endswith(".toml"))


def load_config(source: str, settings: Sequence[str] = ()) -> Config:
    """A preset's name or the path of a TOML file, with `key.path=value` settings laid on top."""
    # Settings are joined first, so that their order does not matter where one of them names another kind.
    joined: dict[str, Any] = {}
    for setting in settings:
        joined = merge(joined, _setting(setting))
    # Laid over the defaults, so that a setting may name a part of a table without its kind.
    return parse_config(merge(merge(to_table(Config()), _table(source)), joined))


def parse_config(table: Mapping[str, Any]) -> Config:
    """A checked configuration: its model and its tasks can be built."""
    config = parse(Config, table)
    config.tasks.build()
    jax.eval_shape(lambda: config.build_model(jax.random.key(0)))
    seeds = config.training.seeds
    if not seeds or len(set(seeds)) < len(seeds):
        raise InvalidConfig(f"training.seeds = {list(seeds)}, but it must name at least one seed, and none twice.")
    if config.training.validate_every % config.training.chunk:
        raise InvalidConfig(
            f"training.validate_every = {config.training.validate_every} must be a multiple of "
            f"training.chunk = {config.training.chunk}: validation happens between chunks."
        )
    return config


def parse_toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidConfig(f"{name} is not valid TOML: {error}.") from None


def _table(source: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """A preset or file as a table; `base` names the preset or file that it builds on."""
    if source in above:
        raise InvalidConfig(f"'{source}' builds on itself: {' → '.join((*above, source))}.")
    if source in presets():
        table = parse_toml((_preset_folder() / f"{source}.toml").read_text("utf-8"), source)
    elif source.endswith(".toml"):
        path = Path(source)
        try:
            table = parse_toml(path.read_text("utf-8"), source)
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConfig(f"cannot read {source}: {error}.") from None
    else:
        raise InvalidConfig(f"unknown preset '{source}'; {suggest(source, presets())} A TOML file ends in .toml.")
    base = table.pop("base", None)
    if base is None:
        return table
    if not isinstance(base, str):
        raise InvalidConfig(f"{source}: base = {base!r}, but it must be the name of a preset or TOML file.")
    return merge(_table(base, (*above, source)), table)


def _setting(setting: str) -> dict[str, Any]:
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise InvalidConfig(f"--set {setting!r} must have the form key=value, for example training.steps=1000.")
    try:
        parsed: Any = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        parsed = {}
    # A bare word is a string: --set model.activation=gelu.
    parsed = parsed["value"] if list(parsed) == ["value"] else value
    for part in reversed(key.strip().split(".")):
        parsed = {part: parsed}
    return parsed


def _preset_folder() -> Any:
    return resources.files("metafun") / "presets"
