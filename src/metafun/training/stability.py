"""Whether the training loss of a model broke away: it rose far above what it had reached, for long, but not to NaN."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

# A model breaks away when it loses this share of what training had gained: at least so many nats, or log units, to
# be more than noise, and at most so many, since the first losses may be huge.
LOST_SHARE, LEAST_LOST, MOST_LOST = 1 / 3, 0.5, 3.0
# The median over so many chunks counts: a single chunk may have a few very difficult tasks.
CHUNKS = 5
REMEDY = "A smaller training.learning_rate or training.clip=1.0 usually helps."


class Stability:
    """Watches the loss of each model, chunk by chunk.

    Args:
        in_logarithm: compare logarithms of losses, for losses that fall over orders of magnitude.
    """

    def __init__(self, in_logarithm: bool):
        self._in_logarithm = in_logarithm
        self._recent: deque[np.ndarray] = deque(maxlen=CHUNKS)
        self._steps: list[int | None] = []
        self._first = self._least = np.zeros(0)

    @property
    def steps(self) -> list[int | None]:
        """The step at which each model broke away first; None if it did not. Empty before the first chunk."""
        return list(self._steps)

    def watch(self, step: int, loss: Sequence[float | None]) -> None:
        """Adds a chunk.

        Args:
            step: the last step of the chunk.
            loss: mean loss of each model over the chunk; None if it was not finite.
        """
        level = np.array(loss, float)
        if self._in_logarithm:
            level = np.log(np.maximum(level, np.finfo(float).tiny))
        if not self._recent:
            self._first = self._least = level
            self._steps = [None] * len(level)
        self._recent.append(level)
        if len(self._recent) < CHUNKS:  # a median of fewer is no level, neither to reach nor to fall back from
            return
        level = np.median(self._recent, axis=0)
        lost = np.clip(LOST_SHARE * (self._first - self._least), LEAST_LOST, MOST_LOST)
        for i in np.flatnonzero(level - self._least > lost):
            self._steps[i] = self._steps[i] or step
        self._least = np.fmin(self._least, level)


def watched_metrics(metrics: Iterable[Mapping[str, Any]], in_logarithm: bool) -> Stability:
    """The stability of a training so far.

    Args:
        metrics: entries of metrics.jsonl.
        in_logarithm: as in `Stability`.
    """
    stability = Stability(in_logarithm)
    for entry in metrics:
        if entry["step"]:  # before the first step there is no loss
            stability.watch(entry["step"], entry["loss"])
    return stability


def describe_break_aways(seeds: Sequence[int], steps: Sequence[int | None]) -> str:
    """Which models broke away, when, and the remedy; empty if none did.

    Args:
        seeds: the seeds of the models.
        steps: the step at which each broke away, or None.
    """
    broken = [f"seed {seed} at step {step:,}" for seed, step in zip(seeds, steps, strict=True) if step is not None]
    if not broken:
        return ""
    return f"the loss of {len(broken)} of {len(seeds)} models broke away: {', '.join(broken)}. {REMEDY}"
