"""The random search of the paper: draws that never change, trials of equal shape together, resumption, divergence."""

import io

import numpy as np
import pytest
from rich.console import Console

from examples import TINY_EPISODES, clusters
from metafun.config import load_config, load_space
from metafun.data.table_folder import save_table
from metafun.errors import Diverged, InvalidSearch
from metafun.schema import flatten, to_table
from metafun.training.random_search import RandomSearch
from metafun.training.run import Run

SPACE = """
["model.iterations"]
integers = [1, 2]

["model.representation"]
choices = [4, 8]
also = ["model.update.width"]

["training.learning_rate"]
log_uniform = [1e-3, 1e-1]
"""


@pytest.fixture
def space(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "data"))
    save_table(clusters(), tmp_path / "data", "a test")
    (tmp_path / "space.toml").write_text(SPACE)
    config = load_config("features", [*TINY_EPISODES, "tasks.data=clusters", "training.seeds=[0]"])
    return load_space(str(tmp_path / "space.toml"), config)


@pytest.fixture
def console():
    return Console(file=io.StringIO())


def paper_space(preset, *settings, fixed=()):
    return load_space("space-table4", load_config(preset, settings), fixed)


def test_the_draws_of_table_3_never_change():
    """Recorded once: the commands in docs/results.md must draw the same trials in every version."""
    drawn = paper_space("mini-dfp-1shot").draw(0, 0)
    expected = {
        "model.iterations": 5,
        "model.update.layers": 3,
        "model.pooling.layers": 2,
        "model.representation": 64,
        "model.initial.kind": "constant",
        "training.learning_rate": 8.93713335930666e-05,
        "model.step_size": 0.1,
        "model.decoder.dropout": 0.3743859810768932,
        "model.orthogonality": 0.00010667206230499218,
        "model.l2": 1.331562021647254e-10,
        "model.loss.label_smoothing": 0.0,
    }
    assert drawn.keys() == expected.keys()
    for key, value in expected.items():
        assert drawn[key] == (pytest.approx(value, rel=1e-12) if isinstance(value, float) else value)


def test_all_rows_of_table_3_draw_the_same_values():
    full = paper_space("mini-dfp-1shot")
    fixed = ("model.update.layers", "model.step_size")
    other = paper_space("mini-kfp-5shot", "model.update.kind=gradient", fixed=fixed)
    for trial in range(64):
        expected, drawn = full.draw(0, trial), other.draw(0, trial)
        assert drawn == {key: expected[key] for key in drawn} and len(drawn) == 10
    assert full.draw(1, 0) != full.draw(0, 0)


def test_draws_are_independent_and_follow_their_ranges():
    space = paper_space("mini-dfp-1shot")
    drawn = [space.draw(0, trial) for trial in range(2000)]
    for key, values in space.ranges.items():
        column = [values_of_trial[key] for values_of_trial in drawn]
        if values.choices or values.integers:
            options = values.choices or tuple(range(values.integers[0], values.integers[1] + 1))
            share, expected = [column.count(option) / len(drawn) for option in options], 1 / len(options)
        else:
            low, high = values.examples
            scaled = np.array(column) if values.uniform else np.log(column)
            bounds = (low, high) if values.uniform else np.log((low, high))
            share, expected = np.histogram(scaled, bins=4, range=bounds)[0] / len(drawn), 1 / 4
        assert np.sum(share) == pytest.approx(1)
        np.testing.assert_allclose(share, expected, rtol=0, atol=4 * np.sqrt(expected * (1 - expected) / len(drawn)))
    architectures = {(d["model.iterations"], d["model.update.layers"], d["model.initial.kind"]) for d in drawn[:64]}
    assert len(architectures) > 20, "32 trials once covered only 3 or 4"


def test_trials_of_equal_shape_train_together_and_can_be_resumed(space, console, tmp_path, monkeypatch):
    search = RandomSearch(tmp_path / "search", space, seed=0, trials=6)
    search.train(console)
    trials = search.trials()
    assert [trial.number for trial in trials] == list(range(6)) and all(np.isfinite(t.error) for t in trials)
    runs = sorted((tmp_path / "search").glob("trials-*"))
    shapes = {(v["model.iterations"], v["model.representation"]) for v in search.values.values()}
    assert len(runs) == len(shapes) > 1, "one run for each shape"
    assert sum(len(Run(path).experiment.variants) for path in runs) == 6
    best = search.best()
    assert best.error == min(trial.error for trial in trials)
    settings = flatten(to_table(search.config(best)))
    assert {key: settings[key] for key in search.values[best.number]} == search.values[best.number]
    monkeypatch.setattr(Run, "create", None)
    again = RandomSearch(tmp_path / "search", space, seed=0, trials=6)
    again.train(console)
    assert again.trials() == trials, "nothing is trained twice"


def test_a_trial_trains_as_it_would_alone(space, console, tmp_path):
    search = RandomSearch(tmp_path / "search", space, seed=0, trials=6)
    search.train(console)
    together = max(search.space.together(search.values), key=len)
    assert len(together) > 1
    alone = Run.create(tmp_path / "alone", search.space.configure(search.values[together[1]]))
    list(alone.train())
    assert search.trials()[together[1]].error == pytest.approx(alone.record.best_error[0], abs=1e-5)


def test_a_diverged_trial_loses(space, console, tmp_path, monkeypatch):
    def diverge(run):
        raise Diverged("the loss became NaN")

    search = RandomSearch(tmp_path / "search", space, seed=0, trials=2)
    monkeypatch.setattr(Run, "train", diverge)
    search.train(console)
    assert [trial.error for trial in search.trials()] == [np.inf] * 2
    with pytest.raises(InvalidSearch, match="all 2 trials diverged; narrow the space"):
        search.best()


def test_a_trial_that_diverged_after_a_validation_loses(space, console, tmp_path, monkeypatch):
    search = RandomSearch(tmp_path / "search", space, seed=0, trials=2)
    train = Run.train

    def diverge(run):
        if run.path == first.path:
            training = train(run)
            next(metrics for metrics in training if metrics.validation is not None)
            training.close()
            raise Diverged("the loss became NaN")
        yield from train(run)

    first = search._run(search._groups[0])
    monkeypatch.setattr(Run, "train", diverge)
    search.train(console)
    errors = [trial.error for trial in search.trials()]
    assert errors[search._groups[0][0]] == np.inf and np.isfinite(errors).any()


def test_an_error_in_one_run_stops_the_others_and_time_adds_up(space, console, tmp_path, monkeypatch):
    search = RandomSearch(tmp_path / "search", space, seed=0, trials=6)
    began = []

    def fail(run):
        began.append(run.path)
        raise RuntimeError("no memory")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="no memory"):
        patched.setattr(Run, "train", fail)
        search.train(console)
    assert len(began) < len(search._groups), "those that were waiting did not start"
    spent = search.seconds
    search.train(console)
    assert search.seconds > spent >= 0
