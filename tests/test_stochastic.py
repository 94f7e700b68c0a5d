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

from examples import STOCHASTIC, STOCHASTIC_CLASSIFIERS, TINY, build, loss, name, random_task
from metafun.cli import app
from metafun.model.likelihoods import QUANTILES, Categorical, CrossEntropy, Gaussian, Mixture, Normal, coverage
from metafun.model.stochastic import ClasswiseNormal
from metafun.model.task import Points

every_regressor = pytest.mark.parametrize("variant", STOCHASTIC, ids=name)
every_classifier = pytest.mark.parametrize("variant", STOCHASTIC_CLASSIFIERS, ids=name)
every_stochastic = pytest.mark.parametrize("variant", [*STOCHASTIC, *STOCHASTIC_CLASSIFIERS], ids=name)


def values(prediction):
    """The means, or the probabilities of the classes."""
    return prediction.probabilities if isinstance(prediction, Categorical) else prediction.mean


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


def test_a_mixture_with_a_leading_axis_is_one_mixture_for_each_entry():
    first, second = Mixture(normal(0, 6, 4, 2)), Mixture(normal(1, 6, 4, 2))
    both, y = jax.tree.map(lambda a, b: jnp.stack([a, b]), first, second), jax.random.normal(jax.random.key(3), (4, 2))
    for i, one in enumerate((first, second)):
        np.testing.assert_allclose(both.mean[i], one.mean, rtol=1e-5)
        np.testing.assert_allclose(both.std[i], one.std, rtol=1e-5)
        np.testing.assert_allclose(both.log_prob(y)[i], one.log_prob(y), rtol=1e-5)
        np.testing.assert_allclose(both.cdf(y)[i], one.cdf(y), rtol=1e-5)


def test_a_mixture_of_categoricals_has_their_mean_probabilities():
    logits, classes = jax.random.normal(jax.random.key(0), (6, 5, 3)), jnp.array([True, False, True])
    parts = Categorical(logits, classes)
    mixture = CrossEntropy(0.1).mixture(parts)
    np.testing.assert_allclose(mixture.probabilities, parts.probabilities.mean(0), rtol=1e-5)
    gradient = jax.grad(lambda a: CrossEntropy(0.1).mixture(Categorical(a, classes)).probabilities[0, 0])(logits)
    assert np.isfinite(gradient).all() and gradient.any()


def test_the_latents_of_a_task_are_those_of_its_classes():
    """Density, divergence and draws are products over the task's classes; padding does not change them."""
    a, b = (ClasswiseNormal(normal(seed, 3, 4), jnp.array([True, False, True])) for seed in (0, 1))
    z = jax.random.normal(jax.random.key(5), (3, 4))
    shown = [0, 2]
    np.testing.assert_allclose(a.log_prob(z), a.normal.log_prob(z)[jnp.array(shown)].sum(), rtol=1e-5)
    np.testing.assert_allclose(a.divergence(b), a.normal.divergence(b.normal)[jnp.array(shown)].sum(), rtol=1e-5)
    padded = ClasswiseNormal(jax.tree.map(lambda p: jnp.pad(p, [(0, 2), (0, 0)]), a.normal), jnp.pad(a.classes, (0, 2)))
    draws = a.sample(jax.random.key(2), 20_000)
    np.testing.assert_array_equal(padded.sample(jax.random.key(2), 20_000)[:, :3], draws)
    error = 5 * a.normal.std / np.sqrt(20_000)
    assert (abs(draws.mean(0) - a.mean) < error).all()
    standard = ((draws - a.mean) / a.normal.std).reshape(20_000, -1)
    np.testing.assert_allclose(np.corrcoef(standard.T), np.eye(12), atol=5 / np.sqrt(20_000))
    np.testing.assert_allclose(standard.std(0), 1, atol=5 / np.sqrt(2 * 20_000))


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
    together = np.asarray(values(draw(model, task.target.x)))
    apart = [values(draw(model, x[None])) for x in task.target.x]
    np.testing.assert_allclose(together, jnp.concatenate(apart, axis=1), rtol=1e-5, atol=1e-6)
    assert together.std(0)[together.mean(0) != 0].min() > 1e-4


@every_stochastic
def test_a_prediction_is_the_same_at_every_call_and_random_with_a_key(variant):
    model, task = build(variant), random_task(variant)
    predict = eqx.filter_jit(lambda m, key: values(m.predict(m.encode(task.context), task.target.x, key)))
    np.testing.assert_array_equal(predict(model, None), predict(model, None))
    assert np.abs(predict(model, None) - predict(model, jax.random.key(8))).max() > 1e-4


@every_stochastic
def test_the_trajectory_is_the_final_prediction_alone(variant):
    model, task = build(variant), random_task(variant)
    found = eqx.filter_jit(lambda m: m.predict_trajectory(m.encode(task.context), task.target.x))(model)
    expected = eqx.filter_jit(lambda m: m.predict(m.encode(task.context), task.target.x))(model)
    np.testing.assert_allclose(values(found), values(expected)[None], rtol=1e-5)


@every_stochastic
def test_memory_grows_with_the_draws(variant):
    model, task = build(variant), random_task(variant)
    more = dataclasses.replace(model, samples=model.samples + 10)
    k = task.target.y.shape[1] if variant in STOCHASTIC_CLASSIFIERS else 1
    assert more.peak_floats_per_task(task) - model.peak_floats_per_task(task) == 10 * 4 * k * (3 + 6)
    stacked = jax.tree.map(lambda a: jnp.stack([a, a]) if eqx.is_array(a) else a, model)
    assert stacked.peak_floats_per_task(task) == 2 * model.peak_floats_per_task(task)


@every_regressor
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


@every_classifier
def test_the_loss_of_a_classifier_is_the_negative_evidence_lower_bound(variant):
    """At z = 𝔼[z|context, target], as without a key: −Σ log P(y|z) + Σₖ KL over the classes of the context."""
    smoothless = {"kind": "cross-entropy", "label_smoothing": 0.0}
    model, task = build(variant, context_weight=0.0, loss=smoothless), random_task(variant)
    function = model.metafun.encode(task.context)
    x, y = (jnp.concatenate([getattr(task.context, a), getattr(task.target, a)]) for a in "xy")
    r, labels = function(x), np.asarray(y).argmax(1)
    shown = sorted(set(labels[:5]))

    def q(n):
        """μᵏ and σᵏ of each class in the context, from the first n points."""
        points = [[i for i in range(n) if labels[i] == k] for k in shown]
        inputs = [jnp.stack([jnp.concatenate([x[i], r[i, labels[i]]]) for i in of_class]) for of_class in points]
        e = jnp.stack([model.latent.each(of_class).mean(0) for of_class in inputs])
        mu, s = jnp.split(model.latent.pooled(jnp.concatenate([e, jnp.tile(e.mean(0), (len(e), 1))], -1)), 2, -1)
        return mu, 0.1 + 0.9 * jax.nn.sigmoid(s - 3)

    (prior_mu, prior_std), (mu, std) = q(5), q(9)
    z_and_r = jnp.concatenate([jnp.tile(mu, (4, 1, 1)), r[5:][:, jnp.array(shown)]], -1)
    logits = model.metafun.decode(z_and_r, task.target.x)
    log_probabilities = jax.nn.log_softmax(logits)[jnp.arange(4), jnp.array([shown.index(k) for k in labels[5:]])]
    divergence = (np.log(prior_std / std) + (std**2 + (mu - prior_mu) ** 2) / (2 * prior_std**2) - 0.5).sum()
    np.testing.assert_allclose(loss(model, task), (divergence - log_probabilities.sum()) / 4, rtol=1e-5)


@every_classifier
def test_classes_in_another_order_have_their_latents_and_predictions_in_that_order(variant):
    """With σ set to 0, where a prediction does not depend on the draws."""
    model, context, x = build(variant), random_task(variant).context, random_task(variant).target.x
    order = jnp.array([2, 0, 3, 1])

    @eqx.filter_jit
    def outcome(model, context):
        representation = model.encode(context)
        latent = representation.latent.normal
        certain = eqx.tree_at(lambda r: r.latent.normal.std, representation, jnp.zeros_like(latent.std))
        return latent, model.predict(certain, x).probabilities

    (latent, probabilities), (found, permuted) = (
        outcome(model, Points(context.x, y, context.mask)) for y in (context.y, context.y[:, order])
    )
    np.testing.assert_allclose(found.mean, latent.mean[order], atol=1e-6)
    np.testing.assert_allclose(found.std, latent.std[order], atol=1e-6)
    np.testing.assert_allclose(permuted, probabilities[:, order], atol=1e-6)
    assert abs(latent.mean[0] - latent.mean[1]).max() > 1e-3, "classes differ"


def test_dropout_is_on_in_training():
    """Of the initial representation and of the decoder, both in the loss alone."""
    variant, key = STOCHASTIC_CLASSIFIERS[0], jax.random.key(0)
    task = random_task(variant)
    parts = {
        "initial": {"kind": "parametric", "width": 7, "layers": 2, "dropout": 0.0},
        "decoder": {"kind": "softmax-weights", "dropout": 0.0},
    }
    plain = build(variant, **parts)
    for part, settings in parts.items():
        dropped = build(variant, **(parts | {part: settings | {"dropout": 0.5}}))
        assert abs(loss(dropped, task, key) - loss(plain, task, key)) > 1e-4
        np.testing.assert_allclose(loss(dropped, task), loss(plain, task), rtol=1e-6)


@every_stochastic
def test_the_joint_likelihood_agrees_with_plain_sampling(variant):
    """Importance sampling from the posterior, and the mean over the prior: two ways to one number."""
    model, task = build(variant), random_task(variant)
    # Where prior and posterior are many standard deviations apart, no number of samples is enough.
    model = eqx.tree_at(lambda m: m.latent.pooled.weights[-1], model, replace_fn=lambda w: 0.3 * w)
    many = dataclasses.replace(model, samples=50_000)

    @eqx.filter_jit
    def plain_and_ours(m):
        functions = m.functions(m.encode(task.context), task.target.x, jax.random.key(0), m.samples)
        return jax.nn.logsumexp(functions.log_prob(task.target.y).sum(-1)) - np.log(m.samples), m.joint_log_prob(task)

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
