"""A random forest as arrays, so that it is saved, exported and compiled like the rest of a model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import NDArray

# Numbers of nodes are rounded up to a multiple, because each number needs a program.
NODES = 128


class Forest(eqx.Module):
    """f(x) = 1/K Σₖ valueₖ[leafₖ(x)], the mean over K trees; not trained by gradients.

    Args:
        column: the column that a node compares.
        threshold: x goes to the left if x[column] ≤ threshold.
        missing_left: whether x goes to the left if x[column] is NaN.
        left: the node to the left; a leaf's is itself.
        right: the node to the right; a leaf's is itself.
        value: what a leaf predicts.
    """

    column: Int[Array, "trees nodes"]
    threshold: Float[Array, "trees nodes"]
    missing_left: Bool[Array, "trees nodes"]
    left: Int[Array, "trees nodes"]
    right: Int[Array, "trees nodes"]
    value: Float[Array, "trees nodes dy"]

    def __call__(self, x: Float[Array, "m dx"]) -> Float[Array, "m dy"]:
        tree = jnp.arange(len(self.column))
        leaf = self._leaves(jax.lax.stop_gradient(x), tree)
        return jax.lax.stop_gradient(self.value)[tree, leaf].mean(1)

    def _leaves(self, x: Float[Array, "m dx"], tree: Int[Array, " trees"]) -> Int[Array, "m trees"]:
        """The leaf of each tree that each x falls into."""

        def descend(node: Int[Array, "m trees"]) -> Int[Array, "m trees"]:
            entry = jnp.take_along_axis(x, self.column[tree, node], axis=1)
            threshold = jax.lax.stop_gradient(self.threshold)[tree, node]
            goes_left = jnp.where(jnp.isnan(entry), self.missing_left[tree, node], entry <= threshold)
            return jnp.where(goes_left, self.left[tree, node], self.right[tree, node])

        def is_inside(node: Int[Array, "m trees"]) -> Bool[Array, ""]:
            return (self.left[tree, node] != node).any()

        return jax.lax.while_loop(is_inside, descend, jnp.zeros((x.shape[0], len(tree)), jnp.int32))


def as_forest(fitted: Any) -> Forest:
    """The forest that predicts as one of scikit-learn's does: means, or probabilities of classes.

    Args:
        fitted: a fitted random forest or extra-trees model of scikit-learn, for regression or one column of classes.
    """
    trees = [member.tree_ for member in fitted.estimators_]
    nodes = -(-max(tree.node_count for tree in trees) // NODES) * NODES
    arrays = [_tree_arrays(tree, nodes) for tree in trees]
    return Forest(*(jnp.asarray(np.stack(field)) for field in zip(*arrays, strict=True)))


def empty_forest(trees: int, nodes: int, outputs: int) -> Forest:
    """A forest of leaves that predict 0; with the same shapes as one that is read from a file.

    Args:
        trees: number of trees.
        nodes: number of nodes of each tree.
        outputs: dim(y), or number of classes.
    """
    shape, zero = (trees, nodes), jnp.zeros((trees, nodes), jnp.int32)
    itself = jnp.broadcast_to(jnp.arange(nodes, dtype=jnp.int32), shape)
    return Forest(zero, jnp.zeros(shape), jnp.zeros(shape, bool), itself, itself, jnp.zeros((*shape, outputs)))


def _tree_arrays(tree: Any, nodes: int) -> tuple[NDArray, ...]:
    """The fields of `Forest` for one tree, padded to so many nodes."""
    count, itself = tree.node_count, np.arange(nodes, dtype=np.int32)
    is_leaf = np.ones(nodes, bool)
    is_leaf[:count] = tree.children_left == tree.children_right

    def padded(field: NDArray) -> NDArray:
        return np.concatenate([field, np.zeros((nodes - count, *field.shape[1:]), field.dtype)])

    # Classes lie along the last axis, outputs along the one before it.
    value = tree.value[:, 0] if tree.n_outputs == 1 else tree.value[:, :, 0]
    return (
        np.where(is_leaf, 0, padded(tree.feature)).astype(np.int32),
        padded(_rounded_down(tree.threshold)),
        padded(tree.missing_go_to_left).astype(bool),
        np.where(is_leaf, itself, padded(tree.children_left)).astype(np.int32),
        np.where(is_leaf, itself, padded(tree.children_right)).astype(np.int32),
        padded(value).astype(np.float32),
    )


def _rounded_down(threshold: NDArray) -> NDArray:
    """The largest float32 up to each number: a float32 is above both or above neither."""
    rounded = threshold.astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
