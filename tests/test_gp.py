"""Exact Gaussian processes against scikit-learn's, and curves drawn from them."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor, kernels

from metafun import load_config, load_model
from metafun.errors import InvalidConfig
from metafun.model.task import Points
from metafun.tasks import Curves
from metafun.tasks.gp import RBF, GaussianProcess, Matern52, Periodic

S, L, P, NOISE = 0.8, 0.6, 1.7, 0.05
# The same kernel twice: ours, and scikit-learn's.
PAIRS = {
    "rbf": (RBF, {}, kernels.RBF(L)),
    "matern52": (Matern52, {}, kernels.Matern(L, nu=2.5)),
    "periodic": (Periodic, {"period": P}, kernels.ExpSineSquared(L, P)),
}
every_kernel = pytest.mark.parametrize("name", PAIRS)


def ours(name: str, noise: float = NOISE) -> GaussianProcess:
    kind, extra, _ = PAIRS[name]
    values = {"scale": S, "lengthscale": L, **extra}
    return GaussianProcess(kind(**{key: jnp.asarray(value) for key, value in values.items()}), jnp.asarray(noise))


def theirs(name: str, noise: float = NOISE) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(S**2 * PAIRS[name][2] + kernels.WhiteKernel(noise**2), optimizer=None, alpha=0)


def data(dx: int = 1, n: int = 12, m: int = 9):
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (n + m, dx))
    return x[:n], np.sin(2 * x[:n, :1]), x[n:], np.sin(2 * x[n:, :1])


@every_kernel
@pytest.mark.parametrize("dx", [1, 3])
def test_predictions_are_those_of_scikit_learn(name, dx):
    if (name, dx) == ("periodic", 3):
        pytest.skip("scikit-learn's periodic kernel takes the sine of the distance, ours sums over dimensions")
    x, y, x_new, _ = data(dx)
    mean, std = theirs(name).fit(x, y[:, 0]).predict(x_new, return_std=True)
    prediction = ours(name).predict(Points.of(x, y), jnp.asarray(x_new, jnp.float32))
    np.testing.assert_allclose(prediction.mean[:, 0], mean, atol=1e-3)
    np.testing.assert_allclose(prediction.std[:, 0], std, atol=1e-3)


@every_kernel
def test_the_joint_likelihood_is_that_of_scikit_learn(name):
    x, y, x_new, y_new = data()
    ours_context, ours_all = Points.of(x, y), Points.of(np.r_[x, x_new], np.r_[y, y_new])
    for points in (ours_context, ours_all):
        gp = theirs(name).fit(np.asarray(points.x, float), np.asarray(points.y[:, 0], float))
        np.testing.assert_allclose(ours(name).log_prob(points), gp.log_marginal_likelihood_value_, rtol=1e-3)
    conditional = ours(name).log_prob(ours_all) - ours(name).log_prob(ours_context)
    mean, covariance = theirs(name).fit(x, y[:, 0]).predict(x_new, return_cov=True)
    z = np.linalg.solve(np.linalg.cholesky(covariance), y_new[:, 0] - mean)
    expected = -(z @ z + np.linalg.slogdet(covariance)[1] + len(z) * np.log(2 * np.pi)) / 2
    np.testing.assert_allclose(conditional, expected, rtol=5e-3)


@every_kernel
def test_padding_changes_nothing(name):
    x, y, x_new, _ = data()
    points = Points.of(x, y)
    plain, padded = (ours(name).predict(p, jnp.asarray(x_new, jnp.float32)) for p in (points, points.pad(20)))
    np.testing.assert_allclose(padded.mean, plain.mean, atol=1e-5)
    np.testing.assert_allclose(padded.std, plain.std, atol=1e-5)
    np.testing.assert_allclose(ours(name).log_prob(points.pad(20)), ours(name).log_prob(points), rtol=1e-5)


@every_kernel
def test_no_context_gives_the_prior(name):
    prediction = ours(name).predict(Points.of(np.zeros((0, 1)), np.zeros((0, 1))), jnp.ones((3, 1)))
    np.testing.assert_array_equal(prediction.mean, 0)
    np.testing.assert_allclose(prediction.std, np.sqrt(S**2 + NOISE**2), rtol=1e-6)


@every_kernel
@pytest.mark.parametrize("noise", [0.0, 1e-4])
def test_repeated_inputs_without_noise_stay_finite(name, noise):
    """K is singular there: the least noise makes it factorisable, in float32 too."""
    x = np.repeat([[0.3], [0.30001], [1.2]], 6, axis=0)
    prediction = ours(name, noise).predict(Points.of(x, np.sin(x)), jnp.array([[0.3], [0.7], [50.0]]))
    assert np.isfinite(prediction.mean).all() and (prediction.std > 0).all()
    np.testing.assert_allclose(prediction.mean[0], np.sin(0.3), atol=0.02)
    if name != "periodic":
        np.testing.assert_allclose(prediction.std[2], S, rtol=1e-3)
    assert np.isfinite(ours(name, noise).sample(jax.random.key(0), jnp.asarray(x, jnp.float32))).all()


@every_kernel
def test_samples_have_the_covariance_of_the_kernel(name):
    process, x = ours(name), jnp.linspace(-1, 1, 4)[:, None]
    samples = jax.vmap(lambda key: process.sample(key, x)[:, 0])(jax.random.split(jax.random.key(0), 20_000))
    expected = process.kernel(x, x) + NOISE**2 * np.eye(4)
    np.testing.assert_allclose(np.cov(samples.T), expected, atol=5 * S**2 * np.sqrt(2 / 20_000))


def curves(**changes) -> Curves:
    defaults = dict(
        kernel="rbf",
        lengthscale=(0.1, 0.6),
        scale=(0.1, 1.0),
        period=(1.0, 1.0),
        noise=(0.02, 0.02),
        dx=1,
        low=-2.0,
        high=2.0,
        context=(3, 46),
        targets=(3, 47),
        points=50,
    )
    return Curves(**defaults | changes)


def test_sizes_of_curves():
    """3 to 46 context points, 3 targets or more, 50 points at most, all of them different."""
    batch = jax.vmap(curves().sample)(jax.random.split(jax.random.key(0), 2000))
    n, m = batch.context.mask.sum(1), batch.target.mask.sum(1)
    assert (n.min(), n.max(), m.min(), m.max()) == (3, 46, 3, 47) and (n + m).max() == 50
    for context, target in zip(
        *(np.where(p.mask, p.x[..., 0], np.nan) for p in (batch.context, batch.target)), strict=True
    ):
        assert not set(context[~np.isnan(context)]) & set(target[~np.isnan(target)])


@pytest.mark.parametrize("kernel", ["rbf", "matern52", "periodic"])
def test_the_oracle_is_calibrated_on_the_curves(kernel):
    """It knows the process: its standardised errors are normal, which a wrong hyperparameter would show at once."""
    tasks = curves(kernel=kernel)

    def z(key):
        task = tasks.sample(key)
        prediction = tasks.oracle(key, task).prediction
        return (task.target.y - prediction.mean) / prediction.std, task.target.mask

    errors, mask = jax.jit(jax.vmap(z))(jax.random.split(jax.random.key(1), 2000))
    errors = np.asarray(errors[..., 0])[np.asarray(mask)]
    # Errors within a task depend on each other, so that the number of tasks, not of points, sets the scale.
    np.testing.assert_allclose(errors.mean(), 0, atol=5 / np.sqrt(2000))
    np.testing.assert_allclose(errors.var(), 1, atol=5 * np.sqrt(2 / 2000))


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_the_demo_comes_close_to_the_exact_process(tmp_path):
    """A short `metafun demo gp` of the full size; in a process of its own, with a time limit: it must not deadlock."""
    path = tmp_path / "demo"
    settings = ["training.steps=300", "training.batch=16", "training.validate_every=0", "evaluation.tasks=500"]
    options = [part for setting in settings for part in ("--set", setting)]
    command = [sys.executable, "-m", "metafun.cli", "demo", "gp", "--out", str(path), *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    summary = json.loads((path / "summary.json").read_text("utf-8"))
    assert summary["figure"].endswith("curves.png") and (path / "curves.png").stat().st_size > 10_000
    assert (path / "reliability.png").stat().st_size > 10_000
    for shots in (5, 15):
        gap = summary[f"oracle_log_likelihood_{shots}shot"] - summary[f"log_likelihood_{shots}shot"]
        assert 0 < gap < 0.4
        assert summary[f"coverage95_{shots}shot"] == pytest.approx(0.95, abs=0.04)
        assert summary[f"oracle_coverage95_{shots}shot"] == pytest.approx(0.95, abs=0.01)
    assert summary["paper"] == {}, "the paper's numbers are of sinusoids"
    for n in (0, 1, 8):
        assert_it_knows_little_far_from_the_context(load_model(path / "checkpoint.safetensors"), n)


def assert_it_knows_little_far_from_the_context(model, n: int) -> None:
    """Finite everywhere, certain nowhere but near the context, and no worse for inputs that are given twice."""
    x = jnp.linspace(-1, 1, n)[:, None]
    representation = model.encode(Points.of(x, jnp.sin(x)))
    near = model.predict(representation, x).std
    far = model.predict(representation, jnp.array([[-100.0], [-6.0], [-3.0], [3.0], [6.0], [100.0], [1e20]]))
    assert np.isfinite(far.mean).all() and np.isfinite(far.std).all()
    assert far.std.min() > 0.7, "the processes have standard deviation 1"
    assert n == 0 or near.max() < 0.7
    twice = model.encode(Points.of(jnp.tile(x, (2, 1)), jnp.tile(jnp.sin(x), (2, 1))))
    assert np.isfinite(model.predict(twice, x).mean).all()


@every_kernel
def test_the_joint_oracle_is_a_conditional_of_the_whole(name):
    """log P(targets|context) from the posterior covariance of scikit-learn's process."""
    tasks, key = (
        curves(kernel=name, lengthscale=(0.6, 0.6), scale=(0.8, 0.8), period=(1.7, 1.7), noise=(0.05, 0.05)),
        jax.random.key(3),
    )
    task = tasks.sample(key)
    (cx, cy), (tx, ty) = ((np.asarray(p.x)[p.mask], np.asarray(p.y)[p.mask]) for p in (task.context, task.target))
    mean, covariance = theirs(name).fit(cx, cy).predict(tx, return_cov=True)
    expected = stats.multivariate_normal(mean.ravel(), covariance, allow_singular=True).logpdf(ty.ravel())
    np.testing.assert_allclose(tasks.oracle(key, task).joint_log_prob, expected, rtol=2e-2)


def test_noise_is_the_same_in_all_tasks_or_of_any_size():
    keys = jax.random.split(jax.random.key(0), 1000)

    def noises(tasks):
        return np.asarray(jax.vmap(lambda key: tasks.process(key).noise)(keys))

    np.testing.assert_array_equal(noises(curves()), np.float32(0.02))
    drawn = noises(curves(noise=(0.01, 0.5)))
    assert 0.01 <= drawn.min() < 0.02 and 0.48 < drawn.max() <= 0.5
    with pytest.raises(InvalidConfig, match=r"is less than tasks\.noise"):
        load_config("gp", ["tasks.most_noise=0.05"])
