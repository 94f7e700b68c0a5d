"""Models run along their targets, against the exact joint process and against encoding everything again."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import BASELINES, CLASSIFIERS, SIMILAR, STOCHASTIC, VARIANTS, build, name, random_task
from metafun.model.autoregressive import Plan, joint_log_prob, sample_functions, sample_paths
from metafun.model.chains import Adding, chain
from metafun.model.learner import Learner
from metafun.model.likelihoods import Categorical, Gaussian
from metafun.model.orders import ORDERS, CoarseToFine, Given, LeftToRight, Random
from metafun.model.task import Points, Task, join
from metafun.tasks.gp import RBF, GaussianProcess

# Each pooling, update and kind of learner once, with a pooling for each iteration and with heads.
REPRESENTATIVE = [VARIANTS[1], VARIANTS[5], VARIANTS[8], CLASSIFIERS[0], CLASSIFIERS[3], SIMILAR[0], STOCHASTIC[0]]
EVERY = {name(variant): variant for variant in [*REPRESENTATIVE, BASELINES[0], BASELINES[3]]}
# With one update: a kernel, with heads, and poolings that depend on all keys.
ONE_UPDATE = {name(v): v | {"iterations": 1} for v in VARIANTS if v["update"] == "mlp" and not v["per_iteration"]}


class Exact(Learner):
    """The marginal predictions of a Gaussian process."""

    likelihood: Gaussian
    process: GaussianProcess

    def encode(self, context, key=None):
        return context

    def predict(self, representation, x, key=None):
        return self.process.predict(representation, x)


joint = eqx.filter_jit(joint_log_prob)
functions_of = eqx.filter_jit(sample_functions)
predict = eqx.filter_jit(lambda context, x: EXACT.process.predict(context, x))
EXACT = Exact(Gaussian(0.0), GaussianProcess(RBF(jnp.array(1.2), jnp.array(0.7)), jnp.array(0.3)))


def curve(n=4, m=7, padding=0):
    """A task whose context and targets end in rows of padding."""
    x = np.random.default_rng(1).uniform(-2, 2, (n + m, 1))
    y = np.sin(2 * x) + 0.3 * np.cos(20 * x)
    task = Task.of(x[:n], y[:n], x[n:], y[n:])
    return Task(task.context.pad(n + padding), task.target.pad(m + padding))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("padding", [0, 3])
def test_the_chain_of_an_exact_process_is_its_joint_density(order, padding):
    """In any order, because its marginals are consistent."""
    task = curve(padding=padding)
    expected = EXACT.process.log_prob(join(task.context, task.target)) - EXACT.process.log_prob(task.context)
    plan = Plan(ORDERS[order]())
    found = joint(EXACT, task, jax.random.key(0), plan)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_targets_of_a_block_are_independent():
    task = curve()
    marginal = predict(task.context, task.target.x).log_prob(task.target.y)
    found = joint(EXACT, task, jax.random.key(0), Plan(block=7))
    np.testing.assert_allclose(found, marginal.sum(), rtol=1e-5)
    # The last block has one target of three.
    in_order = joint(EXACT, task, jax.random.key(0), Plan(Given(), block=3))
    np.testing.assert_allclose(in_order, in_threes(task), rtol=1e-4)


@eqx.filter_jit
def in_threes(task):
    """The log-likelihood of seven targets in blocks of three, three and one."""
    log_prob, known = 0.0, task.context
    for block in (slice(0, 3), slice(3, 6), slice(6, 7)):
        points = jax.tree.map(lambda a, block=block: a[block], task.target)
        log_prob += EXACT.process.predict(known, points.x).log_prob(points.y).sum()
        known = join(known, points)
    return log_prob


def test_paths_have_the_covariance_of_the_exact_process():
    task, count = curve(m=5, padding=2), 20_000
    context, x, mask = task.context, task.target.x, task.target.mask
    paths = np.asarray(eqx.filter_jit(sample_paths)(EXACT, context, x, jax.random.key(3), count, Plan(), mask))
    paths, known, at = paths[:, :5, 0], np.asarray(context.x[:4]), np.asarray(x[:5])
    kernel = lambda a, b: 1.44 * np.exp(-np.square(a - b.T) / (2 * 0.49))  # noqa: E731
    across = kernel(at, known) @ np.linalg.inv(kernel(known, known) + 0.09 * np.eye(4))
    covariance = kernel(at, at) - across @ kernel(known, at) + 0.09 * np.eye(5)
    error = 5 / np.sqrt(count)  # five standard errors of a covariance of about 1
    np.testing.assert_allclose(np.cov(paths.T), covariance, atol=error)
    np.testing.assert_allclose(paths.mean(0), (across @ np.asarray(context.y[:4]))[:, 0], atol=error)


def test_functions_are_the_mean_given_what_was_drawn():
    """Given as many outputs as determine it, the function hardly depends on their noise."""
    task, x = curve(), jnp.linspace(-2, 2, 9)[:, None]
    inputs = jnp.linspace(-2, 2, 40)[:, None]
    functions = eqx.filter_jit(sample_functions)(
        EXACT, task.context, inputs, x, jax.random.key(0), 30, Plan(CoarseToFine())
    )
    exact = predict(task.context, x)
    assert functions.shape == (30, 9, 1)
    latent = jnp.sqrt(exact.std**2 - 0.09)
    z = (functions.mean(0) - exact.mean) / latent
    assert abs(z).max() < 4 / np.sqrt(30) and 0.5 < float((functions.std(0) / latent).mean()) < 1.2


@pytest.mark.parametrize("variant", EVERY)
def test_the_least_work_gives_what_encoding_everything_gives(variant):
    assert_as_encoded(EVERY[variant])


@pytest.mark.parametrize("variant", ONE_UPDATE)
def test_one_update_is_added_up(variant):
    task = random_task(ONE_UPDATE[variant])
    links = chain(build(ONE_UPDATE[variant]), task.context, task.target.x, task.target.mask)
    assert isinstance(links, Adding)
    assert_as_encoded(ONE_UPDATE[variant])


def assert_as_encoded(variant):
    """The prediction after two blocks: by the chain of the model, and by encoding all that is known."""
    model, task = build(variant), random_task(variant, m=5)
    context, target = task.context.pad(7), task.target.pad(8)

    @eqx.filter_jit
    def by_both(model):
        links = chain(model, context, target.x, target.mask)
        known = links.initial()
        for rows in (jnp.array([0, 1]), jnp.array([3, 2])):
            known = links.add(known, 7 + rows, target.y[rows])
        points = join(task.context, jax.tree.map(lambda a: a[:4], task.target))
        return links.predict(known, jnp.array([11])), model.predict(model.encode(points), target.x[4:5])

    for ours, expected in zip(*map(jax.tree.leaves, by_both(model)), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=2e-5, atol=2e-5)


def test_orders():
    x, key = jnp.array([[0.5], [-2.0], [9.0], [1.5], [-1.0], [9.0]]), jax.random.key(0)
    mask = jnp.array([True, True, False, True, True, False])
    assert LeftToRight()(x, mask, key)[:4].tolist() == [1, 4, 0, 3]
    assert CoarseToFine()(x, mask, key)[:4].tolist() == [1, 0, 4, 3]
    assert Given()(x, mask, key).tolist() == [0, 1, 3, 4, 2, 5]
    drawn = jax.vmap(lambda key: Random()(x, mask, key))(jax.random.split(key, 6000))
    assert (np.sort(drawn[:, 4:], axis=1) == [2, 5]).all(), "padding comes last"
    counts = np.unique(np.asarray(drawn[:, :4]) @ [64, 16, 4, 1], return_counts=True)[1]
    assert len(counts) == 24 and abs(counts - 250).max() < 5 * np.sqrt(250)


def test_labels_are_drawn_as_often_as_is_predicted():
    prediction = Categorical(jnp.array([[0.0, 1.0, 5.0], [2.0, -1.0, 5.0]]), jnp.array([True, True, False]))
    shares = prediction.sample(jax.random.key(0), 10_000).mean(0)
    np.testing.assert_allclose(shares, prediction.probabilities, atol=4 * 0.5 / 100)


def test_the_paths_of_a_classifier_are_as_frequent_as_their_joint_probability():
    variant, count = CLASSIFIERS[0], 4000
    model, task = build(variant), random_task(variant, m=2)
    paths = eqx.filter_jit(sample_paths)(model, task.context, task.target.x, jax.random.key(0), count, Plan(Given()))
    labels = jnp.eye(4)
    every = jnp.stack([jnp.stack([labels[i], labels[j]]) for i in range(4) for j in range(4)])

    @eqx.filter_jit
    def probability(y):
        path = Task(task.context, Points(task.target.x, y, task.target.mask))
        return jnp.exp(joint_log_prob(model, path, jax.random.key(0), Plan(Given())))

    expected = np.array([probability(y) for y in every])
    found = np.array([(paths == y).all((1, 2)).mean() for y in every])
    np.testing.assert_allclose(expected.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(found, expected, atol=4 * 0.5 / np.sqrt(count))
