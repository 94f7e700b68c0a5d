"""Stochastic representations and mixtures, against closed forms."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from examples import STOCHASTIC, TINY, build, loss, name, random_task
from metafun.cli import app
from metafun.model.likelihoods import QUANTILES, Gaussian, Mixture, Normal, coverage

every_stochastic = pytest.mark.parametrize("variant", STOCHASTIC, ids=name)


def normal(seed, *shape):
    a, b = jax.random.normal(jax.random.key(seed), (2, *shape))
    return Normal(a, jnp.exp(b / 2))


def test_divergence_is_that_of_many_samples():
    a, b = normal(0, 3), normal(1, 3)
    z = a.sample(jax.random.key(2), 200_000)
    np.testing.assert_allclose(a.divergence(b), (a.log_prob(z) - b.log_prob(z)).mean(), rtol=0.02)
    np.testing.assert_allclose(a.divergence(a), 0, atol=1e-6)


def test_a_mixture_of_equal_parts_is_that_part():
    part, y = normal(0, 5, 2), jax.random.normal(jax.random.key(3), (5, 2))
    mixture = Mixture(jax.tree.map(lambda a: jnp.stack([a] * 4), part))
    for ours, theirs in (
        (mixture.mean, part.mean),
        (mixture.std, part.std),
        (mixture.log_prob(y), part.log_prob(y)),
        (mixture.cdf(y), part.cdf(y)),
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_mixture_has_the_moments_and_probabilities_of_its_samples():
    parts = normal(0, 6, 1, 1)
    mixture = Mixture(parts)
    draws = np.asarray(parts.sample(jax.random.key(1), 100_000)).ravel()
    np.testing.assert_allclose(mixture.mean[0, 0], draws.mean(), atol=0.01)
    np.testing.assert_allclose(mixture.std[0, 0], draws.std(), rtol=0.01)
    y = jnp.array([[0.3]])
    np.testing.assert_allclose(mixture.cdf(y)[0, 0], (draws < 0.3).mean(), atol=0.005)
    density = np.mean([stats.norm.pdf(0.3, m, s) for m, s in zip(parts.mean.ravel(), parts.std.ravel(), strict=True)])
    np.testing.assert_allclose(mixture.log_prob(y)[0], np.log(density), rtol=1e-5)


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_coverage_tells_how_wide_predictions_are(spread):
    """The truth is 𝒩(0, 1) and the prediction 𝒩(0, spread²)."""
    y = jax.random.normal(jax.random.key(0), (50_000, 1))
    metrics = Gaussian(0.1).metrics(Normal(jnp.zeros_like(y), spread * jnp.ones_like(y)), y)
    levels = np.linspace(0, 1, QUANTILES // 2 + 1)[1:-1]
    expected = 1 - 2 * stats.norm.sf(spread * stats.norm.isf((1 - levels) / 2))
    np.testing.assert_allclose(coverage(metrics["quantiles"].mean(0)), expected, atol=0.01)
    for level in (50, 80, 95):
        i = np.argmin(abs(levels - level / 100))
        np.testing.assert_allclose(metrics[f"coverage{level}"].mean(), expected[i], atol=0.01)


@every_stochastic
def test_one_latent_is_one_function(variant):
    """All targets share z: drawn together, they have the values that each has when drawn alone."""
    model, task = build(variant), random_task(variant)
    draw = eqx.filter_jit(lambda m, x: m.functions(m.encode(task.context), x, jax.random.key(1), 7))
    together = draw(model, task.target.x)
    apart = [draw(model, x[None]).mean for x in task.target.x]
    np.testing.assert_allclose(together.mean, jnp.concatenate(apart, axis=1), rtol=1e-5, atol=1e-6)
    assert np.asarray(together.mean).std(0).min() > 1e-4


@every_stochastic
def test_a_prediction_is_the_same_at_every_call_and_random_with_a_key(variant):
    model, task = build(variant), random_task(variant)
    predict = eqx.filter_jit(lambda m, key: m.predict(m.encode(task.context), task.target.x, key).mean)
    np.testing.assert_array_equal(predict(model, None), predict(model, None))
    assert np.abs(predict(model, None) - predict(model, jax.random.key(8))).max() > 1e-4


@every_stochastic
def test_the_loss_is_the_negative_evidence_lower_bound(variant):
    """−Σ log P(y|z) + KL(q(z|context, target) ‖ q(z|context)), each by hand, over the number of targets."""
    model, task = build(variant, context_weight=0.0), random_task(variant)
    function = model.metafun.encode(task.context)
    x, y = (jnp.concatenate([getattr(task.context, a), getattr(task.target, a)]) for a in "xy")
    features = model.latent.each(jnp.concatenate([x, y, function(x)], -1))

    def q(features):
        mu, s = jnp.split(model.latent.pooled(features.mean(0)), 2)
        return mu, 0.1 + 0.9 * jax.nn.sigmoid(s - 3)

    (prior_mu, prior_std), (mu, std) = q(features[:5]), q(features)
    z = mu + std * jax.random.normal(key := jax.random.key(4), (1, 3))[0]
    r = jnp.concatenate([jnp.tile(z, (4, 1)), function(task.target.x)], -1)
    prediction = model.likelihood(model.metafun.decode(r, task.target.x), None)
    likelihood = stats.norm.logpdf(task.target.y, prediction.mean, prediction.std).sum()
    divergence = (np.log(prior_std / std) + (std**2 + (mu - prior_mu) ** 2) / (2 * prior_std**2) - 0.5).sum()
    np.testing.assert_allclose(loss(model, task, key), (divergence - likelihood) / 4, rtol=1e-5)


@every_stochastic
def test_the_joint_likelihood_agrees_with_plain_sampling(variant):
    """Importance sampling from the posterior, and the mean over the prior: two ways to one number."""
    model, task = build(variant), random_task(variant)
    many = dataclasses.replace(model, samples=50_000)

    @eqx.filter_jit
    def plain_and_ours(m):
        components = m.predict(m.encode(task.context), task.target.x).components
        return jax.nn.logsumexp(components.log_prob(task.target.y).sum(-1)) - np.log(m.samples), m.joint_log_prob(task)

    plain, ours = plain_and_ours(many)
    np.testing.assert_allclose(ours, plain, atol=0.1)
    # More draws come closer to it from below, on average.
    assert plain_and_ours(model)[1] < plain + 0.5


@pytest.mark.slow
def test_from_training_to_drawn_functions(tmp_path):
    def metafun(*arguments):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    tiny = [
        *TINY,
        "model.pooling.heads=2",
        "model.latent.size=4",
        "model.latent.width=8",
        "model.latent.samples=5",
        "evaluation.shots=[5]",
    ]
    metafun("train", "gp-stochastic", "--out", tmp_path / "run", *(p for s in tiny for p in ("--set", s)))
    metrics = json.loads(metafun("evaluate", tmp_path / "run", "--json"))["metrics"]
    ours, exact = (metrics[f"{who}joint_log_likelihood_5shot"]["mean"] for who in ("", "oracle_"))
    assert ours < exact, "nothing is likelier than the truth"
    assert len(metrics["calibration_error_5shot"]["coverage"]) == 19
    assert "samples.png" in metafun("plot", tmp_path / "run")
