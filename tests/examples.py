"""Small models of every kind and random tasks for them."""

import itertools

import jax
import numpy as np

from metafun.config import MetaFunConfig
from metafun.decoders import Logits, SoftmaxWeights
from metafun.initial import Constant, Parametric, Zero
from metafun.likelihoods import CrossEntropy
from metafun.model import MetaFun
from metafun.nn import MLP
from metafun.pooling import Attention, DeepKernel, SquaredExponential
from metafun.schema import parse
from metafun.task import Task
from metafun.updates import ClasswiseUpdate, GradientUpdate

DX, DY, CLASSES = 3, 2, 4

POOLINGS = ("attention", "deep-kernel", "squared-exponential")
UPDATES = ("mlp", "gradient")
DECODERS = ("predictor-weights", "conditioned", "identity")
INITIALS = ("zero", "constant", "parametric")

# Every pooling × update × decoder, and each pooling with parameters of its own at each iteration; the initial
# representation takes turns.
_COMBINATIONS = [
    *itertools.product(POOLINGS, UPDATES, DECODERS, [False]),
    *itertools.product(POOLINGS, ["mlp"], ["conditioned"], [True]),
]
VARIANTS = [
    dict(pooling=pooling, update=update, decoder=decoder, per_iteration=per_iteration, initial=INITIALS[i % 3])
    for i, (pooling, update, decoder, per_iteration) in enumerate(_COMBINATIONS)
]

# The same for classification, built from the parts themselves.
CLASSIFIERS = [
    dict(pooling=pooling, update=update, decoder=decoder, per_iteration=False, initial=INITIALS[i % 3])
    for i, (pooling, update, decoder) in enumerate(
        itertools.product(POOLINGS, ("classwise", "gradient"), ("softmax-weights", "logits"))
    )
]


def name(variant: dict) -> str:
    return "-".join(str(value) for value in variant.values())


def build(variant: dict, seed: int = 0, **changes) -> MetaFun:
    """A small model with random parameters everywhere, also where training starts from 0 or 1."""
    key, noise = jax.random.split(jax.random.key(seed))
    model = (_classifier if variant in CLASSIFIERS else _regressor)(variant, key, **changes)
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(noise, len(leaves))
    moved = [leaf + 0.1 * jax.random.normal(k, leaf.shape, leaf.dtype) for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


def _regressor(variant: dict, key, **changes) -> MetaFun:
    sizes = {"width": 7, "layers": 2}
    table = {
        "iterations": 3,
        "representation": 2 * DY if variant["decoder"] == "identity" else 6,
        "step_size": 0.4,
        "activation": "tanh",
        "loss": {"kind": "gaussian"},
        "per_iteration": variant["per_iteration"],
        **{
            part: {"kind": variant[part], **(sizes if variant[part] not in WITHOUT_SIZES else {})}
            for part in ("pooling", "update", "decoder", "initial")
        },
        **changes,
    }
    return parse(MetaFunConfig, table).build(DX, DY, key)


def _classifier(variant: dict, key, **changes) -> MetaFun:
    key_a, key_m, key_p, key_n, key_d, key_i = jax.random.split(key, 6)
    dr = 1 if variant["decoder"] == "logits" else 6
    a = MLP([DX, 7, 7], "tanh", key=key_a)
    kernel = SquaredExponential(1.0, 1.0)
    update = ClasswiseUpdate(
        MLP([dr, 5], "tanh", key=key_m), MLP([10, 7, dr], "tanh", key=key_p), MLP([10, 7, dr], "tanh", key=key_n)
    )
    parametric = Parametric(MLP([DX, dr], "tanh", key=key_i), dropout=0.5)
    initial = {"zero": Zero(dr), "constant": Constant(dr), "parametric": parametric}
    parts = dict(
        initial=initial[variant["initial"]],
        pool={"attention": Attention(a), "deep-kernel": DeepKernel(a, kernel), "squared-exponential": kernel}[
            variant["pooling"]
        ],
        update={"classwise": update, "gradient": GradientUpdate(dr)}[variant["update"]],
        decode=SoftmaxWeights(MLP([dr, 2 * DX], "tanh", key=key_d), 0.5) if dr > 1 else Logits(),
        likelihood=CrossEntropy(0.1),
        step_size=0.4,
        iterations=3,
        context_weight=1.0,
        target_weight=1.0,
    )
    return MetaFun(**parts | changes)


WITHOUT_SIZES = ("squared-exponential", "gradient", "identity", "zero", "constant")


def random_task(variant: dict, seed: int = 0, n: int = 5, m: int = 4) -> Task:
    """A task the variant can learn; in classification the targets are of classes that the context shows."""
    rng = np.random.default_rng(seed)
    x_context, x_target = rng.normal(size=(n, DX)), rng.normal(size=(m, DX))
    if variant not in CLASSIFIERS:
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
