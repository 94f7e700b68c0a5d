"""Small models of every kind and random tasks for them."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from metafun.config import Experiment, MetaFunConfig, load_config
from metafun.config.baselines import LEOConfig, LogisticConfig, MAMLConfig, MatchingConfig, PrototypesConfig
from metafun.config.embedding import ColumnsConfig, ConvNetConfig, LinearConfig
from metafun.config.losses import CrossEntropyConfig, GaussianConfig
from metafun.data import Table
from metafun.embeddings.base import Embedded
from metafun.estimators.trained import Trained
from metafun.model.learner import Learner
from metafun.model.task import Task
from metafun.schema import merge, nested, parse

DX, DY, CLASSES = 3, 2, 4

# All contracts run for every pooling in this list, in regression and in classification.
POOLINGS = ("attention", "deep-kernel", "squared-exponential")
WITH_HEADS = ("attention", "deep-kernel")
UPDATES = ("mlp", "gradient")
DECODERS = ("predictor-weights", "conditioned", "concatenated", "identity")
INITIALS = ("zero", "constant", "parametric")


def _variants(combinations) -> list[dict]:
    names = ("pooling", "update", "decoder", "per_iteration", "heads")
    return [dict(zip(names, values, strict=True)) | {"initial": INITIALS[i % 3]} for i, values in combinations]


def _regressors():
    """Every pooling with every decoder: once plain, once with parameters per iteration, once with two heads."""
    for (p, pooling), (d, decoder) in itertools.product(enumerate(POOLINGS), enumerate(DECODERS)):
        turn = (d - p) % 3
        yield pooling, UPDATES[(p + d) % 2], decoder, turn == 1, 2 if turn == 2 and pooling in WITH_HEADS else 1
    yield "mean", "mlp", "conditioned", False, 1


def _classifiers():
    """Every pooling with every update, with and without parameters per iteration; then with two heads."""
    for (p, pooling), (u, update) in itertools.product(enumerate(POOLINGS), enumerate(("classwise", "gradient"))):
        yield pooling, update, ("softmax-weights", "logits")[(p + u) % 2], u == 1, 1
    for pooling in WITH_HEADS:
        yield pooling, "classwise", "softmax-weights", False, 2


VARIANTS = _variants(enumerate(_regressors()))
CLASSIFIERS = _variants(enumerate(_classifiers()))
_DEEP = {"decoder.layers": 2, "decoder.width": 5}
CLASSIFIERS += [CLASSIFIERS[0] | {"update.summary": "sum"}, CLASSIFIERS[0] | _DEEP]
# A λ for each class.
CLASSIFIERS += [v | {"update.classes": CLASSES} for v in CLASSIFIERS if v["update"] == "gradient"][:2]

# With a latent beside updates, and instead of them; in classification one for each class.
STOCHASTIC = [VARIANTS[0] | {"latent": "global", "iterations": iterations} for iterations in (3, 0)]
STOCHASTIC_CLASSIFIERS = [
    CLASSIFIERS[0] | {"latent": "global", "iterations": 3},
    CLASSIFIERS[0] | _DEEP | {"latent": "global", "iterations": 0},
]

# With a similarity term, with learned updates and with gradients that see it.
SIMILAR = [
    CLASSIFIERS[0] | {"decoder": "softmax-weights", "update": "classwise", "similarity": "class-mean"},
    CLASSIFIERS[0] | {"decoder": "softmax-weights", "update": "gradient", "similarity": "class-mean"},
]

# With embedded inputs: the columns of a table, images of 1 × 3 pixels, and a linear map of features.
_COLUMNS = ColumnsConfig(cells=5, about=4, entries=3, size=6, outputs=2)
EMBEDDED = [
    VARIANTS[0] | {"embedding": _COLUMNS},
    CLASSIFIERS[0] | {"embedding": _COLUMNS},
    CLASSIFIERS[0] | {"embedding": ConvNetConfig(blocks=2, channels=4, groups=2)},
    CLASSIFIERS[0] | {"embedding": LinearConfig()},
]

# A process over the columns of a table that is corrected, in regression of two outputs and in classification.
OVER_COLUMNS = [
    VARIANTS[0] | {"decoder": "conditioned", "update": "mlp", "population": "table"},
    CLASSIFIERS[0] | {"decoder": "softmax-weights", "update": "classwise", "population": "table"},
]

# The methods that the paper compares with.
_ADAPTED = dict(width=7, activation="tanh", test_steps=3, steps=2)
BASELINES = [
    MAMLConfig(**_ADAPTED, rate=0.1, loss=GaussianConfig()),
    MAMLConfig(**_ADAPTED, rate=0.1, learn_rates=True, loss=GaussianConfig()),
    MAMLConfig(**_ADAPTED, rate=0.5, learn_rates=True, loss=CrossEntropyConfig(label_smoothing=0.1)),
    PrototypesConfig(width=7, activation="tanh"),
    PrototypesConfig(width=7, activation="tanh", cosine=True),
    MatchingConfig(width=7, activation="tanh", cosine=True),
    LogisticConfig(c=2.0, steps=20),
    LEOConfig(latent=4, latent_steps=2, weight_steps=2, kl=0.1, encoder_penalty=0.1, l2=1e-3, orthogonality=0.1),
]


def name(variant) -> str:
    if isinstance(variant, dict):
        return "-".join(str(getattr(value, "kind", value)) for value in variant.values())
    return f"{variant.kind}{BASELINES.index(variant)}"


def classifies(variant) -> bool:
    if isinstance(variant, dict):
        return variant["decoder"] in ("softmax-weights", "logits")
    return variant.problem == "classification"


def build(variant, seed: int = 0, **changes) -> Learner:
    """A small model with random parameters, even those that training would start from 0 or 1."""
    key = jax.random.key(seed)
    config = parse(MetaFunConfig, _table(variant, changes)) if isinstance(variant, dict) else variant
    dy = 0 if classifies(variant) else DY
    if isinstance(variant, dict) and "embedding" in variant:
        embedding = variant["embedding"].build((DX, dy), (1, DX), key)
        model: Learner = Embedded(embedding, config.build(embedding.size, dy, key))
    else:
        model = config.build(DX, dy, key)
    # By NumPy: JAX would compile a program for every shape.
    rng = np.random.default_rng(seed)
    noisy = lambda leaf: jnp.asarray(np.asarray(leaf) + 0.1 * rng.normal(size=leaf.shape), leaf.dtype)  # noqa: E731
    return jax.tree.map(lambda leaf: noisy(leaf) if eqx.is_array(leaf) else leaf, model)


# Compiled whole: op by op, JAX would compile a program for each operation and shape.
@eqx.filter_jit
def predict(model, context, x):
    return model.predict(model.encode(context), x)


@eqx.filter_jit
def loss(model, task, key=None):
    return model.loss(task, key)


def _table(variant: dict, changes: dict) -> dict:
    representation = {"identity": 2 * DY, "logits": 1}.get(variant["decoder"], 6)
    table = {
        "iterations": variant.get("iterations", 3),
        "representation": representation,
        "step_size": 0.4,
        "activation": "tanh",
        "loss": {"kind": "cross-entropy", "label_smoothing": 0.1} if classifies(variant) else {"kind": "gaussian"},
        "per_iteration": variant["per_iteration"],
        **{part: {"kind": variant[part], **SIZES.get(variant[part], {})} for part in PARTS if part in variant},
        **changes,
    }
    if variant["heads"] > 1:
        table["pooling"] |= {"heads": variant["heads"], "width": 8}
    settings = [nested(key, value) for key, value in variant.items() if "." in key]
    return functools.reduce(merge, settings, table)


PARTS = ("pooling", "update", "decoder", "initial", "latent", "similarity", "population")
_SMALL = {"width": 7, "layers": 2}
SIZES = {
    **dict.fromkeys(("attention", "deep-kernel", "mlp", "classwise"), _SMALL),
    **dict.fromkeys(("predictor-weights", "conditioned", "concatenated"), _SMALL),
    "parametric": _SMALL | {"dropout": 0.5},
    "softmax-weights": {"dropout": 0.5},
    "global": _SMALL | {"size": 3, "samples": 4},
    "table": {"cells": 5, "about": 4, "heads": 2, "features": 2, "rounds": 1, "entries": 5, "size": 6, "mixing": 1},
}


def random_task(variant, seed: int = 0, n: int = 5, m: int = 4) -> Task:
    """A task that the variant can learn; in classification the context has every class of the target."""
    rng = np.random.default_rng(seed)
    x_context, x_target = rng.normal(size=(n, DX)), rng.normal(size=(m, DX))
    if not classifies(variant):
        return Task.of(x_context, rng.normal(size=(n, DY)), x_target, rng.normal(size=(m, DY)))
    labels = rng.integers(CLASSES - 1, size=n)
    one_hot = np.eye(CLASSES)
    return Task.of(x_context, one_hot[labels], x_target, one_hot[rng.choice(labels if n else CLASSES, size=m)])


# Settings that make any sinusoid preset train in seconds.
TINY = [
    "model.iterations=2",
    "model.representation=8",
    "model.pooling.width=8",
    "model.update.width=8",
    "model.update.layers=1",
    "model.decoder.width=8",
    "model.decoder.layers=2",
    "training.steps=60",
    "training.batch=4",
    "training.warmup=5",
    "training.chunk=10",
    "training.validate_every=20",
    "training.validation_tasks=20",
    "evaluation.tasks=40",
    "evaluation.targets=10",
]

# The same for presets of classification.
# The paper's model, without the similarity term, the linear map and the choices of the preset features.
TINY_EPISODES = [
    "model.similarity.kind=none",
    "embedding=none",
    "tasks.choose=false",
    "tasks.val_share=none",
    "training.validate_first=false",
    "model.iterations=2",
    "model.representation=8",
    "model.pooling.width=8",
    "model.update.width=8",
    "model.update.layers=1",
    "tasks.ways=3",
    "tasks.queries=4",
    "training.steps=60",
    "training.batch=4",
    "training.learning_rate=1e-2",
    "training.warmup=5",
    "training.chunk=10",
    "training.validate_every=20",
    "training.validation_tasks=20",
    "evaluation.tasks=40",
]


def clusters(classes=(6, 5, 5), rows: int = 9, dx: int = 12, spread: float = 0.3, name: str = "clusters") -> Table:
    """Classes around random centres: `classes` of them in train, val and test, each of `rows` rows."""
    rng = np.random.default_rng(0)
    total = sum(classes)
    labels = np.repeat([f"class {i}" for i in range(total)], rows)
    centres = np.repeat(rng.normal(size=(total, dx)), rows, axis=0)
    splits = np.repeat(np.repeat(["train", "val", "test"], classes), rows)
    features = (centres + spread * rng.normal(size=centres.shape)).astype(np.float32)
    return Table.of(name, features, labels.tolist(), splits.tolist())


def untrained(preset: str, *settings: str) -> Trained:
    """A model with random parameters, none of them zero."""
    experiment = Experiment(load_config(preset, list(settings)))
    arrays, rest = eqx.partition(experiment.build_model(jax.random.key(0)), eqx.is_array)
    arrays = jax.tree.map(lambda a: a + 0.3 * jnp.cos(1 + jnp.arange(a.size).reshape(a.shape)), arrays)
    return Trained(experiment, eqx.combine(arrays, rest))
