"""Forests as arrays predict what scikit-learn's do."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier, RandomForestRegressor

from metafun.model.forest import as_forest, empty_forest


def rows(seed, missing=0.0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 4)).astype(np.float32)
    x[:, 3] = x[:, 3].round()  # ties with thresholds between whole numbers
    y = x[:, 0] * x[:, 1] + x[:, 3]
    return np.where(rng.random(x.shape) < missing, np.nan, x).astype(np.float32), y


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_regression(missing):
    x, y = rows(0, missing)
    new, _ = rows(1, missing)
    forest = RandomForestRegressor(7, random_state=0).fit(x, np.stack([y, -y], 1))
    np.testing.assert_allclose(eqx.filter_jit(as_forest(forest))(jnp.asarray(new)), forest.predict(new), atol=1e-5)
    single = RandomForestRegressor(7, random_state=0).fit(x, y)
    np.testing.assert_allclose(as_forest(single)(jnp.asarray(new))[:, 0], single.predict(new), atol=1e-5)


@pytest.mark.parametrize("model", [RandomForestClassifier, ExtraTreesClassifier])
def test_probabilities_of_classes(model):
    x, y = rows(0, 0.1)
    new, _ = rows(1, 0.1)
    forest = model(7, min_samples_leaf=2, random_state=0).fit(x, np.digitize(y, [-1, 1]))
    np.testing.assert_allclose(as_forest(forest)(jnp.asarray(new)), forest.predict_proba(new), atol=1e-6)


def test_thresholds_that_float32_does_not_hold():
    """The middle of neighbouring numbers is no float32; here it is rounded up, which would send both to the left."""
    low = np.nextafter(np.float32(4), np.float32(5))
    high = np.nextafter(low, np.float32(5))
    x = np.array([[low], [high]] * 10)
    forest = RandomForestRegressor(5, bootstrap=False, random_state=0).fit(x, (x[:, 0] == high).astype(float))
    np.testing.assert_array_equal(as_forest(forest)(jnp.asarray(x[:2]))[:, 0], [0, 1])


def test_shapes_of_an_empty_forest():
    x, y = rows(0)
    forest = as_forest(RandomForestRegressor(3, random_state=0).fit(x, y))
    empty = empty_forest(*forest.value.shape)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), empty) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), forest
    )
    np.testing.assert_array_equal(empty(jnp.asarray(x)), 0)


def test_gradients_pass_it_by():
    x, y = rows(0)
    forest = as_forest(RandomForestRegressor(3, random_state=0).fit(x, y))
    gradient = jax.grad(lambda z: forest(z).sum() + (z**2).sum())(jnp.asarray(x))
    np.testing.assert_allclose(gradient, 2 * x, rtol=1e-6)
