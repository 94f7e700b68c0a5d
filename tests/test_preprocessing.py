"""Preprocessing of features: a power, centring and length one, and the choice among them."""

import dataclasses

import jax
import numpy as np
import pytest

from metafun.config import load_config, resolve
from metafun.data import Table
from metafun.data.table_folder import save_table
from metafun.errors import InvalidConfig
from metafun.tasks.episode_tasks import EpisodeTasks
from metafun.tasks.preprocessing import Preprocessing, clearly_best, raised, unit


def test_closed_form():
    x, mean = np.array([[4.0, -9.0, 0.0]]), np.array([1.0, 1.0, 1.0])
    np.testing.assert_allclose(raised(x, 0.5), [[2, -3, 0]])
    expected = np.array([[1.0, -4.0, -1.0]]) / np.sqrt(18)
    np.testing.assert_allclose(Preprocessing(0.5, mean)(x), expected, rtol=1e-6)
    np.testing.assert_allclose(Preprocessing()(x), unit(x), rtol=1e-6)


def test_a_later_candidate_must_be_clearly_better():
    noise = np.random.default_rng(0).normal(size=1000)
    assert clearly_best([noise, noise + 0.001 * noise[::-1]]) == 0
    assert clearly_best([noise, noise + 0.1, noise + 0.05]) == 1
    assert clearly_best([noise, noise]) == 0


@pytest.fixture
def outliers(tmp_path, monkeypatch):
    """Entries with long tails: few large ones hide what the others say of the class."""
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path))
    rng = np.random.default_rng(1)
    classes, rows, dx = 30, 12, 24
    centres = np.repeat(rng.normal(size=(classes, dx)), rows, axis=0)
    features = np.exp(2 * centres + 2 * rng.normal(size=centres.shape))
    labels = [f"c{i:02}" for i in range(classes) for _ in range(rows)]
    splits = [("train", "val", "test")[i % 3] for i in range(classes) for _ in range(rows)]
    save_table(Table.of("outliers", features.astype(np.float32), labels, splits), tmp_path, "random numbers")
    return features


def test_the_choice_is_made_on_validation_and_travels_with_the_model(outliers):
    tasks = EpisodeTasks(data="outliers", queries=4, choose=True).resolve(validates=True)
    assert tasks.power == 0.5 and not tasks.choose, "the power that tames the outliers most"
    assert tasks.resolve(validates=True) == tasks
    task = tasks.validation().sample(jax.random.key(0))
    found = tasks.scaling(outliers, None).scale_inputs(outliers)
    for row in np.asarray(task.context.x):
        assert np.abs(found - row).max(1).min() < 1e-4, "predictions see what training sees"
    final = tasks.including_validation().resolve(validates=False)
    assert (final.power, final.centre) == (tasks.power, tasks.centre)


def test_without_validation_features_are_centred(outliers):
    tasks = EpisodeTasks(data="outliers", queries=4, choose=True).resolve(validates=False)
    assert tasks.power == 1 and tasks.centre and tasks.mean is not None


def test_only_features_are_raised_to_a_power(outliers):
    for setting in ("tasks.power=0.5", "tasks.choose=true"):
        with pytest.raises(InvalidConfig, match=r"is for features, but tasks\.pixels makes rows images; drop one"):
            load_config("omniglot-5way-1shot", [setting])
    with pytest.raises(InvalidConfig, match=r"tasks\.power = 0\.0, but it must be between 0\.1 and 1"):
        load_config("features", ["tasks.power=0.0"])
    with pytest.raises(InvalidConfig, match="resolve the configuration"):
        EpisodeTasks(data="outliers", choose=True).validation()


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_features_that_are_all_equal_give_finite_inputs(tmp_path, monkeypatch, value):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path))
    labels = [f"c{i:02}" for i in range(18) for _ in range(8)]
    splits = [("train", "val", "test")[i % 3] for i in range(18) for _ in range(8)]
    table = Table.of("equal", np.full((144, 5), value, np.float32), labels, splits)
    save_table(table, tmp_path, "a number")
    settings = ["tasks.data=equal", "tasks.queries=4", "tasks.choose=true"]
    experiment = resolve(load_config("features", settings))
    model = experiment.build_model(jax.random.key(0))
    task = experiment.tasks.training().sample(jax.random.key(1))
    prediction = model.predict(model.encode(task.context), task.target.x)
    assert np.isfinite(prediction.probabilities).all() and np.isfinite(model.loss(task))
    assert dataclasses.replace(experiment.tasks, choose=False) == experiment.tasks
