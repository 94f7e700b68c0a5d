"""A run folder (config.toml, metrics.jsonl, checkpoint.safetensors) whose training can stop at any moment."""

import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from . import checkpoint
from .config import Config, load_config
from .errors import Diverged, InvalidConfig, InvalidRun
from .evaluation import validate
from .model import MetaFun
from .training import State, Trainer, ravel

# A checkpoint is written when training has gone on for this long, and whenever it ends.
SECONDS_BETWEEN_CHECKPOINTS = 5.0


@dataclass(frozen=True)
class Record:
    """What a run knows of itself besides its parameters."""

    step: int = 0
    seconds: float = 0.0
    best_loss: list[float] = field(default_factory=list)
    best_step: list[int] = field(default_factory=list)
    stopped_early: bool = False


@dataclass(frozen=True)
class Report:
    """What happened in one chunk."""

    record: Record
    loss: float
    validation: list[float] | None
    tasks_per_second: float


class Run:
    """One run folder."""

    def __init__(self, path: Path):
        """Opens an existing run."""
        self.path = path
        if not self._config_file.is_file():
            raise InvalidRun(
                f"{path} is not a run folder: it has no config.toml. Start one with: metafun train PRESET --out {path}"
            )
        try:
            self.config = load_config(str(self._config_file))
        except InvalidConfig as error:
            raise InvalidRun(f"{path} is not a run folder of this version: {error}") from None

    @classmethod
    def create(cls, path: Path, config: Config, *, overwrite: bool = False) -> "Run":
        """Makes the folder; one that is there is left alone unless it is a run and may be overwritten."""
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not path.is_dir() or not (path / "config.toml").is_file():
                raise InvalidRun(f"{path} exists and is not a run folder; choose another with --out.")
            if not overwrite:
                raise InvalidRun(
                    f"{path} holds a run already; add --resume to go on with it, --overwrite to replace it, "
                    "or choose another --out."
                )
            for name in ("checkpoint.safetensors", "metrics.jsonl", "evaluation.json"):
                (path / name).unlink(missing_ok=True)
        path.mkdir(parents=True, exist_ok=True)
        checkpoint.write_atomically(path / "config.toml", config.to_toml().encode())
        return cls(path)

    @property
    def checkpoint_file(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def record(self) -> Record:
        """How far the run has come."""
        return Record(**checkpoint.read_header(self.checkpoint_file)[1])

    def models(self, which: str = "best") -> MetaFun:
        """The trained models of all seeds as one: the `best` on validation or the `last`."""
        return checkpoint.load_models(self.checkpoint_file, which)

    def model(self) -> MetaFun:
        """The first seed's best model."""
        return checkpoint.load_model(self.checkpoint_file)

    def metrics(self) -> list[dict[str, Any]]:
        """One line for each chunk; a line that a crash left broken is passed over."""
        lines = self._metrics_file.read_text("utf-8").splitlines() if self._metrics_file.exists() else []
        entries = []
        for line in lines:
            try:
                entries.append(json.loads(line))
            except json.JSONDecodeError:
                break
        return entries

    def steps_per_second(self) -> float | None:
        """The median over the chunks without validation and compilation; each step trains all seeds."""
        pairs = itertools.pairwise(self.metrics())
        rates = [(b["step"] - a["step"]) / (b["seconds"] - a["seconds"]) for a, b in pairs if "validation" not in b]
        return round(float(np.median(rates)), 1) if rates else None

    def train(self) -> Iterator[Report]:
        """Trains from the last checkpoint, or from the start, to the end; yields after every chunk."""
        trainer = Trainer(self.config)
        state, best, record = self._restore(trainer)
        if record.stopped_early:
            return
        saved, saved_at = record.step, time.monotonic()
        try:
            began = time.monotonic() - record.seconds
            chunk_began = time.monotonic()
            for new, losses in trainer.run(state):
                if not np.isfinite(losses).all():
                    raise self._diverged(new.step - len(losses), losses)
                state, validation = new, None
                record = replace(record, step=state.step, seconds=time.monotonic() - began)
                rate = losses.size * self.config.training.batch / (time.monotonic() - chunk_began)
                if state.step % self.config.training.validate_every == 0 or state.step == self.config.training.steps:
                    validation = validate(trainer.models(state.parameters), self.config)
                    best, record = self._compare(state, best, record, validation)
                record = replace(record, seconds=time.monotonic() - began)
                report = Report(record, float(losses.mean()), None if validation is None else validation.tolist(), rate)
                self._log(report, losses)
                if record.stopped_early or time.monotonic() - saved_at > SECONDS_BETWEEN_CHECKPOINTS:
                    self._save(trainer, state, best, record)
                    saved, saved_at = state.step, time.monotonic()
                yield report
                if record.stopped_early:
                    break
                chunk_began = time.monotonic()
        finally:
            # Reached at the end, on Ctrl-C and on divergence alike: `state` is always the last good one.
            if record.step > saved:
                self._save(trainer, state, best, record)

    def _restore(self, trainer: Trainer) -> tuple[State, Float[Array, "s p"], Record]:
        start = trainer.start()
        if not self.checkpoint_file.exists():
            self._metrics_file.unlink(missing_ok=True)
            return start, start.parameters, Record()
        record = self.record
        # Chunks after the checkpoint are trained again; their lines would stand twice.
        kept = [json.dumps(entry) + "\n" for entry in self.metrics() if entry["step"] <= record.step]
        checkpoint.write_atomically(self._metrics_file, "".join(kept).encode())
        optimiser = checkpoint.load_group(self.checkpoint_file, "optimiser", start.optimiser)
        last, best = (jax.vmap(ravel)(self.models(which)) for which in ("last", "best"))
        return State(last, optimiser, record.step), best, record

    def _save(self, trainer: Trainer, state: State, best: Array, record: Record) -> None:
        groups = {
            "last": trainer.models(state.parameters),
            "best": trainer.models(best),
            "optimiser": state.optimiser,
        }
        checkpoint.save(self.checkpoint_file, self.config, groups, asdict(record))

    def _compare(self, state: State, best: Array, record: Record, validation: np.ndarray) -> tuple[Array, Record]:
        """Keeps each seed's best; stops when none has improved for `patience` validations."""
        old_loss, old_step = record.best_loss or np.inf, record.best_step or 0
        better = validation < old_loss
        best = jnp.where(better[:, None], state.parameters, best)
        best_loss = np.where(better, validation, old_loss).tolist()
        best_step = np.where(better, state.step, old_step).tolist()
        patience = self.config.training.patience
        stop = patience is not None and state.step - max(best_step) >= patience * self.config.training.validate_every
        return best, replace(record, best_loss=best_loss, best_step=best_step, stopped_early=stop)

    def _diverged(self, step: int, losses: Float[np.ndarray, "steps s"]) -> Diverged:
        i, s = np.argwhere(~np.isfinite(losses))[0]
        return Diverged(
            f"the loss of seed {self.config.training.seeds[s]} became {losses[i, s]} at step {step + i + 1}; "
            f"the run is kept as it was at step {step}. "
            "A smaller training.learning_rate or training.clip=1.0 usually helps."
        )

    def _log(self, report: Report, losses: Float[np.ndarray, "steps s"]) -> None:
        entry = {
            "step": report.record.step,
            "seconds": report.record.seconds,
            "loss": losses.mean(0).tolist(),
        }
        if report.validation is not None:
            entry["validation"] = report.validation
        with open(self._metrics_file, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    @property
    def _config_file(self) -> Path:
        return self.path / "config.toml"

    @property
    def _metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"
