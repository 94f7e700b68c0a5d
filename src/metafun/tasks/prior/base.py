"""What the priors over tables share: sizes, and tasks from columns and outputs."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ...model.task import Points, Task
from ..base import TaskDistribution
from ..scaling import OUTPUT_CLIP, ClippedScaling
from .draws import log_uniform
from .labels import balanced_order, two_classes_first


class Tables(TaskDistribution):
    """Tables standardised by their context, as `fit` does. A column beyond the table's width is missing in every row.

    Args:
        columns: maximum number of columns.
        context: (minimum, maximum) of the number of context rows; the logarithm of their number is uniform.
        targets: maximum number of targets.
    """

    columns: int = eqx.field(static=True)
    context: tuple[int, int] = eqx.field(static=True)
    targets: int = eqx.field(static=True)

    @abstractmethod
    def split(
        self, n: Int[Array, ""], x: Float[Array, "rows d"], y: Float[Array, "rows k"], is_target: Bool[Array, " rows"]
    ) -> Task:
        """A task: the first n rows are the context, the last `targets` rows where `is_target` holds the target."""

    @property
    def rows(self) -> int:
        """Rows drawn, context and targets together."""
        return self.context[1] + self.targets

    def context_size(self, key: PRNGKeyArray) -> Int[Array, ""]:
        """The number of context rows of one table."""
        least, most = self.context
        return jnp.clip(log_uniform(key, least, most + 1).astype(int), least, most)

    def of_numbers(self, n: Int[Array, ""], x: Float[Array, "rows d"], y: Float[Array, "rows one"]) -> Task:
        """A regression task.

        Args:
            n: number of context rows.
            x: columns.
            y: outputs, which are scaled by those of the context.
        """
        task = self.split(n, x, y, jnp.ones(self.rows, bool))
        scale = ClippedScaling.of(jnp.where(task.context.mask[:, None], task.context.y, jnp.nan))
        context, target = scale(task.context.y), scale(task.target.y)
        # A target far outside the context's range teaches nothing.
        within = abs(target[:, 0]) < OUTPUT_CLIP
        return Task(
            Points(task.context.x, context, task.context.mask),
            Points(task.target.x, target, task.target.mask & within),
        )

    def of_labels(
        self,
        n: Int[Array, ""],
        x: Float[Array, "rows d"],
        labels: Int[Array, " rows"],
        classes: int,
        is_balanced: Bool[Array, ""],
    ) -> Task:
        """A classification task. Its context has two classes if there are two; targets have classes of the context.

        Args:
            n: number of context rows.
            x: columns.
            labels: classes.
            classes: maximum number of classes.
            is_balanced: whether the context is balanced between the classes, as far as they have rows.
        """
        order = jnp.where(is_balanced, balanced_order(labels, classes, self.context[1]), jnp.arange(self.rows))
        order = order[two_classes_first(labels[order])]
        x, labels = x[order], labels[order]
        shown = jnp.zeros(classes, bool).at[labels].max(jnp.arange(self.rows) < n)
        return self.split(n, x, jax.nn.one_hot(labels, classes), shown[labels])
