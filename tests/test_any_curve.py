"""Series of any kind in any units: the prior, and the scaling of a user's series."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from metafun import MetaFunRegressor
from metafun.config import load_config, resolve
from metafun.errors import InvalidTask
from metafun.estimators.trained import Trained
from metafun.model.population import FARTHEST
from metafun.tasks import AnyCurves
from metafun.tasks.any_curve import AnyCurveTasks, scaled_by
from metafun.tasks.prior import series
from metafun.tasks.scaling import OUTPUT_CLIP

SMALL = ("representation", "pooling.width", "update.width", "decoder.width")


@pytest.fixture(scope="module")
def untrained():
    settings = [*(f"model.{name}=8" for name in SMALL), "model.iterations=2", "model.population.processes=4"]
    experiment = resolve(load_config("curves", settings))
    return Trained(experiment, experiment.build_model(jax.random.key(0)))


@pytest.mark.parametrize("kind", [kind for kind, _ in series.KINDS], ids=lambda kind: kind.__name__)
def test_functions_of_each_kind_differ(kind):
    t = jnp.linspace(0, 1, 50)
    drawn = jax.vmap(lambda key: kind(key, t))(jax.random.split(jax.random.key(0), 40))
    assert jnp.isfinite(drawn).all() and (drawn.std(0) > 0.05).all()
    assert len(np.unique(np.asarray(drawn).round(4), axis=0)) == 40


def test_a_periodic_function_repeats_and_a_smooth_one_is_continuous():
    t = jnp.linspace(0, 0.1, 2000)
    for kind, most in ((series.smooth, 0.2), (series.periodic, 0.2)):
        steps = abs(jnp.diff(kind(jax.random.key(1), t)))
        assert steps.max() < most * jnp.sqrt(series.FREQUENCIES), kind.__name__
    # A period is at most 1.5, so a period later than any t of the first grid the values are the same ones.
    key = jax.random.key(2)
    period = series.log_uniform(jax.random.split(key, 4)[2], 0.15, 1.5)
    np.testing.assert_allclose(series.periodic(key, t + period), series.periodic(key, t), atol=1e-2)


def test_tasks_are_scaled_by_their_context():
    tasks = jax.jit(jax.vmap(AnyCurves((2, 12), 6).sample))(jax.random.split(jax.random.key(0), 200))
    x, y, own = (np.asarray(a) for a in (tasks.context.x[..., 0], tasks.context.y[..., 0], tasks.context.mask))
    assert set(own.sum(1)) == set(range(2, 13))
    for i in range(200):
        known = own[i]
        np.testing.assert_allclose([x[i, known].min(), x[i, known].max()], [-1, 1], atol=1e-4)
        np.testing.assert_allclose([y[i, known].mean(), y[i, known].std()], [0, 1], atol=1e-3)
    assert abs(np.asarray(tasks.target.y)).max() == OUTPUT_CLIP
    there = np.asarray(tasks.target.mask)
    assert 0.9 < there.mean() < 1 and (abs(np.asarray(tasks.target.x)[..., 0]) < FARTHEST)[there].all()


def test_scaling_equals_that_of_training():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(3, 9, (7, 1)), rng.normal(40, 5, (7, 1))
    scaling = AnyCurveTasks().scaling(x, y)
    rows = jnp.asarray(np.concatenate([x, np.full((3, 1), 99.0)])), jnp.asarray(np.concatenate([y, np.zeros((3, 1))]))
    mask = jnp.arange(10) < 7
    for found, column, is_output in ((scaling.scale_inputs(x), rows[0], False), (scaling.outputs(y), rows[1], True)):
        middle, reach = scaled_by(column, mask, is_output=is_output)
        np.testing.assert_allclose(found, ((column - middle) / reach)[:7], rtol=1e-4, atol=1e-4)


def test_units_do_not_matter(untrained):
    rng = np.random.default_rng(0)
    t, y, new = np.sort(rng.uniform(0, 1, 9)), rng.normal(size=9), np.linspace(-0.1, 1.2, 5)
    model = MetaFunRegressor(untrained)
    mean, std = model.fit(t, y).predict(new, return_std=True)
    assert mean.shape == std.shape == (5,)
    for a, b, c, d in ((1e6, 3e5, 1e-3, 50.0), (1e-4, 7.0, 1e5, -1e6)):
        other, spread = model.fit(a * t + b, c * y + d).predict(a * new + b, return_std=True)
        np.testing.assert_allclose((other - d) / c, mean, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(spread / c, std, rtol=1e-3)


def test_short_series_are_not_padded_to_long_ones(untrained):
    t = np.arange(40.0)
    for n, padded in ((2, 16), (16, 16), (20, 24), (40, 48)):
        fitted = MetaFunRegressor(untrained).fit(t[:n], np.sin(t[:n]))
        assert fitted.representation_.correction.mask.shape == (padded,)


def test_strange_series_are_taken(untrained):
    model = MetaFunRegressor(untrained)
    for t, y in (([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]), ([0.0, 1.0], [5.0, 5.0]), ([0.0, 1e-9], [0.0, 0.0])):
        mean, std = model.fit(np.array(t), np.array(y)).predict(np.array([0.0, 2.0]), return_std=True)
        assert np.isfinite(mean).all() and (std > 0).all()
    with pytest.raises(InvalidTask, match=r"1,001 rows, but the model takes at most 1,000; fit a part"):
        model.fit(np.arange(1001.0), np.arange(1001.0))
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        model.fit(np.array([1.0]), np.array([2.0]))
