"""A run: a folder, and the training session that goes on in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config import Config, Experiment, resolve
from ..errors import InvalidConfig
from ..model import Learner
from ..schema import flatten, to_table
from .checkpoint import Checkpoint
from .run_folder import LENGTH, RunFolder, differing
from .session import ChunkMetrics, SessionRecord, Start, TrainingSession, best_variant, read_record


class Run:
    """One training, which can stop and resume at any moment.

    Args:
        path: an existing run folder.
        folder: the same, if it is open already.
    """

    def __init__(self, path: Path, folder: RunFolder | None = None):
        self.folder = folder or RunFolder.open(path)
        self.path, self.checkpoint_file = path, self.folder.checkpoint_file

    @classmethod
    def create(
        cls, path: Path, config: Config | Experiment, *, overwrite: bool = False, start: Start | None = None
    ) -> "Run":
        """A new run.

        Args:
            path: where its folder goes.
            config: what to train; resolved here if it is not yet.
            overwrite: replace a run in the folder; anything else in the way is refused.
            start: the model to start from; None for random weights.
        """
        experiment = resolve(config)
        if start is not None:
            start.check(experiment)
        run = cls(path, RunFolder.create(path, experiment, overwrite=overwrite))
        if start is not None:
            TrainingSession(run.folder).start_from(start)
        return run

    @classmethod
    def open(
        cls,
        path: Path,
        config: Config | Experiment,
        *,
        overwrite: bool = False,
        resume: bool = False,
        keep_settings: bool = False,
        start: Start | None = None,
    ) -> "Run":
        """A new run, or with `resume` the one in the folder.

        Args:
            path: the folder.
            config: what to train.
            overwrite: replace a run in the folder.
            resume: continue the run in the folder, if there is one.
            keep_settings: resume with the settings of the folder and ignore `config`.
            start: the model that a new run starts from; None for random weights.
        """
        if overwrite and resume:
            raise InvalidConfig("--resume and --overwrite contradict each other; give one of them.")
        if not resume or RunFolder.is_free(path):
            return cls.create(path, config, overwrite=overwrite, start=start)
        if start is not None:
            raise InvalidConfig(f"--from starts a new run, but {path} holds one; drop --from to resume it.")
        run = cls(path)
        if not keep_settings and run.experiment != (asked := resolve(config)):
            key = differing(run.experiment, asked)[0]
            raise InvalidConfig(
                f"{path} was started with other settings: {_compare(key, run.experiment, asked)}. Drop the settings to "
                "continue with those of the folder, or choose another --out."
            )
        return run

    def extend(self, config: Config) -> None:
        """Changes how long the run trains, before it goes on.

        A cosine schedule is that of the new length from the current step on: the learning rate of a finished run rises
        again.

        Args:
            config: the configuration of the run with other `LENGTH` settings; InvalidConfig if others differ too.
        """
        asked = resolve(config)
        keys = differing(self.experiment, asked)
        if others := [key for key in keys if key not in LENGTH]:
            raise InvalidConfig(
                f"{self.path} was started with other settings: {_compare(others[0], self.experiment, asked)}. A run "
                f"that goes on may change {', '.join(LENGTH)} only; choose another --out for the rest."
            )
        done = self.record.step if self.checkpoint_file.exists() else 0
        if keys and asked.training.end <= done:
            raise InvalidConfig(
                f"{self.path} has trained for {done} steps already, and its end would be step {asked.training.end}; "
                "choose more training.steps, or another --out."
            )
        if keys:
            self.folder.extend(asked)

    @property
    def experiment(self) -> Experiment:
        return self.folder.experiment

    @property
    def config(self) -> Config:
        return self.experiment.config

    def checkpoint(self) -> Checkpoint:
        """The latest checkpoint, opened."""
        return Checkpoint(self.checkpoint_file)

    @property
    def record(self) -> SessionRecord:
        """How far the run has come, read from its checkpoint."""
        return read_record(self.folder, self.checkpoint())

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to train."""
        if not self.checkpoint_file.exists():
            return False
        record, is_extended = self.record, self.checkpoint().experiment != self.experiment
        return record.step >= self.config.training.end or (record.stopped_early and not is_extended)

    @property
    def variant(self) -> Experiment:
        """The experiment of the models: the best variant, where several trained at once."""
        return self.experiment.variants[best_variant(self.checkpoint())]

    def models(self, which: str = "best") -> Learner:
        """The trained models of all seeds as one: the `best` on validation or the `last`."""
        opened = self.checkpoint()
        return opened.models(best_variant(opened), which)

    def model(self) -> Learner:
        """The first seed's best model."""
        opened = self.checkpoint()
        return opened.model(best_variant(opened))

    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each chunk of training."""
        return self.folder.metrics()

    def train(self) -> Iterator[ChunkMetrics]:
        """Trains from the last checkpoint, or from the start, to the end; yields after every chunk."""
        return TrainingSession(self.folder).run()

    def describe_variant(self, variant: int | None = None) -> str:
        """The varied settings of a variant (default: the best) as text; empty without `vary`."""
        experiment = self.variant if variant is None else self.experiment.variants[variant]
        settings = flatten(to_table(experiment.config))
        return ", ".join(f"{key}={settings[key]:g}" for key in self.config.vary or ())


def _compare(key: str, there: Experiment, here: Experiment) -> str:
    old, new = (flatten(to_table(e.config)).get(key) for e in (there, here))
    return f"{key} is {old} there and {new} here"
