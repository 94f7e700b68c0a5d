"""Benchmark of speed: the paper's regression model (Table 1), beside the same model in PyTorch and beside a peer."""

import importlib.util
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ..config import Config, Experiment, load_config, resolve
from ..errors import InvalidConfig, suggest
from ..model.likelihoods import Prediction
from ..model.metafun import MetaFun
from ..model.task import Points
from ..training.measure import origin
from ..training.trainer import Trainer
from .speed_results import COST, PREDICTION, TRAINING, SpeedCell

PRESET = "sinusoid-paper"
METAFUN, METAFUN_FIVE = "MetaFun", "MetaFun, 5 seeds"
TORCH, TORCH_COMPILED, PEER = "PyTorch", "PyTorch, compiled", "neuralprocesses"
# The package of each method that is not ours.
PACKAGES = {TORCH: "torch", TORCH_COMPILED: "torch", PEER: "neuralprocesses"}
METHODS = (METAFUN, METAFUN_FIVE, *PACKAGES)
# Prediction: so many targets from a context of so many points.
TARGETS, CONTEXT = 100_000, 100
# Cost: the values of one size, while the others have their first value; iterations are those of the preset.
BASE = {"context": 100, "targets": 100, "iterations": 5, "tasks": 1}
COSTS: dict[str, tuple[int, ...]] = {
    "context": (10, 100, 1_000, 10_000),
    "targets": (10, 100, 1_000, 10_000, 100_000),
    "iterations": (1, 2, 5, 10, 20),
    "tasks": (1, 10, 100, 1_000),
}


class Timed(Protocol):
    """Something that is timed again and again."""

    units: int

    def __call__(self) -> object:
        """Does `units` units of work (training steps, predictions) and waits for the device."""


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Args:
        rounds: the methods take turns so many times, so that all of them see the same machine; medians count.
        steps: training steps of a method in a round.
        targets: targets of a prediction.
        largest: sizes above this one are left out of the costs.
    """

    rounds: int = 5
    steps: int = 500
    targets: int = TARGETS
    largest: int = 100_000


def check_methods(names: Sequence[str]) -> list[str]:
    """The names, or all that are installed; InvalidConfig if one is not known or not installed."""
    for name in names:
        if name not in METHODS:
            raise InvalidConfig(f"method '{name}' is not known; {suggest(name, METHODS)}")
        if not _is_installed(name):
            raise InvalidConfig(f"method '{name}' needs a package: pip install {PACKAGES[name]}")
    return list(names) or [name for name in METHODS if _is_installed(name)]


def _is_installed(method: str) -> bool:
    return method not in PACKAGES or importlib.util.find_spec(PACKAGES[method]) is not None


def measure(methods: Sequence[str], effort: Effort, beside: int | None) -> Iterator[SpeedCell]:
    """Training, then prediction, each method beside the others; then what MetaFun costs by size.

    Args:
        methods: names.
        effort: how long to measure.
        beside: other processes that share the machine, for the record.
    """
    sizes = {"tasks": experiment().training.batch}
    training = {name: _training(name, effort.steps) for name in methods}
    yield from _cells(TRAINING, sizes, _alternate(training, effort.rounds), effort, beside)
    sizes = {"context": CONTEXT, "targets": effort.targets}
    prediction = {n: make for n in methods if (make := _prediction(n, CONTEXT, effort.targets)) is not None}
    yield from _cells(PREDICTION, sizes, _alternate(prediction, effort.rounds), effort, beside)
    if METAFUN in methods:
        for axis, values in COSTS.items():
            for value in (v for v in values if v <= effort.largest):
                sizes = BASE | {axis: value}
                found = _alternate({METAFUN: partial(Encoding, sizes)}, effort.rounds)
                yield from _cells(COST, sizes, found, effort, beside, axis)


@dataclass(frozen=True)
class Times:
    """Seconds of one unit: the median over the rounds, and the first call with all that it compiles."""

    seconds: float
    first: float


def _alternate(makers: Mapping[str, Callable[[], Timed]], rounds: int) -> dict[str, Times]:
    """The times of each method; the methods take turns.

    Args:
        makers: builds what is timed, by name.
        rounds: number of turns.
    """
    ready, first = {}, {}
    for name, make in makers.items():
        start = time.perf_counter()
        ready[name] = make()
        ready[name]()
        first[name] = time.perf_counter() - start
    seconds: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(rounds):
        for name, run in ready.items():
            start = time.perf_counter()
            run()
            seconds[name].append((time.perf_counter() - start) / run.units)
    return {name: Times(float(np.median(seconds[name])), first[name]) for name in makers}


def _cells(
    what: str,
    sizes: Mapping[str, int],
    found: Mapping[str, Times],
    effort: Effort,
    beside: int | None,
    axis: str = "",
) -> list[SpeedCell]:
    words = ["metafun", "bench", "speed", "--rounds", str(effort.rounds), "--steps", str(effort.steps)]
    words += ["--targets", str(effort.targets), "--largest", str(effort.largest)]
    words += [] if beside is None else ["--beside", str(beside)]
    return [
        SpeedCell(
            what=what,
            method=name,
            sizes=dict(sizes),
            seconds=times.seconds,
            first_seconds=round(times.first, 3),
            command=shlex.join(words),
            beside=beside,
            axis=axis,
            **origin(),
        )
        for name, times in found.items()
    ]


def _training(method: str, steps: int) -> Callable[[], Timed]:
    def make() -> Timed:
        if method in (METAFUN, METAFUN_FIVE):
            return Training(5 if method == METAFUN_FIVE else 1, steps)
        from . import speed_torch  # torch is optional

        if method == PEER:
            return speed_torch.PeerTraining(experiment(), steps)
        return speed_torch.TwinTraining(experiment(), model(), steps, is_compiled=method == TORCH_COMPILED)

    return make


def _prediction(method: str, context: int, targets: int) -> Callable[[], Timed] | None:
    """Several seeds predict no faster than one, and the peer is another model: they are trained only."""

    def make() -> Timed:
        x, y, at = points(context, targets)
        if method == METAFUN:
            return Predicting(x, y, at)
        from . import speed_torch

        return speed_torch.TwinPrediction(model(), x, y, at, is_compiled=method == TORCH_COMPILED)

    return make if method in (METAFUN, TORCH, TORCH_COMPILED) else None


def points(context: int, targets: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x and y of a context, and the x of targets."""
    rng = np.random.default_rng(0)
    x, at = (rng.uniform(-5, 5, (size, 1)).astype(np.float32) for size in (context, targets))
    return x, np.sin(x), at


def model(iterations: int | None = None) -> MetaFun:
    """The paper's model, untrained; its speed does not depend on its parameters."""
    changes = () if iterations is None else (f"model.iterations={iterations}",)
    built = experiment(*changes).build_model(jax.random.key(0))
    assert isinstance(built, MetaFun)
    return built


def experiment(*changes: str) -> Experiment:
    """The preset with changes."""
    return resolve(load_config(PRESET, changes))


class Training:
    """Our training loop; validation and compilation are not part of a chunk.

    Args:
        seeds: models that train at once.
        steps: steps of a chunk.
    """

    def __init__(self, seeds: int, steps: int):
        config: Config = load_config(PRESET, [f"training.chunk={steps}", "training.validate_every=0"])
        training = replace(config.training, seeds=tuple(range(seeds)), steps=10**9)
        trainer = Trainer(Experiment(replace(config, training=training)))
        self._chunks, self.units = trainer.run(trainer.start()), steps

    def __call__(self) -> object:
        return next(self._chunks)


class Predicting:
    """Targets of a task that is encoded once."""

    units = 1

    def __init__(self, x: np.ndarray, y: np.ndarray, at: np.ndarray):
        learner = model()
        self._representation = eqx.filter_jit(learner.encode)(Points(*map(jnp.asarray, (x, y, np.ones(len(x), bool)))))
        self._learner, self._at = learner, jnp.asarray(at)
        self._predict = eqx.filter_jit(lambda learner, r, at: learner.predict(r, at))

    def __call__(self) -> object:
        return jax.block_until_ready(self._predict(self._learner, self._representation, self._at))


class Encoding:
    """Encoding of a context and prediction of its targets, for several tasks at once.

    Args:
        sizes: of the axes of `COSTS`.
    """

    units = 1

    def __init__(self, sizes: Mapping[str, int]):
        x, y, at = points(sizes["context"], sizes["targets"])
        self._learner = model(sizes["iterations"])
        self._x, self._y, self._at = (jnp.broadcast_to(a, (sizes["tasks"], *a.shape)) for a in (x, y, at))

        def predict(learner: MetaFun, x: jax.Array, y: jax.Array, at: jax.Array) -> Prediction:
            return learner.predict(learner.encode(Points(x, y, jnp.ones(len(x), bool))), at)

        self._predict = eqx.filter_jit(eqx.filter_vmap(predict, in_axes=(None, 0, 0, 0)))

    def __call__(self) -> object:
        return jax.block_until_ready(self._predict(self._learner, self._x, self._y, self._at))
