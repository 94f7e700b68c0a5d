"""What figures must show; how they look is judged by eye."""

import numpy as np
from PIL import Image

from metafun.config.space import Range
from metafun.estimators.trained import open_trained
from metafun.plots import search
from metafun.plots.classification import plot_episodes


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
