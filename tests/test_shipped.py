"""The shipped checkpoints score what their headers record, and work without further training."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from metafun import MetaFunClassifier, MetaFunRegressor
from metafun.config import Experiment
from metafun.data import open_table
from metafun.estimators.trained import SHIPPED, locate
from metafun.training.checkpoint import Checkpoint
from metafun.training.evaluation import evaluate

ROOT = Path(__file__).parent.parent
TASKS = 60


@pytest.mark.slow
@pytest.mark.parametrize("name", SHIPPED)
def test_metrics_are_those_recorded(name):
    opened = Checkpoint(locate(name))
    config = replace(opened.experiment.config, evaluation=replace(opened.experiment.evaluation, tasks=TASKS))
    found = evaluate(opened.models(), Experiment(config))
    for metric, recorded in opened.record["metrics"].items():
        if recorded["interval"] is None or metric.startswith("oracle"):
            continue
        # Four standard errors of a difference of two means; the recorded one is over all 10,000 tasks.
        spread = np.hypot(found[metric]["interval"], recorded["interval"]) / 1.96
        assert abs(found[metric]["mean"] - recorded["mean"]) < 4 * spread, metric


def test_recorded_metrics_are_those_of_the_results():
    lines = [json.loads(line) for line in (ROOT / "results" / "shipped.jsonl").read_text("utf-8").splitlines()]
    assert {line["checkpoint"] for line in lines} == set(SHIPPED)
    for line in lines:
        assert line["metrics"] == Checkpoint(locate(line["checkpoint"])).record["metrics"]


def test_checkpoints_are_small():
    sizes = {name: locate(name).stat().st_size for name in SHIPPED}
    assert sum(size for name, size in sizes.items() if not name.startswith("tables")) < 5e6
    # Models for any table are larger.
    assert max(sizes.values()) < 5e6 and sum(sizes.values()) < 10e6


def test_curves_predicts_a_series_in_any_units_and_its_uncertainty():
    t, new = np.linspace(2001, 2013, 12), np.linspace(1998, 2016, 90)
    value = 3e4 + 1e3 * np.sin((t - 2001) / 2)
    mean, std = MetaFunRegressor("curves").fit(t, value).predict(new, return_std=True)
    error, inside = abs(mean - 3e4 - 1e3 * np.sin((new - 2001) / 2)), (new > 2001) & (new < 2013)
    assert error[inside].max() < 150
    assert std[new > 2015].min() > 3 * std[inside].max(), "uncertainty grows away from the context"
    assert (error < 3 * std).mean() > 0.95


def test_gp_rbf_predicts_a_curve_and_its_uncertainty():
    x = np.linspace(-2, 2, 200)[:, None]
    context = np.linspace(-1.8, 0.6, 9)[:, None]
    mean, std = MetaFunRegressor("gp-rbf").fit(context, np.sin(2 * context[:, 0])).predict(x, return_std=True)
    inside = (x[:, 0] > -1.8) & (x[:, 0] < 0.6)
    assert np.abs(mean - np.sin(2 * x[:, 0]))[inside].max() < 0.1
    assert std[x[:, 0] > 1.5].min() > 3 * std[inside].max(), "uncertainty grows away from the context"
    assert (np.abs(mean - np.sin(2 * x[:, 0])) < 3 * std).mean() > 0.95


def test_glyphs_classifies_new_characters():
    glyphs, rng = open_table("glyphs"), np.random.default_rng(0)
    classes = glyphs.split("test")[:7]
    drawn = [rng.permutation(rows.count)[:6] + rows.start for rows in classes]
    names = [rows.name for rows in classes]
    context, others = (np.concatenate([rows[part] for rows in drawn]) for part in (slice(0, 3), slice(3, 6)))
    model = MetaFunClassifier("glyphs").fit(glyphs.features[context], np.repeat(names, 3))
    assert model.score(glyphs.features[others], np.repeat(names, 3)) > 0.8


def test_inputs_outside_the_training_range_give_a_warning():
    with pytest.warns(UserWarning, match=r"trained on -2 to 2 .* scale X, e\.g\. with MinMaxScaler\(\(-2\.0, 2\.0\)\)"):
        MetaFunRegressor("gp-rbf").fit([[0.0], [70.0]], [0.0, 1.0])
