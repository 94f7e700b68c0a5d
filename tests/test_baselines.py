"""The baselines against closed forms, hand-computed values and scikit-learn."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid

from examples import BASELINES, DX, loss, predict, random_task
from metafun.baselines.leo import deviation
from metafun.config import load_config, resolve
from metafun.config.baselines import LEOConfig, LogisticConfig, MAMLConfig, MatchingConfig, PrototypesConfig
from metafun.model.nn import count_parameters
from metafun.model.task import Task
from metafun.training.evaluation import MAX_TASKS_AT_ONCE, tasks_at_once

KEY = jax.random.key(0)

gradient_of_loss = eqx.filter_jit(eqx.filter_grad(lambda model, task: model.loss(task)))


def regression_task(n=6, m=5, dx=2, seed=0) -> Task:
    rng = np.random.default_rng(seed)
    return Task.of(*(rng.normal(size=(k, d)) for k in (n, m) for d in (dx, 1)))


def linear(**changes):
    """f(x) = w·x + b, adapted by one step on the squared error."""
    return MAMLConfig(layers=0, rate=0.1, **changes).build(2, 1, KEY)


def closed_form(model, task):
    """θ' = θ − η∇L and (I − ηH)∇L'(θ'), with L = |Xθ − y|²/n."""
    with_one = lambda points: np.c_[np.asarray(points.x), np.ones(len(points.x))]  # noqa: E731
    (x, y), (x_, y_) = ((with_one(p), np.asarray(p.y)) for p in (task.context, task.target))
    theta = np.concatenate([model.network.weights[0], model.network.biases[0][None]])
    adapted = theta - 0.1 * 2 / len(x) * x.T @ (x @ theta - y)
    gradient = 2 / len(x_) * x_.T @ (x_ @ adapted - y_)
    return adapted, gradient, (np.eye(3) - 0.1 * 2 / len(x) * x.T @ x) @ gradient


@pytest.mark.parametrize("first_order", [False, True])
def test_the_meta_gradient_of_linear_regression(first_order):
    model, task = linear(first_order=first_order, test_steps=1), regression_task()
    adapted, plain, meta = closed_form(model, task)
    found = gradient_of_loss(model, task).network
    expected = plain if first_order else meta
    np.testing.assert_allclose(jnp.concatenate([found.weights[0], found.biases[0][None]]), expected, rtol=1e-4)
    found = predict(model, task.context, task.target.x).mean
    np.testing.assert_allclose(found, np.c_[np.asarray(task.target.x), np.ones(5)] @ adapted, rtol=1e-4)


@pytest.mark.parametrize("learn_rates", [False, True])
def test_the_meta_gradient_agrees_with_finite_differences(learn_rates):
    config = MAMLConfig(width=8, activation="tanh", steps=3, rate=0.05, learn_rates=learn_rates)
    model, task = config.build(2, 1, KEY), regression_task()
    gradient = gradient_of_loss(model, task)
    arrays, numbers = eqx.partition(model, eqx.is_array)
    leaves, structure = jax.tree.flatten(arrays)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    direction = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]

    def moved(step):
        arrays = jax.tree.unflatten(structure, [p + step * d for p, d in zip(leaves, direction, strict=True)])
        return loss(eqx.combine(arrays, numbers), task)

    slope = sum((g * d).sum() for g, d in zip(jax.tree.leaves(gradient), direction, strict=True))
    np.testing.assert_allclose((moved(1e-3) - moved(-1e-3)) / 2e-3, slope, rtol=1e-2)


def test_learned_rates_start_as_the_common_rate():
    task = regression_task()
    plain, learned = (loss(linear(learn_rates=learn), task) for learn in (False, True))
    np.testing.assert_allclose(plain, learned, rtol=1e-6)


def test_a_trajectory_leads_from_the_start_to_the_prediction():
    model, task = MAMLConfig(width=16, test_steps=6).build(2, 1, KEY), regression_task()
    path = eqx.filter_jit(lambda m: m.predict_trajectory(m.encode(task.context), task.context.x).mean)(model)
    assert path.shape == (7, 6, 1)
    np.testing.assert_allclose(path[0], model.network(task.context.x), rtol=1e-6)
    np.testing.assert_allclose(path[-1], predict(model, task.context, task.context.x).mean, rtol=1e-5)
    errors = jnp.square(path - task.context.y).mean((1, 2))
    assert (np.diff(errors) < 0).all(), "each step descends"


def test_an_evaluation_of_large_networks_takes_fewer_tasks_at_a_time():
    tasks = load_config("sinusoid").tasks.training()
    small, wide = (
        tasks_at_once(resolve(load_config(preset)).build_model(KEY), tasks) for preset in ("maml", "maml-wide")
    )
    assert wide < small == MAX_TASKS_AT_ONCE
    few = tasks_at_once(resolve(load_config("sinusoid")).build_model(KEY), tasks)
    assert few == MAX_TASKS_AT_ONCE, "MetaFun has no parameters per task"


def test_descent_that_diverges_is_not_used():
    model, task = MAMLConfig(width=16, rate=3.0, steps=10).build(2, 1, KEY), regression_task()
    assert not jnp.isfinite(loss(model, eqx.tree_at(lambda t: t.target, task, task.context)))
    found = predict(model, task.context, task.context.x).mean
    error = lambda y: np.square(y - task.context.y).mean()  # noqa: E731
    assert error(found) <= error(model.network(task.context.x))


@pytest.mark.parametrize(("preset", "count"), [("maml", 1761), ("maml-large", 132_353), ("maml-wide", 2_102_273)])
def test_the_networks_have_the_size_of_the_papers(preset, count):
    assert count_parameters(resolve(load_config(preset)).build_model(KEY)) == count


def arrays(n=20, m=30, dx=6, classes=3):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(classes, dx))
    labels = np.concatenate([np.arange(n) % classes, rng.integers(classes, size=m)])
    x = (centres[labels] + 0.7 * rng.normal(size=(n + m, dx))).astype(np.float32)
    one_hot = np.eye(classes)[labels]
    return (x[:n], labels[:n], x[n:], labels[n:]), Task.of(x[:n], one_hot[:n], x[n:], one_hot[n:])


def test_prototypes_without_embedding_are_the_nearest_class_mean():
    (x, y, x_, _), task = arrays()
    model = PrototypesConfig(layers=0).build(6, 0, KEY)
    found = predict(model, task.context, task.target.x).probabilities.argmax(-1)
    np.testing.assert_array_equal(found, NearestCentroid().fit(x, y).predict(x_))


def test_with_one_example_of_each_class_matching_is_the_nearest_prototype():
    (_, _, x_, _), task = arrays(n=3)
    pair = [
        config(layers=0, cosine=True, temperature=0.1).build(6, 0, KEY) for config in (PrototypesConfig, MatchingConfig)
    ]
    a, b = (predict(model, task.context, x_).probabilities for model in pair)
    np.testing.assert_allclose(a, b, rtol=1e-5)


def test_matching_weighs_labels_by_similarity():
    (x, y, x_, _), task = arrays()
    model = MatchingConfig(layers=0, cosine=True, temperature=0.1).build(6, 0, KEY)
    unit = lambda a: a / np.linalg.norm(a, axis=1, keepdims=True)  # noqa: E731
    weights = np.exp(unit(x_) @ unit(x).T / 0.1)
    expected = weights @ np.eye(3)[y] / weights.sum(1, keepdims=True)
    found = predict(model, task.context, task.target.x).probabilities
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    shares = eqx.filter_jit(lambda m: m.weights(m.encode(task.context), task.target.x))(model)
    np.testing.assert_allclose(shares, weights / weights.sum(1, keepdims=True), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("c", [0.1, 1.0, 10.0])
def test_logistic_regression_is_scikit_learns(c):
    (x, y, x_, _), task = arrays()
    model = LogisticConfig(c=c, steps=2000).build(6, 0, KEY)
    found = predict(model, task.context, task.target.x).probabilities
    expected = LogisticRegression(C=c, tol=1e-8, max_iter=10_000).fit(x, y).predict_proba(x_)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def softmax(logits):
    e = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_the_latents_of_leo_by_hand():
    model, task = LEOConfig(latent=4).build(DX, 0, KEY), random_task(BASELINES[-1], n=5)
    x, y = np.asarray(task.context.x), np.asarray(task.context.y)
    h, (w1, w2, w3) = x @ model.encoder.weights[0], model.relation.weights
    found = eqx.filter_jit(lambda m: m.latents(task.context))(model)
    for k in np.flatnonzero(y.any(0)):
        own = np.flatnonzero(y[:, k])
        pairs = [[np.maximum(np.maximum(np.r_[h[i], h[j]] @ w1, 0) @ w2, 0) @ w3 for j in range(5)] for i in own]
        mean, s = np.split(np.mean(pairs, (0, 1)), 2)
        np.testing.assert_allclose(found.mean[k], mean, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found.std[k], np.maximum(np.exp(s) - 1, 1e-10), rtol=1e-3, atol=1e-6)


def test_one_step_of_each_inner_loop_of_leo_by_hand():
    config = LEOConfig(latent=4, latent_steps=1, weight_steps=1, weight_rate=0.3)
    model, task = config.build(DX, 0, KEY), random_task(BASELINES[-1], n=6, seed=2)
    there = np.flatnonzero(np.asarray(task.context.y).any(0))
    x, y = np.asarray(task.context.x), np.asarray(task.context.y)[:, there]
    decode = np.asarray(model.decode.linear.weights[0])[:, :DX]
    latents, encode = (eqx.filter_jit(method) for method in (model.latents, model.encode))
    z = np.asarray(latents(task.context).mean)[there]

    def slope(w):
        return len(there) * (softmax(x @ w.T) - y).T @ x / len(x)

    z = z - 1.0 * slope(z @ decode) @ decode.T
    w = z @ decode
    w = w - 0.3 * slope(w)
    np.testing.assert_allclose(encode(task.context).weights[there], w, rtol=1e-4, atol=1e-5)


def test_the_deviation_of_leo_starts_at_its_offset():
    np.testing.assert_allclose(deviation(jnp.zeros((1, 2)), 0.25), 0.25)
    np.testing.assert_allclose(deviation(jnp.full((1, 2), -5.0), 0.25), 1e-10)


def test_leo_averages_one_draw_for_each_example():
    model = LEOConfig(latent=4, latent_steps=1, weight_steps=1).build(DX, 0, KEY)
    # Steps of size 0: only the draws differ.
    model = eqx.tree_at(lambda m: (m.latent_rate, m.weight_rate), model, (jnp.zeros(4), jnp.zeros(DX)))
    x = np.random.default_rng(0).normal(size=(1, DX))
    spread = []
    for n in (1, 16):
        context = Task.of(np.repeat(x, n, 0), np.ones((n, 1)), x, np.ones((1, 1))).context
        keys = jax.random.split(KEY, 400)
        spread.append(jax.jit(jax.vmap(lambda key, c=context: model.encode(c, key).weights))(keys).std(0).mean())
    np.testing.assert_allclose(spread[0] / spread[1], 4, rtol=0.25)


def test_the_loss_of_leo_is_the_sum_of_its_parts():
    task = random_task(BASELINES[-1])
    total = lambda **weights: loss(LEOConfig(latent=4, **weights).build(DX, 0, KEY), task)  # noqa: E731
    parts = {"kl": 0.3, "encoder_penalty": 0.7, "l2": 1e-2, "orthogonality": 0.2}
    each = {name: total(**{name: weight}) - total() for name, weight in parts.items()}
    assert all(part > 1e-5 for part in each.values()), each
    np.testing.assert_allclose(total(**parts), total() + sum(each.values()), rtol=1e-4)
