"""What figures must show; how they look is judged by eye."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from examples import untrained
from metafun.config.space import Range
from metafun.errors import InvalidConfig
from metafun.estimators.trained import open_trained
from metafun.plots import regression, search, sensors, step_by_step, style, tables, training
from metafun.plots.classification import plot_episodes
from metafun.tasks.sinusoid import Sinusoid


def test_glyphs_are_ink_on_paper(tmp_path):
    """Although their background is noise, whose median is above zero."""
    trained = open_trained("glyphs")
    _, episodes = next(trained.experiment.test_tasks())
    path = plot_episodes(trained.model, episodes, (28, 28), 0, tmp_path / "episodes.png")
    shade = np.asarray(Image.open(path).convert("L"), float) / 255
    assert 0.01 < (shade < 0.3).mean() < 0.15 and (shade > 0.7).mean() > 0.75


def test_pruned_trials_are_hollow_and_the_best_is_red(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "save", lambda figure, path: figure)
    ranges = {
        "training.learning_rate": Range(log_uniform=(1e-4, 1e-1)),
        "model.initial.kind": Range(choices=("a", "b")),
    }
    trials = [
        ({"training.learning_rate": 1e-1, "model.initial.kind": "a"}, 0.1, True),
        ({"training.learning_rate": 1e-4, "model.initial.kind": "b"}, 0.3, False),
    ]
    for axis, places in zip(search.plot_slices(ranges, trials, tmp_path / "f.png").axes, ([1, 0], [0, 1]), strict=True):
        completed, pruned, best = (points.get_offsets().data for points in axis.collections)
        np.testing.assert_allclose(completed, [[places[0], 0.1]])
        np.testing.assert_allclose(pruned, [[places[1], 0.3]])
        np.testing.assert_allclose(best, completed)
    (axis,) = search.plot_parallel(ranges, trials, tmp_path / "f.png").axes
    drawn = {tuple(line.get_ydata()) for line in axis.get_lines() if len(line.get_ydata()) == 3}
    assert drawn == {(1, 0, 0), (0, 1, 1)}


@pytest.fixture
def kept(monkeypatch):
    """Figures are returned, not saved."""
    for module in (regression, sensors, step_by_step, training):
        monkeypatch.setattr(module, "save", lambda figure, path: figure)


def test_a_kind_of_model_is_the_better_of_default_and_tuned():
    scores = {"ridge": {8: 0.1, 16: 0.3}, "ridge, tuned": {8: 0.2, 16: 0.2, 32: 0.5}, "MetaFun": {8: 0.0}}
    assert tables.best_of_kind(scores) == {"ridge": {8: 0.2, 16: 0.3, 32: 0.5}, "MetaFun": {8: 0.0}}


def test_an_svg_swaps_paper_and_ink_on_a_dark_page(tmp_path):
    figure = Figure()
    figure.subplots().plot([0, 1], color=style.INK)
    text = style.save(figure, tmp_path / "f.svg").read_text("utf-8")
    assert text.count("prefers-color-scheme: dark") == 1 and text.index("prefers") < text.index("</style>")
    for drawn, colour in (("fill: #ffffff", "paper"), ("stroke: #1a1a1a", "ink")):
        assert re.search(f'style="[^"]*{drawn}', text) and f'[style*="{drawn}"]' in text, colour


def test_the_first_wave_of_the_comparison_is_large(kept, tmp_path):
    models = {name: open_trained("sinusoid").model for name in ("one", "two")}
    figure = regression.plot_comparison(models, Sinusoid((5, 5), 10, 15), 0, tmp_path / "f.png")
    truth = figure.axes[0].get_lines()[0].get_ydata()
    np.testing.assert_allclose([truth.min(), truth.max()], [-regression.AMPLITUDE, regression.AMPLITUDE], rtol=1e-3)
    np.testing.assert_array_equal(figure.axes[1].get_lines()[0].get_ydata(), truth)


def test_curves_are_compared_on_the_same_tasks_with_the_exact_process(kept, tmp_path):
    first, second = untrained("gp-paper-kfp"), untrained("gp-paper-dfp")
    models = {"KFP": first.model, "DFP": second.model}
    figure = regression.plot_curve_comparison(models, first.tasks.training(), 0, tmp_path / "f.png")
    titles = [axis.get_title() for axis in figure.axes]
    assert titles == [f"{name}, {n} context points" for n in (5, 15) for name in models]
    for left, right in (figure.axes[:2], figure.axes[2:]):
        (exact, context, ours), (exact_2, context_2, others) = left.get_lines(), right.get_lines()
        assert [line.get_label() for line in left.get_lines()] == ["exact GP", "context", "the model"]
        np.testing.assert_array_equal(exact.get_ydata(), exact_2.get_ydata())
        np.testing.assert_array_equal(context.get_ydata(), context_2.get_ydata())
        assert not np.allclose(ours.get_ydata(), others.get_ydata())


def test_sensors_show_the_readings_and_the_errors_of_all_seeds(kept, tmp_path):
    hours = np.linspace(0, 24, 5)
    predictions = {name: (hours, np.ones(5)) for name in ("meta_fit", sensors.GAUSSIAN_PROCESS)}
    panel = sensors.Sensor(hours, hours, (hours[:2], hours[:2] + 1), predictions)
    errors = {"pooled forest": [3.0, 4.0], sensors.GAUSSIAN_PROCESS: [1.0, 2.0], "meta_fit": [0.5, 0.25]}
    first, last = sensors.plot_sensors([panel], errors, "meta_fit", tmp_path / "f.svg").axes
    labels = [line.get_label() for line in first.get_lines()]
    assert labels == ["truth", "MetaFun, with 95 % interval", "Gaussian process", "2 readings"]
    shown = ["MetaFun: 0.38 °C", "Gaussian process: 1.50 °C", "pooled forest: 3.50 °C"]
    assert [text.get_text() for text in last.texts] == shown
    assert [sorted(line.get_xdata()) for line in last.get_lines()] == [[0.25, 0.5], [1.0, 2.0], [3.0, 4.0]]


def test_a_validation_curve_is_never_one_dot(kept, tmp_path):
    losses = [{"step": step, "loss": [1 / step, 2 / step]} for step in (1, 10, 20)]
    figure = training.plot_training([*losses, {"step": 20, "validation": [0.1, 0.2]}], tmp_path / "f.png")
    for axis in figure.axes:
        for line in axis.get_lines():
            assert len(line.get_xdata()) > 1 and line.get_marker() == "None"
        assert axis.get_xlim() == (0, 20)
    assert figure.axes[1].get_title() == "measured once, at step 20: 0.1, 0.2"
    (text,) = training.plot_training(losses, tmp_path / "f.png").axes[1].texts
    assert text.get_text() == "not measured in this run"


def test_directions_are_orthogonal_and_ordered_by_their_share():
    steps = jnp.zeros((2, 3, 4)).at[0, :, 1].set(-2.0).at[1, :, 3].set(jnp.array([1.0, -1.0, 1.0]))
    directions, shares = step_by_step.leading_directions(steps, 2)
    np.testing.assert_allclose(np.abs(directions.T), np.eye(4)[[1, 3]], atol=1e-6)
    np.testing.assert_allclose(shares, [12 / 15, 3 / 15], rtol=1e-5)
    assert directions[1, 0] < 0, "the first step goes up"


@pytest.mark.parametrize("preset", ["gp-paper-kfp", "sinusoid-kernel"])
def test_a_row_shows_the_local_updates_their_pooling_and_the_step(kept, tmp_path, preset):
    trained = untrained(preset)
    figure = step_by_step.plot_step_by_step(trained.model, trained.experiment, tmp_path / "f.png")
    rows = np.reshape(figure.axes, (trained.model.iterations, 4))
    task = step_by_step._test_task(trained.experiment)
    representation = trained.model.encode(task.context)
    shown = min(3, representation.updates.shape[-1])
    x = jnp.asarray(rows[0, 1].get_lines()[-1].get_xdata())[:, None]
    prediction = trained.model.predict_trajectory(representation, x).mean[..., 0]
    for t, (local, pooled, step, predicted) in enumerate(rows):
        points = [line for line in local.get_lines() if line.get_marker() == "o"]
        assert len(points) == shown
        np.testing.assert_allclose(points[0].get_xdata(), task.context.x[:, 0])
        pools = [line.get_ydata() for line in pooled.get_lines()[-shown:]]
        before, after = (
            [line.get_ydata() for line in step.get_lines()[part]] for part in (slice(shown), slice(shown, None))
        )
        np.testing.assert_allclose(pools, np.subtract(after, before), atol=1e-5)
        lines = predicted.get_lines()
        np.testing.assert_allclose(lines[1].get_ydata(), prediction[t], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(lines[2].get_ydata(), prediction[t + 1], rtol=1e-4, atol=1e-4)
        # Σᵢ k(x, xᵢ) of the local updates, at the first direction, is the pooled update.
        weights = representation.weights(x)[0]
        np.testing.assert_allclose(weights @ points[0].get_ydata(), pools[0], rtol=1e-3, atol=1e-4)
    assert any("of its movement" in text.get_text() for text in figure.legends[0].get_texts())


def test_the_shipped_sinusoid_pools_evenly_and_gp_rbf_does_not():
    """docs/notation.md says so of its pictures."""
    for name, even in (("sinusoid", True), ("gp-rbf", False)):
        trained = open_trained(name)
        task = step_by_step._test_task(trained.experiment)
        weights = trained.model.weights(trained.model.encode(task.context), task.target.x)
        assert np.allclose(weights, 1 / len(task.context.x), atol=0.01) == even


@pytest.mark.parametrize(
    ("preset", "what"),
    [
        ("maml", "MAML"),
        ("gp-stochastic", "StochasticMetaFun"),
        ("tables-regression", "16 inputs, regression, .*"),
    ],
)
def test_only_metafun_for_regression_on_a_line_is_drawn_step_by_step(tmp_path, preset, what):
    trained = untrained(preset)
    with pytest.raises(InvalidConfig, match=f"but this model has: .*{what}; try metafun plot sinusoid"):
        step_by_step.plot_step_by_step(trained.model, trained.experiment, tmp_path / "f.png")
