"""A training session: validation, the best model so far, patience, divergence, and checkpoints to resume from."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..config import Experiment
from ..errors import Diverged, InvalidCheckpoint, InvalidConfig, InvalidRun
from ..model import Learner
from ..schema import parse
from ..values import NonNegative, Size
from . import checkpoint
from .checkpoint import Checkpoint
from .devices import same_everywhere
from .evaluation import Validation
from .run_folder import LENGTH, RunFolder, differing
from .stability import REMEDY
from .trainer import State, Trainer, ravel

# A checkpoint is written this often, and when training ends.
SECONDS_BETWEEN_CHECKPOINTS = 5.0


@dataclass(frozen=True)
class SessionRecord:
    """How far training has come, as the header of a checkpoint holds it. One entry for each model.

    Args:
        step: steps done.
        seconds: time spent in training, over all sessions.
        best_error: validation error of each model's kept parameters, which is the least, or the latest where
            training.keep = 'last'; empty before the first validation.
        best_step: its step.
        stopped_early: whether patience ran out.
        first_error: validation error of each untrained model, where training.validate_first is set.
        started_from: the checkpoint whose parameters training started from, and the hash of its file.
        extended: steps from which training went on with another length (`LENGTH` in `run_folder`).
    """

    step: Size = 0
    seconds: NonNegative = 0.0
    best_error: tuple[float, ...] = ()
    best_step: tuple[Size, ...] = ()
    stopped_early: bool = False
    first_error: tuple[float, ...] = ()
    started_from: str = ""
    extended: tuple[Size, ...] = ()

    @classmethod
    def of(cls, opened: Checkpoint) -> "SessionRecord":
        """The record of a checkpoint that a session wrote."""
        try:
            return parse(cls, opened.record)
        except InvalidConfig as error:
            raise InvalidCheckpoint(f"{opened.path} has a damaged header: {error}") from None


@dataclass(frozen=True)
class ChunkMetrics:
    """What happened in one chunk of steps.

    Args:
        record: how far training has come.
        loss: mean training loss of each model over the chunk.
        validation: validation error of each model, where the chunk ended with a validation.
        tasks_per_second: training tasks of all models per second.
        broke_away: step at which the loss of each model broke away, or None.
        metrics: means over the validation tasks by name (`SHOWN` in `evaluation`), where the chunk ended with one.
    """

    record: SessionRecord
    loss: tuple[float, ...]
    validation: tuple[float, ...] | None
    tasks_per_second: float
    broke_away: tuple[int | None, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Start:
    """A trained model whose parameters are those that a new run starts from.

    Args:
        model: the model.
        source: its checkpoint, in words.
    """

    model: Learner
    source: str

    def check(self, experiment: Experiment) -> None:
        """InvalidConfig unless the models of an experiment have parameters of the same names and shapes."""
        blank = experiment.variants[0].blank_model()
        try:
            checkpoint.check_shapes("model", blank, checkpoint.arrays("model", self.model), self.source)
        except InvalidCheckpoint:
            raise InvalidConfig(
                f"training cannot start from {self.source}: its parameters have other names or shapes. Choose the "
                "preset and the settings of that model."
            ) from None


@dataclass(frozen=True)
class SessionState:
    """A moment of training, as a checkpoint holds it."""

    state: State
    best: Float[Array, "s p"]
    record: SessionRecord


class TrainingSession:
    """Trains in a run folder, from its checkpoint or from the start.

    Args:
        folder: where metrics and checkpoints go.
    """

    def __init__(self, folder: RunFolder):
        self.folder, self.experiment = folder, folder.experiment

    def start_from(self, start: Start) -> None:
        """Saves a checkpoint at step 0, from which `run` continues.

        Args:
            start: the parameters of every seed and variant.
        """
        with self.folder.lock():
            trainer = Trainer(self.experiment)
            state = trainer.start(start.model)
            self._save(trainer, SessionState(state, state.parameters, SessionRecord(started_from=start.source)))

    def run(self) -> Iterator[ChunkMetrics]:
        """Trains to the end; yields after every chunk. Closing the generator saves a checkpoint."""
        with self.folder.lock():
            trainer = Trainer(self.experiment)
            now = self._restore(trainer)
            if not same_everywhere(now.record.step):
                raise InvalidRun(
                    f"{self.folder.path}: the processes stopped at different steps; copy the folder of one to all."
                )
            validation, stability = self._validation(trainer, now), self.folder.stability()
            saved, saved_at = now.record.step, time.monotonic()
            began = time.monotonic() - now.record.seconds
            now = self._validated_first(trainer, validation, now)
            chunks = iter(()) if now.record.stopped_early else trainer.run(now.state)
            try:
                for state, losses in chunks:
                    now, metrics = self._advance(trainer, validation, now, state, losses, began)
                    stability.watch(state.step, metrics.loss)
                    metrics = replace(metrics, broke_away=tuple(stability.steps))
                    self._log(metrics)
                    if time.monotonic() - saved_at > SECONDS_BETWEEN_CHECKPOINTS:
                        self._save(trainer, now)
                        saved, saved_at = state.step, time.monotonic()
                    yield metrics
                    if now.record.stopped_early:
                        break
            finally:
                # Also on Ctrl-C and on divergence: `now` is always complete and finite.
                if now.record.step > saved or not self.experiment.training.end:
                    self._save(trainer, now)

    def _validation(self, trainer: Trainer, now: SessionState) -> Validation | None:
        training, record = self.experiment.training, now.record
        if not training.validate_every or record.stopped_early or record.step >= training.end:
            return None
        return Validation(trainer.models(now.best), self.experiment)

    def _validated_first(self, trainer: Trainer, validation: Validation | None, now: SessionState) -> SessionState:
        """The session with the untrained models compared too, if that is asked for."""
        if not self.experiment.training.validate_first or validation is None or now.record.best_error:
            return now
        errors = validation(trainer.models(now.best))
        best, record = self._compare(0, now.best, now.best, now.record, errors)
        unknown = [None] * len(errors)
        self.folder.append_metrics({"step": 0, "seconds": 0.0, "loss": unknown, "validation": _as_json(errors)})
        return SessionState(now.state, best, replace(record, first_error=tuple(errors)))

    def _advance(
        self,
        trainer: Trainer,
        validation: Validation | None,
        old: SessionState,
        state: State,
        losses: Float[np.ndarray, "steps s"],
        began: float,
    ) -> tuple[SessionState, ChunkMetrics]:
        """The session after a new chunk; `old` stays valid until this returns."""
        training = self.experiment.training
        finite = np.isfinite(losses).all(0) & np.asarray(jnp.isfinite(state.parameters).all(1))
        # A variant that diverges has merely lost against the others.
        if not (finite.any() if self.experiment.config.vary else finite.all()):
            raise self._diverged(old.record.step, losses)
        rate = losses.size * training.batch / (time.monotonic() - began - old.record.seconds)
        record = replace(old.record, step=state.step)
        latest, errors = trainer.trained(state), None
        best = old.best if record.best_error else latest
        if validation is not None and (state.step % training.validate_every == 0 or state.step == training.end):
            errors = validation(trainer.models(latest))
            best, record = self._compare(state.step, latest, best, record, errors)
        record = replace(record, seconds=time.monotonic() - began)
        shown = {} if validation is None or errors is None else validation.metrics
        loss = tuple(losses.mean(0).tolist())
        return SessionState(state, best, record), ChunkMetrics(record, loss, errors, rate, metrics=shown)

    def _compare(
        self, step: int, latest: Array, best: Array, record: SessionRecord, validation: tuple[float, ...]
    ) -> tuple[Array, SessionRecord]:
        """Keeps each model's best parameters, or the latest; stops after `patience` validations without a better one.

        Ties go to the newer model, which is usually better calibrated.
        """
        old_error, old_step = record.best_error or np.inf, record.best_step or 0
        training = self.experiment.training
        better = (np.asarray(validation) <= old_error) | (training.keep == "last")
        best = jnp.where(better[:, None], latest, best)
        best_error = tuple(np.where(better, validation, old_error).tolist())
        best_step = tuple(np.where(better, step, old_step).tolist())
        patience = training.patience
        stop = patience is not None and step - max(best_step) >= patience * training.validate_every
        return best, replace(record, best_error=best_error, best_step=best_step, stopped_early=stop)

    def _restore(self, trainer: Trainer) -> SessionState:
        is_new = not self.folder.checkpoint_file.exists()
        start = trainer.start(is_new=is_new)
        if is_new:
            self.folder.rewind_metrics(-1)
            return SessionState(start, start.parameters, SessionRecord())
        opened = Checkpoint(self.folder.checkpoint_file)
        record = read_record(self.folder, opened)
        if opened.experiment != self.experiment:
            record = replace(record, stopped_early=False, extended=(*record.extended, record.step))
        optimiser = opened.group("optimiser", start.optimiser)
        like = jax.eval_shape(trainer.arrays, start.parameters)
        last, best = (jax.vmap(ravel)(opened.group(name, like)) for name in ("last", "best"))
        self.folder.rewind_metrics(record.step)
        return SessionState(State(last, optimiser, record.step), best, record)

    def _save(self, trainer: Trainer, now: SessionState) -> None:
        groups = {
            "last": trainer.arrays(now.state.parameters),
            "best": trainer.arrays(now.best),
            "optimiser": now.state.optimiser,
        }
        checkpoint.save(self.folder.checkpoint_file, self.experiment, groups, asdict(now.record))

    def _diverged(self, step: int, losses: Float[np.ndarray, "steps s"]) -> Diverged:
        what = f"parameters became NaN or infinite by step {step + len(losses)}"
        if not np.isfinite(losses).all():
            i, s = np.argwhere(~np.isfinite(losses))[0]
            seeds = self.experiment.training.seeds
            what = f"the loss of seed {seeds[s % len(seeds)]} became {losses[i, s]} at step {step + i + 1}"
        return Diverged(f"{what}; the run is kept as of step {step}. {REMEDY}")

    def _log(self, metrics: ChunkMetrics) -> None:
        record = metrics.record
        entry = {"step": record.step, "seconds": record.seconds, "loss": _as_json(metrics.loss)}
        if metrics.validation is not None:
            entry["validation"] = _as_json(metrics.validation)
        if any(metrics.broke_away):
            entry["broke_away"] = list(metrics.broke_away)
        self.folder.append_metrics(entry)


def read_record(folder: RunFolder, opened: Checkpoint) -> SessionRecord:
    """The record of the folder's checkpoint; InvalidRun if more than the length was edited in config.toml since."""
    if set(differing(opened.experiment, folder.experiment)) - set(LENGTH):
        raise InvalidRun(f"{folder.path}: config.toml is not the configuration of the checkpoint; restore it.")
    return SessionRecord.of(opened)


def best_variant(opened: Checkpoint) -> int:
    """The variant with the least validation error, mean over its seeds; the first before any validation."""
    variants = len(opened.experiment.variants)
    if variants == 1 or not (errors := SessionRecord.of(opened).best_error):
        return 0
    try:
        return int(np.reshape(errors, (variants, -1)).mean(1).argmin())
    except ValueError:
        raise InvalidCheckpoint(f"{opened.path} has a damaged header: best_error = {errors!r}.") from None


def load_models(path: str | Path, group: str = "best") -> Learner:
    """The trained models of all seeds as one, with a leading axis in every array; of variants, the best.

    Args:
        path: a checkpoint.
        group: `best` on validation, or `last`.
    """
    opened = Checkpoint(Path(path))
    return opened.models(best_variant(opened), group)


def load_model(path: str | Path, seed: int | None = None, group: str = "best") -> Learner:
    """One trained model: that of `seed`, or of the first seed. `path` and `group` as in `load_models`."""
    opened = Checkpoint(Path(path))
    return opened.model(best_variant(opened), seed, group)


def _as_json(values: tuple[float, ...]) -> list[float | None]:
    """JSON cannot hold infinity and NaN."""
    return [value if np.isfinite(value) else None for value in values]
