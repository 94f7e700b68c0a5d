"""Bounds on the size of a model, computed from its configuration before anything is built.

A configuration may come from a stranger's file: a few bytes must not fill the memory or compile for minutes.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import jax

from ..errors import InvalidConfig
from ..model import Learner
from ..schema import flatten, to_table
from .config import Config

# Numbers in the arrays of one model, and of all seeds and variants together.
MOST_PARAMETERS, MOST_PARAMETERS_TOGETHER = 2**26, 2**30
# Layers that follow one another, counting those of every iteration: a program is compiled with each of them.
MOST_LAYERS = 1000
# Numbers in the largest array of a training step, or of a test task.
MOST_ACTIVATIONS = 2**34
MOST_VARIANTS = 256
# Kinds of test tasks: a program is compiled for each.
MOST_KINDS = 100
# A factor on all of these.
FACTOR = "METAFUN_LIMIT_FACTOR"

# Settings that repeat the layers of a model, and those that count layers.
_REPEATS = ("iterations", "steps", "test_steps", "latent_steps", "weight_steps")
_LAYERS = ("layers", "blocks")
_MEMBERS = "model.population.members"


def check_settings(config: Config) -> None:
    """InvalidConfig if the model has too many layers, or a training step or a test task too many numbers."""
    models = len(config.training.seeds) * _check_variants(config.vary)
    model, tasks = flatten(to_table(config.model)), flatten(to_table(config.tasks))
    embedding = flatten({} if config.embedding is None else to_table(config.embedding))
    sizes = {**_numbers("model", model), **_numbers("embedding", embedding)}
    deep = {key: value for key, value in sizes.items() if key.endswith(_LAYERS)}
    repeats = {key: value for key, value in _numbers("model", model).items() if key.split(".")[-1] in _REPEATS}
    if config.model.kind == "logistic":
        repeats = {}  # a loop that is compiled once
    layers = sum(deep.values()) * max([1, *repeats.values()])
    _refuse_beyond(MOST_LAYERS, layers, "layers, counting every iteration", {**deep, **repeats})

    points = _points(tasks)
    widest = max(1, *(n for key, n in sizes.items() if key not in repeats and key not in deep and key != _MEMBERS))
    # The members of an ensemble predict side by side.
    models *= max(1, sizes.get(_MEMBERS, 1))
    numbers = config.training.batch * models * widest * math.prod(points.values())
    named = {**sizes, "training.batch": config.training.batch, **{f"tasks.{key}": n for key, n in points.items()}}
    _refuse_beyond(MOST_ACTIVATIONS, numbers, "numbers in a training step", named)
    kinds = {key: len(getattr(config.evaluation, key) or (0,)) for key in ("shots", "ways")}
    named = {f"evaluation.{key}": count for key, count in kinds.items()}
    _refuse_beyond(MOST_KINDS, math.prod(kinds.values()), "kinds of test tasks", named)
    test_points = {f"evaluation.{key}": n for key, n in _points(vars(config.evaluation)).items()}
    numbers = models * widest * math.prod(test_points.values())
    _refuse_beyond(MOST_ACTIVATIONS, numbers, "numbers in a test task", {**sizes, **test_points})


def check_parameters(config: Config, blank: Learner) -> None:
    """InvalidConfig if the arrays of the models are too large together.

    Args:
        config: the settings of the model.
        blank: its structure, with shapes in place of arrays.
    """
    parameters = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(blank) if hasattr(leaf, "shape"))
    sizes = _numbers("model", flatten(to_table(config.model)))
    if config.embedding is not None:
        sizes |= _numbers("embedding", flatten(to_table(config.embedding)))
    sizes |= _numbers("tasks", flatten(to_table(config.tasks)))
    _refuse_beyond(MOST_PARAMETERS, parameters, "parameters in a model", sizes)
    models = len(config.training.seeds) * len(next(iter((config.vary or {"": (0.0,)}).values())))
    _refuse_beyond(MOST_PARAMETERS_TOGETHER, models * parameters, "parameters in all models", {"models": models})


def _check_variants(vary: Mapping[str, Any] | None) -> int:
    variants = max((len(values) for values in (vary or {}).values()), default=1)
    _refuse_beyond(MOST_VARIANTS, variants, "variants", {f"vary.{key}": len(v) for key, v in (vary or {}).items()})
    return max(1, variants)


def _points(tasks: Mapping[str, Any]) -> dict[str, int]:
    """The settings whose product bounds the number of points of a task."""
    known = ("ways", "shots", "queries", "targets", "points", "context")
    largest = {key: max(v) if isinstance(v, tuple) and v else v for key, v in tasks.items() if key in known}
    return {key: value for key, value in largest.items() if type(value) is int and value > 0}


def _numbers(where: str, table: Mapping[str, Any]) -> dict[str, int]:
    return {f"{where}.{key}": value for key, value in table.items() if type(value) is int}


def _refuse_beyond(most: int, found: int, what: str, settings: Mapping[str, int]) -> None:
    """Names the largest of `settings`, which is the likeliest mistake."""
    most = int(most * factor())
    if found > most:
        key = max(settings, key=lambda name: settings[name])
        raise InvalidConfig(
            f"{key} = {settings[key]:,} gives {found:.3g} {what}, more than {most:,}; choose a smaller one. If it is "
            f"meant, set the environment variable {FACTOR} to {math.ceil(found / most * factor())}."
        )


def factor() -> float:
    """By how much the user allows more than the bounds; InvalidConfig if it is no positive number."""
    text = os.environ.get(FACTOR, "1")
    try:
        if 0 < (number := float(text)) < math.inf:
            return number
    except ValueError:
        pass
    raise InvalidConfig(f"{FACTOR} = {text!r}, but it must be a positive number.")
