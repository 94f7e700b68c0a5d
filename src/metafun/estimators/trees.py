"""Trees that are fitted to a context, as arrays."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import ExtraTreesClassifier

from ..model.forest import Forest, as_forest

# A node that tells missing entries from others compares with the largest of these, which an exported program may
# compute with another last digit.
MARGIN = 1e-5
# Of one estimator: the file that it is loaded from may be a stranger's.
MOST_TREES = 1000


def fit_trees(x: NDArray, codes: NDArray, count: int, width: int) -> Forest:
    """Extremely randomised trees, each of a bootstrap sample, whose splits choose among all columns.

    Rows and columns are sorted by their content first, so that the given order has no influence on what is drawn.

    Args:
        x: rows, [n, d], NaN where entries are missing.
        codes: class of each row, [n].
        count: number of trees.
        width: number of classes, padding included.
    """
    columns = np.flatnonzero(~np.isnan(x).all(0))
    if not len(columns):
        columns = np.array([0])
    columns = columns[np.lexsort(np.sort(x[:, columns], axis=0)[::-1])]
    rows = np.lexsort((codes, *x[:, columns].T[::-1]))
    trees = ExtraTreesClassifier(count, max_features=None, bootstrap=True, random_state=0)
    forest = as_forest(trees.fit(x[rows][:, columns], codes[rows]))
    value = jnp.pad(forest.value, ((0, 0), (0, 0), (0, width - forest.value.shape[2])))
    column = jnp.asarray(columns, jnp.int32)[forest.column]
    return eqx.tree_at(lambda f: (f.column, f.threshold, f.value), forest, (column, forest.threshold + MARGIN, value))
