"""A trained model as one object: shipped with the package, read from a file or run folder, or just trained."""

import hashlib
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..config import Experiment, parse_config, parse_toml
from ..data.encoding import Encoding
from ..errors import InvalidCheckpoint, MetaFunError, suggest
from ..model.learner import Learner
from ..model.nn import count_parameters, is_array
from ..model.table_mixture import TableMixture
from ..model.task import Points
from ..tasks import TaskSource
from ..tasks.scaling import TaskScaling, beside, table_scaling
from ..training import checkpoint
from ..training.programs import keep_programs
from ..training.run_folder import RunFolder
from ..training.session import Start, best_variant

# Entries of a record that belong to the model wherever it is saved: how columns become numbers; the names of inputs,
# target and task in a file it was trained on; what it was trained on in words; and whether it predicts in a mixture.
KEPT = ("encoding", "columns", "target", "task", "trained_on", "mixture")
# The file beside a run of `meta_fit` with the entries of its record that are known before training.
DESCRIPTION = "description.json"
# The file beside a run of `meta_fit` with its model and what was fitted after the training.
FINISHED = "model.safetensors"
MAX_DESCRIPTION_BYTES = 2**26
SHIPPED = ("curves", "sinusoid", "gp-rbf", "glyphs", "tables-regression", "tables-classification")
# Of those, the ones that predict in a mixture with a Gaussian process.
MIXED = ("tables-regression", "tables-classification")
# The columns of a table are padded to this number or the next power of two, because each number needs a program.
LEAST_COLUMNS = 16


@dataclass(frozen=True)
class Interrupted:
    """Takes the place of the model that an interrupted `meta_fit` did not give: no other model may stand in for it."""

    def __repr__(self) -> str:
        return "<no model: meta_fit was interrupted>"


@dataclass(frozen=True, eq=False)
class Trained:
    """One trained model.

    Args:
        experiment: what it was trained on; `tasks` describes its inputs and outputs.
        model: the model of one seed.
        record: the record in the header of its checkpoint, if it was read from one.
    """

    experiment: Experiment
    model: Learner
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tasks(self) -> TaskSource:
        return self.experiment.tasks

    @cached_property
    def encoding(self) -> Encoding | None:
        """How columns become the inputs of the model; None for a model that takes numbers as they are."""
        if "encoding" not in self.record:
            return None
        try:
            encoding = Encoding.restored(self.record["encoding"])
        except MetaFunError as error:
            raise InvalidCheckpoint(f"the model has a damaged encoding: {error}") from None
        if len(encoding.outputs) != self.tasks.sizes[0]:
            raise InvalidCheckpoint(
                f"the model has a damaged encoding: {len(encoding.outputs)} columns for {self.tasks.sizes[0]} inputs."
            )
        return encoding

    @property
    def is_mixed(self) -> bool:
        """Whether it predicts in a mixture; for a table that it would otherwise see as principal components only."""
        return self.record.get("mixture") is True and self.tasks.takes_components

    @cached_property
    def learner(self) -> Learner:
        """What predicts: the model, or the mixture that it is a member of."""
        return TableMixture(self.model, self.tasks.sizes[0]) if self.is_mixed else self.model

    def scaling(self, X: np.ndarray, Y: np.ndarray | None) -> TaskScaling:
        """How a task is scaled for the learner.

        Args:
            X: inputs of the context.
            Y: outputs of the context; None in classification.
        """
        scaling = self.tasks.scaling(X, Y)
        if not self.is_mixed:
            return scaling
        columns = max(LEAST_COLUMNS, 1 << (X.shape[1] - 1).bit_length())
        return beside(scaling, table_scaling(X, None, columns))

    @cached_property
    def encode(self) -> Callable[..., Any]:
        """Compiled: context x [n, dx], y [n, dy], mask [n] -> representation.

        More points than in training weigh as much together as the most in training.
        """

        def encode(model: Learner, x: jax.Array, y: jax.Array, mask: jax.Array) -> Any:
            context = Points(x, y, mask)
            return model.for_context(context, self.tasks.most_context).encode(context)

        return self._compiled(encode)

    @cached_property
    def predict(self) -> Callable[..., Any]:
        """Compiled: representation, x [m, dx] -> predictive distribution."""
        return self._compiled(lambda model, representation, x: model.predict(representation, x))

    @cached_property
    def probabilities(self) -> Callable[..., Any]:
        """Compiled: representation, x [m, dx] -> class probabilities [m, k]."""
        return self._compiled(lambda model, representation, x: model.predict(representation, x).probabilities)

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        keep_programs()
        # The model is partitioned once: doing so at every call would take longer than some calls.
        arrays, rest = eqx.partition(self.learner, eqx.is_array)
        return partial(jax.jit(lambda arrays, *others: function(eqx.combine(arrays, rest), *others)), arrays)

    def save(self, path: Path, extra: Mapping[str, Any] | None = None, record: Mapping[str, Any] | None = None) -> None:
        """Writes a checkpoint of this model alone.

        Args:
            path: the file to write.
            extra: further groups of arrays, by name.
            record: values for the header, as JSON.
        """
        model = jax.tree.map(lambda leaf: leaf[None] if is_array(leaf) else leaf, self.model)
        checkpoint.save(path, self.experiment, {"best": model, **(extra or {})}, {**self._kept(), **(record or {})})

    def _kept(self) -> dict[str, Any]:
        return {name: self.record[name] for name in KEPT if name in self.record}

    def __repr__(self) -> str:
        trained_on = self.record.get("trained_on", self.tasks.trained_on)
        return f"<{count_parameters(self.model):,} parameters, trained on {trained_on}>"

    def __deepcopy__(self, memo: Any) -> "Trained":
        return self  # immutable

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.experiment.config.to_toml(), checkpoint.arrays("best", self.model), self._kept())


def _rebuild(config: str, arrays: Mapping[str, np.ndarray], record: Mapping[str, Any] | None = None) -> Trained:
    """Of a pickle; those of 0.1.0 have no record."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # settings may have been renamed since
        experiment = Experiment(parse_config(parse_toml(config, "a pickled model")))
    return Trained(
        experiment, checkpoint.fill("best", experiment.blank_model(), arrays, "a pickled model"), record or {}
    )


def open_trained(source: "Trained | Interrupted | str | Path") -> Trained:
    """Opens a shipped model by name, or one in a run folder or checkpoint file."""
    if isinstance(source, Trained):
        return source
    if isinstance(source, Interrupted):
        raise InvalidCheckpoint("meta_fit was interrupted and gave no model; call it again, or choose a checkpoint.")
    path = locate(source)
    return _open(path, path.stat().st_mtime_ns, path.stat().st_size)


def start_from(source: str | Path) -> Start:
    """A model for a run to start from, with the hash of its file.

    Args:
        source: a shipped model by name, a run folder or a checkpoint file.
    """
    fingerprint = hashlib.sha256(locate(source).read_bytes()).hexdigest()
    return Start(open_trained(source).model, f"{source} ({fingerprint})")


def locate(source: str | Path) -> Path:
    """The checkpoint file of a shipped model, a run folder or a file."""
    path = Path(source)
    if path.is_dir():
        inside = path / "run"  # `meta_fit` and `metafun fit` train in this subfolder
        if (inside / "config.toml").is_file() and (path / FINISHED).is_file():
            return path / FINISHED
        return RunFolder.open(inside if (inside / "config.toml").is_file() else path).checkpoint_file
    if path.is_file():
        return path
    if str(source) in SHIPPED:
        return _shipped(str(source))
    if path.suffix or len(path.parts) > 1:
        raise InvalidCheckpoint(f"there is no checkpoint at {path}.")
    raise InvalidCheckpoint(
        f"there is no run folder '{source}', and no checkpoint of that name is shipped; {suggest(str(source), SHIPPED)}"
    )


@lru_cache
def _shipped(name: str) -> Path:
    return Path(str(resources.files("metafun") / "checkpoints" / f"{name}.safetensors"))


# A file is read again only if it has changed: `fit` must not wait for the disk.
@lru_cache(maxsize=8)
def _open(path: Path, changed: int, size: int) -> Trained:
    opened = checkpoint.Checkpoint(path)
    variant = best_variant(opened)
    model, config = opened.model(variant), opened.experiment.variants[variant].config
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))):
        raise InvalidCheckpoint(f"{path} has parameters that are not finite; train the model again.")
    training = replace(config.training, seeds=config.training.seeds[:1])
    record = {**opened.record, **_description(path)}
    if path in map(_shipped, MIXED):
        record["mixture"] = True
    trained = Trained(Experiment(replace(config, training=training)), model, record)
    _ = trained.encoding  # a damaged one is refused here
    return trained


def _description(checkpoint_file: Path) -> dict[str, Any]:
    """What `meta_fit` wrote beside the run about its data; empty for other checkpoints."""
    path = checkpoint_file.parent.parent / DESCRIPTION
    if checkpoint_file.parent.name != "run" or not path.is_file():
        return {}
    try:
        if path.stat().st_size > MAX_DESCRIPTION_BYTES:
            raise ValueError("it is too large")
        found = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidCheckpoint(f"{path} is damaged: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidCheckpoint(f"{path} is damaged: it is not a table.")
    return {name: found[name] for name in KEPT if name in found}
