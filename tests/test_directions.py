"""Directions of features: discriminants, principal components, and when a model starts in them."""

import dataclasses
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples import TINY_EPISODES
from metafun.config import load_config, resolve
from metafun.data import Table
from metafun.data.table_folder import save_table
from metafun.embeddings.linear import LinearMap
from metafun.errors import InvalidConfig
from metafun.model.similarity import class_means, negative_distances
from metafun.tasks.directions import BETWEEN, Scatter, along_first_component, discriminant, principal
from metafun.tasks.episode_tasks import EpisodeTasks
from metafun.tasks.preprocessing import unit
from metafun.training.protocol import choose_step
from metafun.training.run import Run
from metafun.training.trainer import Trainer


def test_the_scatter_of_rows():
    rng = np.random.default_rng(0)
    classes = [rng.normal(size=(7, 4)) + rng.normal(size=4) for _ in range(5)]
    found = Scatter.of(classes)
    within = np.mean([np.cov(rows.T, bias=True) for rows in classes], axis=0)
    np.testing.assert_allclose(found.within, within)
    np.testing.assert_allclose(found.between, np.cov(np.array([r.mean(0) for r in classes]).T, bias=True))
    mixed = Scatter.mixed([(0.25, found), (0.75, Scatter(2 * found.within, found.between))])
    np.testing.assert_allclose(mixed.within, 1.75 * within)


def test_the_discriminant_in_closed_form():
    """With W = 1 and B diagonal, the directions are the axes, and their scales are (b + γ)^¼."""
    b = np.array([0.0, 4.0, 1.0])
    found = discriminant(Scatter(np.eye(3), np.diag(b)), 1.0)
    scales = (b / 2 + BETWEEN * b.mean() / 2) ** 0.25
    order = [1, 2, 0]
    expected = np.eye(3)[:, order] * scales[order] / np.sqrt(np.square(scales).mean())
    np.testing.assert_allclose(abs(found), expected, atol=1e-12)
    # Directions in which rows of the same class scatter count less.
    found = discriminant(Scatter(np.diag([9.0, 1.0]), np.zeros((2, 2))), 1.0)
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(lengths[1] / lengths[0], np.sqrt((9 + 5) / (1 + 5)))


def test_much_shrinkage_leaves_cosines_as_they_are():
    x = np.random.default_rng(0).normal(size=(20, 6))
    found = discriminant(Scatter.of([x[:10], x[10:]]), 1e6)
    np.testing.assert_allclose(unit(x @ found) @ unit(x @ found).T, unit(x) @ unit(x).T, atol=1e-5)


def test_classes_are_ordered_along_their_first_component():
    means = np.outer([0.0, 5.0, 1.0, 2.0], [1.0, -2.0]) + 0.01 * np.eye(4, 2)
    assert along_first_component(means) == along_first_component(means[:, ::-1]) == [0, 2, 3, 1]
    assert along_first_component(np.ones((3, 2))) == [0, 1, 2]


def test_principal_components_leave_cosines_as_they_are():
    x = np.random.default_rng(0).normal(size=(20, 6)) * np.arange(1, 7)
    scatter = Scatter.of([x[:10], x[10:]])
    found = principal(scatter)
    np.testing.assert_allclose(unit(x @ found) @ unit(x @ found).T, unit(x) @ unit(x).T, atol=1e-12)
    variances = (found.T @ (scatter.within + scatter.between) @ found).diagonal()
    assert (np.diff(variances) <= 1e-12).all(), "the largest first"


@pytest.mark.parametrize("rows", [np.zeros((4, 3)), np.ones((1, 3)), np.eye(3)[:1]])
def test_rows_that_do_not_vary_give_finite_directions(rows):
    for found in (discriminant(Scatter.of([rows, rows]), 1.0), principal(Scatter.of([rows, 2 * rows]))):
        assert np.isfinite(found).all() and np.linalg.matrix_rank(found) == 3


def test_the_map_starts_in_its_directions_and_learns_the_leading_ones():
    directions = np.random.default_rng(0).normal(size=(5, 5))
    embed, x = LinearMap(5, 2).along(jnp.asarray(directions)), jnp.ones((3, 5))
    np.testing.assert_allclose(embed(x, None), x @ directions, rtol=1e-5)
    embed = eqx.tree_at(lambda e: e.weights, embed, jnp.array([[0.0, 1.0], [0.0, 0.0]]))
    z = x @ directions
    np.testing.assert_allclose(embed(x, None), z.at[:, 1].add(z[:, 0]), rtol=1e-5)
    gradient = eqx.filter_grad(lambda e: (e(x, None) ** 2).sum())(embed)
    assert not gradient.directions.any() and gradient.weights.any()
    assert LinearMap(5).along(jnp.asarray(directions)).directions is None and LinearMap(3, 128).weights.shape == (3, 3)


def noisy_table(misleading: bool = False) -> Table:
    """Classes differ in four columns of twelve; the others are noise. `misleading`: not the classes of train."""
    rng = np.random.default_rng(1)
    classes, rows = 60, 20
    splits = np.array(["train", "val", "test"])[np.arange(classes) % 3]
    scale = np.repeat([1.0, 0.0], [4, 8])
    centres = rng.normal(size=(classes, 12)) * scale
    spread = np.tile(np.repeat([0.6, 1.5], [4, 8]), (classes, 1))
    if misleading:
        centres[splits == "train"] = rng.normal(size=(20, 12)) * scale[::-1]
        spread[splits == "train"] = np.repeat([1.5, 0.1], [4, 8])
    x = centres[:, None] + spread[:, None] * rng.normal(size=(classes, rows, 12))
    labels = [f"c{i:02}" for i in range(classes) for _ in range(rows)]
    return Table.of("noisy", x.reshape(-1, 12).astype(np.float32), labels, np.repeat(splits, rows).tolist())


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path))

    def save(**settings) -> EpisodeTasks:
        save_table(noisy_table(**settings), tmp_path, "random numbers")
        return EpisodeTasks(data="noisy", queries=5, choose=True, discriminant=True)

    return save


def test_directions_are_taken_where_they_help(data):
    tasks = data().resolve(validates=True)
    (found,) = tasks.nearest_means(500)
    likelihoods = [found.log_likelihoods(factor * tasks.temperature).mean() for factor in (0.5, 1.0, 2.0)]
    assert likelihoods[1] == max(likelihoods), "and the temperature fits"
    plain = dataclasses.replace(tasks, discriminant=False)
    assert tasks.discriminant and tasks.centre and not tasks.choose
    gain = tasks.nearest_means(200)[0].accuracies.mean() - plain.nearest_means(200)[0].accuracies.mean()
    assert gain > 0.05


def test_training_classes_that_mislead_are_not_followed(data):
    tasks = data(misleading=True)
    resolved = tasks.resolve(validates=True)
    assert not resolved.discriminant
    harm = dataclasses.replace(resolved, centre=True, mean=None, discriminant=True)
    assert harm.nearest_means(200)[0].accuracies.mean() < resolved.nearest_means(200)[0].accuracies.mean() - 0.02
    assert dataclasses.replace(tasks, val_share=1.0).resolve(validates=True).discriminant, "classes of val do not"


def test_a_model_starts_as_the_nearest_class_mean_in_these_directions(data, tmp_path):
    data()
    settings = [s for s in TINY_EPISODES if not s.startswith(("embedding", "model.similarity", "tasks."))]
    changes = {"tasks.data": "noisy", "tasks.queries": 5, "tasks.choose": False, "tasks.temperature": 0.2}
    experiment = resolve(load_config("own-features", settings, {**changes, "training.seeds": [0, 1]}))
    directions = experiment.tasks.directions()
    run = Run.create(tmp_path / "run", experiment)
    trainer = Trainer(experiment)
    start = trainer.experiment.build_model(jax.random.key(0), directions)
    task = experiment.tasks.validation().sample(jax.random.key(0))
    context = dataclasses.replace(task.context, x=unit(task.context.x @ directions))
    expected = negative_distances(unit(task.target.x @ directions), class_means(context)) / (2 * 0.2)
    found = start.predict(start.encode(task.context), task.target.x).probabilities
    np.testing.assert_allclose(found, jax.nn.softmax(expected), atol=1e-5)
    assert not np.asarray(trainer.start(is_new=False).parameters == trainer.start().parameters).all()
    for _ in run.train():
        pass
    for which in ("best", "last"):
        trained = run.models(which).embedding
        np.testing.assert_allclose(trained.directions, np.stack([directions] * 2), atol=1e-6)
    assert np.abs(run.models("last").embedding.weights).max() > 1e-4


def test_images_have_no_directions():
    with pytest.raises(InvalidConfig, match=r"tasks\.discriminant is for features"):
        load_config("omniglot-5way-1shot", ["tasks.discriminant=true"])


class Tuned(Run):
    """A run with given validation errors of two seeds, every ten steps."""

    config = SimpleNamespace(training=SimpleNamespace(seeds=(0, 1)))
    record = SimpleNamespace(seconds=1.0)

    def __init__(self, *errors: list[float]):
        self.errors = errors

    def metrics(self):
        return [{"step": 10 * i, "validation": each} for i, each in enumerate(self.errors)]


def test_what_was_learned_must_be_better_in_every_fold():
    better = Tuned([0.5, 0.5], [0.3, 0.3], [0.4, 0.4])
    assert choose_step([better, Tuned([0.5, 0.5], [0.6, 0.5], [0.4, 0.5])])["step"] == 20, "10 is worse in one"
    assert choose_step([better, Tuned([0.5, 0.5], [0.6, 0.6], [0.6, 0.6])])["step"] == 0
    assert choose_step([better])["step"] == 10
