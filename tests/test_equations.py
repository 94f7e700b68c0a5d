"""The paper's equations, written out a second time without shortcuts."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import CLASSES, CLASSIFIERS, DX, DY, VARIANTS, build, loss, name, predict, random_task
from metafun.model.decoders import Identity
from metafun.model.initial import Zero
from metafun.model.likelihoods import Gaussian, Normal, SquaredError
from metafun.model.metafun import MetaFun
from metafun.model.pooling import Attention, SquaredExponential
from metafun.model.task import Points
from metafun.model.updates import GradientUpdate

every_variant = pytest.mark.parametrize("variant", VARIANTS + CLASSIFIERS, ids=name)


@eqx.filter_jit
def iterate(model, context, x):
    """r⁽⁰⁾, …, r⁽ᵀ⁾ by Equations 6 to 9 as printed; the first rows of x are the context."""
    n, classes = len(context.x), model.likelihood.classes(context)

    def context_loss(r):
        return model.likelihood.loss(model.likelihood(model.decode(r, context.x), classes), context.y).mean()

    r = [model.initial(x) if classes is None else jnp.repeat(model.initial(x)[:, None], CLASSES, axis=1)]
    for t in range(model.iterations):
        pool, update = model.pools[t % len(model.pools)], model.updates[t % len(model.updates)]
        u = update(context, r[-1][:n], context_loss)
        k = pool.weights(pool.embed(x), pool.embed(context.x), context.mask)
        heads = k if k.ndim == 3 else k[None]
        slices = jnp.split(u, len(heads), axis=-1)
        moves = [jnp.einsum("mn,n...->m...", head, part) for head, part in zip(heads, slices, strict=True)]
        r.append(r[-1] - model.step_size * jnp.concatenate(moves, axis=-1))
    return jnp.stack(r)


@eqx.filter_jit
def represent(model, context, x):
    representation = model.encode(context)
    return representation(x), representation.trajectory(x)


@every_variant
def test_the_collapsed_representation_equals_the_iteration_on_context_and_target(variant, float64):
    model, task = build(variant), random_task(variant)
    x = np.concatenate([task.context.x, task.target.x])
    expected = iterate(model, task.context, jnp.asarray(x))
    found, trajectory = represent(model, task.context, jnp.asarray(x))
    np.testing.assert_allclose(found, expected[-1], atol=1e-12)
    np.testing.assert_allclose(trajectory, expected, atol=1e-12)


def functional_gradient_descent(likelihood, step_size, iterations, dr) -> MetaFun:
    """Section 3, conditions i to iii: no decoder, a fixed kernel, the gradient as the local update."""
    return MetaFun(
        initial=Zero(dr),
        update=GradientUpdate(dr),
        pool=SquaredExponential(scale=1.3, lengthscale=0.7),
        decode=Identity(),
        likelihood=likelihood,
        step_size=step_size,
        iterations=iterations,
        context_weight=1.0,
        target_weight=1.0,
    )


def kernel(p, q):
    return 1.3**2 * np.exp(-np.square(p[:, None] - q[None]).sum(-1) / (2 * 0.7**2))


def test_squared_loss_has_a_closed_form(float64):
    """(I − (I − αK)ᵀ)·y at the context, for the loss ½Σᵢ(f(xᵢ) − yᵢ)²."""
    task, n, T, alpha = random_task(VARIANTS[0]), 5, 7, 0.11
    # Our loss is the mean of (f − y)² over points and outputs, so ½Σ is n·dy/2 times it.
    model = functional_gradient_descent(SquaredError(0.1), alpha * n * DY / 2, T, 2 * DY)
    prediction = predict(model, task.context, task.context.x)

    K = kernel(np.asarray(task.context.x), np.asarray(task.context.x))
    expected = (np.eye(n) - np.linalg.matrix_power(np.eye(n) - alpha * K, T)) @ task.context.y
    np.testing.assert_allclose(prediction.mean, expected, atol=1e-12)


@pytest.mark.parametrize("likelihood", [SquaredError(0.1), Gaussian(0.1)], ids=["squared-error", "gaussian"])
def test_functional_gradient_descent_is_a_special_case(likelihood, float64):
    """f⁽ᵗ⁺¹⁾(x) = f⁽ᵗ⁾(x) − α Σᵢ k(x, xᵢ) ∇ℓ(f⁽ᵗ⁾(xᵢ), yᵢ), for any loss (Equation 13)."""
    task, n, T, alpha = random_task(VARIANTS[0]), 5, 4, 0.2
    model = functional_gradient_descent(likelihood, alpha * n, T, 2 * DY)
    slope = jax.vmap(jax.grad(lambda f, y: likelihood.loss(likelihood(f[None]), y[None])[0]))

    x = jnp.concatenate([task.context.x, task.target.x])
    f = jnp.zeros((len(x), 2 * DY))
    K = kernel(np.asarray(x), np.asarray(task.context.x))
    for _ in range(T):
        f = f - alpha * K @ slope(f[:n], task.context.y)
    np.testing.assert_allclose(represent(model, task.context, x)[0], f, atol=1e-12)


@every_variant
def test_gradients_equal_finite_differences(variant, float64):
    """Along a random direction; one program gives the value and the gradient."""
    task, rng = random_task(variant), np.random.default_rng(0)
    arrays, static = eqx.partition(build(variant), eqx.is_inexact_array)
    evaluate = jax.jit(jax.value_and_grad(lambda arrays: eqx.combine(arrays, static).loss(task)))
    point = jax.tree.map(np.asarray, arrays)
    direction = jax.tree.map(lambda a: rng.normal(size=a.shape), point)
    _, gradient = evaluate(point)
    slope = sum(jax.tree.leaves(jax.tree.map(lambda g, d: np.vdot(g, d), gradient, direction)))
    above, below = (evaluate(jax.tree.map(lambda a, d, e=e: a + e * d, point, direction))[0] for e in (1e-6, -1e-6))
    np.testing.assert_allclose((above - below) / 2e-6, slope, atol=1e-6, rtol=1e-6)


def test_attention_weights_are_a_softmax_over_the_context(float64):
    model, task = build(VARIANTS[0]), random_task(VARIANTS[0])
    pool = model.pools[0]
    q, k = pool.embed(task.target.x), pool.embed(task.context.x)
    expected = jax.nn.softmax(q @ k.T / np.sqrt(7), axis=-1)
    np.testing.assert_allclose(pool.weights(q, k, task.context.mask), expected, atol=1e-14)
    np.testing.assert_allclose(model.weights(model.encode(task.context), task.target.x), expected, atol=1e-14)


def test_attention_survives_enormous_logits():
    pool = build(VARIANTS[0]).pools[0]
    q = jnp.full((2, 7), 1e18)
    weights = pool.weights(q, jnp.stack([q[0], -q[0], q[0]]), jnp.array([True, True, False]))
    np.testing.assert_array_equal(weights, [[1, 0, 0], [1, 0, 0]])


def test_kernel_weights_are_squared_exponential(float64):
    task = random_task(VARIANTS[0])
    pool = SquaredExponential(scale=1.3, lengthscale=0.7)
    weights = pool.weights(task.target.x, task.context.x, task.context.mask)
    np.testing.assert_allclose(weights, kernel(np.asarray(task.target.x), np.asarray(task.context.x)), atol=1e-14)


def test_kernel_weights_survive_inputs_far_from_zero():
    x = jnp.array([[1e4], [1e4 + 0.5], [1e4 + 1]])
    weights = SquaredExponential(scale=1.0, lengthscale=1.0).weights(x, x, jnp.ones(3, bool))
    np.testing.assert_allclose(weights[0], np.exp([0, -0.125, -0.5]), rtol=1e-6)


def test_modules_are_shared_or_one_for_each_iteration():
    model = build(VARIANTS[0])
    parts = dict(initial=model.initial, decode=model.decode, likelihood=model.likelihood, step_size=0.1)
    parts |= dict(context_weight=1.0, target_weight=1.0, pool=model.pools)
    with pytest.raises(ValueError, match="one module for all 5 iterations or one for each, not 2"):
        MetaFun(update=model.updates * 2, iterations=5, **parts)


def test_representation_does_not_grow_with_the_targets():
    """The size of a representation is set by the context, however many targets are predicted later."""
    model, task = build(VARIANTS[0]), random_task(VARIANTS[0])
    representation = model.encode(task.context)
    before = sum(leaf.size for leaf in jax.tree.leaves(representation))
    assert representation(jnp.zeros((10_000, DX))).shape == (10_000, 6)
    assert sum(leaf.size for leaf in jax.tree.leaves(representation)) == before


def test_normal_log_density(float64):
    density = Normal(jnp.array([[1.0, -2.0]]), jnp.array([[0.5, 2.0]])).log_prob(jnp.array([[0.0, 0.0]]))
    expected = sum(-(((0 - m) / s) ** 2) / 2 - np.log(s) - np.log(2 * np.pi) / 2 for m, s in ((1, 0.5), (-2, 2)))
    np.testing.assert_allclose(density, [expected])


def test_loss_weighs_context_and_target():
    task = random_task(VARIANTS[0])
    losses = {
        weights: loss(build(VARIANTS[0], context_weight=weights[0], target_weight=weights[1]), task)
        for weights in ((1.0, 0.0), (0.0, 1.0), (2.0, 3.0))
    }
    np.testing.assert_allclose(losses[2.0, 3.0], 2 * losses[1.0, 0.0] + 3 * losses[0.0, 1.0], rtol=1e-6)


def test_one_context_point_pulls_the_mean_towards_it():
    """Functional gradient descent moves f(x₁) towards y₁."""
    model = functional_gradient_descent(SquaredError(0.1), 0.1, 20, 2)
    context = Points.of(np.zeros((1, 1)), np.array([[3.0]]))
    means = eqx.filter_jit(lambda m: m.predict_trajectory(m.encode(context), context.x).mean)(model)[:, 0, 0]
    assert (np.diff(means) > 0).all() and abs(float(means[-1]) - 3) < 0.1


@pytest.mark.parametrize("kind", ["attention", "deep-kernel"])
def test_a_head_is_a_pooling_on_its_slice_of_the_embedding(kind, float64):
    variant = next(v for v in VARIANTS if v["pooling"] == kind and v["heads"] == 2)
    task, pool = random_task(variant), build(variant).pools[0]
    q, k, mask = pool.embed(task.target.x), pool.embed(task.context.x), task.context.mask
    weights = pool.weights(q, k, mask)
    assert weights.shape == (2, len(q), len(k))
    for h, columns in enumerate((slice(0, 4), slice(4, 8))):
        alone = Attention(pool.a) if kind == "attention" else jax.tree.map(lambda p, h=h: p[h], pool.kernel)
        np.testing.assert_allclose(weights[h], alone.weights(q[:, columns], k[:, columns], mask), atol=1e-12)
