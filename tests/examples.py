"""Small models of every kind and random tasks for them."""

import itertools

import jax
import numpy as np

from metafun.config import MetaFunConfig
from metafun.model import MetaFun
from metafun.schema import parse
from metafun.task import Task

DX, DY = 3, 2

POOLINGS = ("attention", "deep-kernel", "squared-exponential")
UPDATES = ("mlp", "gradient")
DECODERS = ("predictor-weights", "conditioned", "identity")
INITIALS = ("zero", "constant", "parametric")

# Every pooling × update × decoder, and each pooling × update with parameters of its own at each iteration; the
# initial representation takes turns.
_COMBINATIONS = [
    *itertools.product(POOLINGS, UPDATES, DECODERS, [False]),
    *itertools.product(POOLINGS, UPDATES, ["conditioned"], [True]),
]
VARIANTS = [
    dict(pooling=pooling, update=update, decoder=decoder, per_iteration=per_iteration, initial=INITIALS[i % 3])
    for i, (pooling, update, decoder, per_iteration) in enumerate(_COMBINATIONS)
]


def name(variant: dict) -> str:
    return "-".join(str(value) for value in variant.values())


def build(variant: dict, seed: int = 0, **changes) -> MetaFun:
    """A small model with random parameters everywhere, also where training starts from 0 or 1."""
    sizes = {"width": 7, "layers": 2}
    table = {
        "iterations": 3,
        "representation": 2 * DY if variant["decoder"] == "identity" else 6,
        "step_size": 0.4,
        "activation": "tanh",
        "loss": "gaussian",
        "per_iteration": variant["per_iteration"],
        **{
            part: {"kind": variant[part], **(sizes if variant[part] not in WITHOUT_SIZES else {})}
            for part in ("pooling", "update", "decoder", "initial")
        },
        **changes,
    }
    key, noise = jax.random.split(jax.random.key(seed))
    model = parse(MetaFunConfig, table).build(DX, DY, key)
    leaves, structure = jax.tree.flatten(model)
    keys = jax.random.split(noise, len(leaves))
    moved = [leaf + 0.1 * jax.random.normal(k, leaf.shape, leaf.dtype) for leaf, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(structure, moved)


WITHOUT_SIZES = ("squared-exponential", "gradient", "identity", "zero", "constant")


def random_task(seed: int = 0, n: int = 5, m: int = 4) -> Task:
    rng = np.random.default_rng(seed)
    return Task.of(*(rng.normal(size=shape) for shape in ((n, DX), (n, DY), (m, DX), (m, DY))))


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
