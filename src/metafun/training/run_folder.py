"""A run folder (config.toml, metrics.jsonl, checkpoint.safetensors) whose training can stop at any moment."""

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..config import Config, load_config
from ..errors import Diverged, InvalidCheckpoint, InvalidConfig, InvalidRun
from ..files import locked, write_atomically
from ..model.learner import Learner
from ..schema import parse
from . import checkpoint
from .devices import same_everywhere
from .evaluation import Validation
from .trainer import State, Trainer, ravel

# A checkpoint is written when training has gone on for this long, and whenever it ends.
SECONDS_BETWEEN_CHECKPOINTS = 5.0

FILES = (
    "checkpoint.safetensors",
    "metrics.jsonl",
    "evaluation.json",
    "summary.json",
    "updates.png",
    "curves.png",
    "samples.png",
    "training.png",
    "episodes.png",
    "reliability.png",
)


@dataclass(frozen=True)
class SessionRecord:
    """What a run knows of itself besides its parameters; nothing is best before the first validation."""

    step: int = 0
    seconds: float = 0.0
    best_error: tuple[float, ...] = ()
    best_step: tuple[int, ...] = ()
    stopped_early: bool = False


@dataclass(frozen=True)
class ChunkMetrics:
    """What happened in one chunk."""

    record: SessionRecord
    loss: tuple[float, ...]
    validation: tuple[float, ...] | None
    tasks_per_second: float


@dataclass(frozen=True)
class SessionState:
    """A moment of training, whole: what a checkpoint holds."""

    state: State
    best: Float[Array, "s p"]
    record: SessionRecord


class Run:
    """One run folder."""

    def __init__(self, path: Path):
        """Opens an existing run."""
        self.path = path
        self.checkpoint_file = path / "checkpoint.safetensors"
        self._metrics_file = path / "metrics.jsonl"
        config_file = path / "config.toml"
        if not config_file.is_file():
            hint = f"Start one with: metafun train PRESET --out {path}"
            if (path / "final" / "config.toml").is_file():
                hint = f"The protocol left its model in {path / 'final'}"
            raise InvalidRun(f"{path} is not a run folder: it has no config.toml. {hint}")
        try:
            self.config = load_config(str(config_file))
        except InvalidConfig as error:
            raise InvalidRun(f"{path} is not a run folder: {error}") from None

    @classmethod
    def create(cls, path: Path, config: Config, *, overwrite: bool = False) -> "Run":
        """Makes the folder; one that is there is left alone unless it is a run and may be overwritten."""
        if path.exists() and not cls.is_free(path):
            try:
                cls(path)
            except InvalidRun:
                raise InvalidRun(f"{path} exists and is not a run folder; choose another with --out.") from None
            if not overwrite:
                raise InvalidRun(
                    f"{path} holds a run already; add --resume to go on with it, --overwrite to replace it, "
                    "or choose another --out."
                )
        config = config.resolved()
        path.mkdir(parents=True, exist_ok=True)
        with locked(path):
            for name in FILES:
                (path / name).unlink(missing_ok=True)
            write_atomically(path / "config.toml", config.to_toml().encode())
        return cls(path)

    def clear(self) -> None:
        """Leaves nothing of the run."""
        with locked(self.path):
            for name in (*FILES, "config.toml"):
                (self.path / name).unlink(missing_ok=True)

    @staticmethod
    def is_free(path: Path) -> bool:
        """No folder yet, or one that a run was about to begin in when it was killed."""
        return not path.exists() or (path.is_dir() and all(file.suffix == ".tmp" for file in path.iterdir()))

    @property
    def record(self) -> SessionRecord:
        """How far the run has come."""
        config, record = checkpoint.read_header(self.checkpoint_file)
        if config != self.config:
            raise InvalidRun(f"{self.path}: config.toml is not what the checkpoint was trained with; put it back.")
        try:
            return parse(SessionRecord, record)
        except InvalidConfig as error:
            raise InvalidCheckpoint(f"{self.checkpoint_file} has a damaged header: {error}") from None

    @property
    def variant(self) -> Config:
        """The configuration of the models: the best of the variants, where several were trained at once."""
        return self.config.variants()[checkpoint.best_variant(self.path, self.config, asdict(self.record))]

    def models(self, which: str = "best") -> Learner:
        """The trained models of all seeds as one: the `best` on validation or the `last`."""
        return checkpoint.load_models(self.checkpoint_file, which)

    def model(self) -> Learner:
        """The first seed's best model."""
        return checkpoint.load_model(self.checkpoint_file)

    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each chunk; lines that a crash left broken are passed over."""
        text = self._metrics_file.read_text("utf-8", errors="replace") if self._metrics_file.exists() else ""
        entries = []
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict) and {"step", "seconds", "loss"} <= set(entry):
                entries.append(entry)
        return entries

    def steps_per_second(self) -> float | None:
        """The median over the chunks without validation and compilation; each step trains all seeds."""
        pairs = itertools.pairwise(self.metrics())
        rates = [(b["step"] - a["step"]) / (b["seconds"] - a["seconds"]) for a, b in pairs if "validation" not in b]
        return round(float(np.median(rates)), 1) if rates else None

    def train(self) -> Iterator[ChunkMetrics]:
        """Trains from the last checkpoint, or from the start, to the end; yields after every chunk."""
        with locked(self.path):
            trainer = Trainer(self.config)
            progress = self._restore(trainer)
            if not same_everywhere(progress.record.step):
                raise InvalidRun(
                    f"{self.path}: the processes stopped at different steps; copy one's folder to the others."
                )
            validation = self._validation(trainer, progress)
            saved, saved_at = progress.record.step, time.monotonic()
            began = time.monotonic() - progress.record.seconds
            chunks = iter(()) if progress.record.stopped_early else trainer.run(progress.state)
            try:
                for state, losses in chunks:
                    # What was measured before is not of the model that is there from now on.
                    (self.path / "evaluation.json").unlink(missing_ok=True)
                    progress, report = self._advance(trainer, validation, progress, state, losses, began)
                    if time.monotonic() - saved_at > SECONDS_BETWEEN_CHECKPOINTS:
                        self._save(trainer, progress)
                        saved, saved_at = state.step, time.monotonic()
                    yield report
                    if progress.record.stopped_early:
                        break
            finally:
                # Reached at the end, on Ctrl-C and on divergence alike: `progress` is always whole and good.
                if progress.record.step > saved:
                    self._save(trainer, progress)

    def _validation(self, trainer: Trainer, progress: SessionState) -> Validation | None:
        training, record = self.config.training, progress.record
        if not training.validate_every or record.stopped_early or record.step >= training.end:
            return None
        return Validation(trainer.models(progress.best), self.config)

    def _advance(
        self,
        trainer: Trainer,
        validation: Validation | None,
        old: SessionState,
        state: State,
        losses: Float[np.ndarray, "steps s"],
        began: float,
    ) -> tuple[SessionState, ChunkMetrics]:
        """What a new chunk makes of the run; the old progress stands until this is done."""
        training = self.config.training
        good = np.isfinite(losses).all(0) & np.asarray(jnp.isfinite(state.parameters).all(1))
        # Among variants, one that diverges has merely lost.
        if not (good.any() if self.config.vary else good.all()):
            raise self._diverged(old.record.step, losses)
        seconds = time.monotonic() - began
        rate = losses.size * training.batch / (seconds - old.record.seconds)
        record = replace(old.record, step=state.step)
        latest, errors = trainer.trained(state), None
        # Before the first validation there is no better choice than the latest.
        best = old.best if record.best_error else latest
        if validation is not None and (state.step % training.validate_every == 0 or state.step == training.end):
            errors = validation(trainer.models(latest))
            best, record = self._compare(state.step, latest, best, record, errors)
        record = replace(record, seconds=time.monotonic() - began)
        report = ChunkMetrics(record, tuple(losses.mean(0).tolist()), errors, rate)
        self._log(report)
        return SessionState(state, best, record), report

    def _restore(self, trainer: Trainer) -> SessionState:
        start = trainer.start()
        if not self.checkpoint_file.exists():
            self._metrics_file.unlink(missing_ok=True)
            return SessionState(start, start.parameters, SessionRecord())
        record = self.record
        optimiser = checkpoint.load_group(self.checkpoint_file, "optimiser", start.optimiser)
        like = jax.eval_shape(trainer.arrays, start.parameters)
        groups = (checkpoint.load_group(self.checkpoint_file, which, like) for which in ("last", "best"))
        last, best = map(jax.vmap(ravel), groups)
        # Chunks after the checkpoint are trained again; their lines would stand twice.
        kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["step"] <= record.step]
        write_atomically(self._metrics_file, "".join(kept).encode())
        return SessionState(State(last, optimiser, record.step), best, record)

    def _save(self, trainer: Trainer, progress: SessionState) -> None:
        groups = {
            "last": trainer.arrays(progress.state.parameters),
            "best": trainer.arrays(progress.best),
            "optimiser": progress.state.optimiser,
        }
        checkpoint.save(self.checkpoint_file, self.config, groups, asdict(progress.record))

    def _compare(
        self, step: int, latest: Array, best: Array, record: SessionRecord, validation: tuple[float, ...]
    ) -> tuple[Array, SessionRecord]:
        """Keeps each seed's best; stops when none has been as good for `patience` validations.

        Of equals the latest: where every answer is right, it is the one that has learned how sure to be.
        """
        old_error, old_step = record.best_error or np.inf, record.best_step or 0
        better = np.asarray(validation) <= old_error
        best = jnp.where(better[:, None], latest, best)
        best_error = tuple(np.where(better, validation, old_error).tolist())
        best_step = tuple(np.where(better, step, old_step).tolist())
        patience = self.config.training.patience
        stop = patience is not None and step - max(best_step) >= patience * self.config.training.validate_every
        return best, replace(record, best_error=best_error, best_step=best_step, stopped_early=stop)

    def _diverged(self, step: int, losses: Float[np.ndarray, "steps s"]) -> Diverged:
        what = f"parameters became infinite at step {step + len(losses)}"
        if not np.isfinite(losses).all():
            i, s = np.argwhere(~np.isfinite(losses))[0]
            seed = self.config.training.seeds[s % len(self.config.training.seeds)]
            what = f"the loss of seed {seed} became {losses[i, s]} at step {step + i + 1}"
        return Diverged(
            f"{what}; the run is kept as it was at step {step}. "
            "A smaller training.learning_rate or training.clip=1.0 usually helps."
        )

    def _log(self, report: ChunkMetrics) -> None:
        entry = {"step": report.record.step, "seconds": report.record.seconds, "loss": _as_json(report.loss)}
        if report.validation is not None:
            entry["validation"] = _as_json(report.validation)
        with open(self._metrics_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")


def _as_json(values: tuple[float, ...]) -> list[float | None]:
    """JSON has no word for what is not finite."""
    return [value if np.isfinite(value) else None for value in values]
