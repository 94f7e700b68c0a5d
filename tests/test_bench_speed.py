"""The benchmark of speed: what is measured and shown, and that the model in PyTorch is ours."""

import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from metafun.bench import speed
from metafun.bench.speed_results import COST, PREDICTION, TRAINING, SpeedCell, costs, read_speed_cells, slope
from metafun.cli import app
from metafun.model.task import Points, Task

SMALL = ("--rounds", "1", "--steps", "2", "--targets", "50", "--largest", "10")


def bench(folder, *arguments):
    words = ["bench", "speed", "--results", str(folder / "speed.jsonl"), *arguments]
    return CliRunner().invoke(app, words)


def test_training_prediction_and_costs_are_measured_shown_and_replaced(tmp_path):
    result = bench(tmp_path, "--only", "MetaFun", *SMALL, "--json", "--beside", "0")
    assert result.exit_code == 0, result.output
    cells = read_speed_cells(tmp_path / "speed.jsonl")
    assert [cell["what"] for cell in json.loads(result.stdout)] == [cell.what for cell in cells]
    assert [cell.what for cell in cells[:2]] == [TRAINING, PREDICTION]
    assert {axis: [size for size, _ in values] for axis, values in costs(cells).items()} == {
        "context": [10],
        "targets": [10],
        "iterations": [1, 2, 5, 10],
        "tasks": [1, 10],
    }
    assert all(0 < cell.seconds < cell.first_seconds and cell.beside == 0 for cell in cells)
    assert cells[1].per_second == pytest.approx(50 / cells[1].seconds)
    assert (tmp_path / "speed.png").stat().st_size > 5000
    shown = bench(tmp_path, "--only", "MetaFun", *SMALL)
    assert shown.exit_code == 0 and "steps/s" in shown.output and "targets/s" in shown.output
    assert len(read_speed_cells(tmp_path / "speed.jsonl")) == len(cells), "lines of the same sizes are replaced"


def test_the_slope_is_the_exponent_at_the_end():
    assert slope([(1, 5.0), (10, 6.0), (100, 600.0)]) == pytest.approx(2)
    assert math.isnan(slope([(1, 5.0)]))


def test_methods_that_are_unknown_or_missing_are_named(tmp_path, monkeypatch):
    result = bench(tmp_path, "--only", "metafun")
    assert result.exit_code == 2 and "did you mean 'MetaFun'?" in " ".join(result.output.split())
    monkeypatch.setitem(speed.PACKAGES, speed.PEER, "no_such_package_here")
    result = bench(tmp_path, "--only", speed.PEER)
    assert result.exit_code == 2 and "pip install no_such_package_here" in " ".join(result.output.split())
    assert speed.PEER not in speed.check_methods([])


def test_a_line_that_is_none_is_an_error(tmp_path):
    (tmp_path / "speed.jsonl").write_text('{"what": "training"}\n', "utf-8")
    result = bench(tmp_path, "--only", "MetaFun", *SMALL)
    assert result.exit_code == 2 and "not a benchmark result" in " ".join(result.output.split())


def test_the_model_in_pytorch_is_the_same():
    pytest.importorskip("torch", reason="torch is not installed (optional)")
    from metafun.bench import speed_torch

    model, (x, y, at) = speed.model(), speed.points(7, 20)
    twin = speed_torch.TwinPrediction(model, x, y, at, is_compiled=False)
    np.testing.assert_allclose(twin(), speed.Predicting(x, y, at)().mean, atol=1e-5)
    tasks = speed_torch.sinusoids(speed.experiment().tasks.training(), 8)
    ours = [[jnp.asarray(part.numpy()) for part in points] for points in tasks]
    loss = jax.vmap(lambda context, target: model.loss(Task(Points(*context), Points(*target))))(*ours).mean()
    np.testing.assert_allclose(speed_torch.Twin(model).loss(*tasks).item(), loss, rtol=1e-5)


def test_costs_of_several_axes():
    def cell(axis, size, seconds):
        origin = ("metafun bench speed", "cpu", "0.1.0", "2026-11-19")
        return SpeedCell(COST, "MetaFun", speed.BASE | {axis: size}, seconds, 1.0, *origin, axis=axis)

    found = costs([cell("tasks", 10, 2.0), cell("tasks", 1, 1.0), cell("context", 10, 3.0)])
    assert found == {"tasks": [(1, 1.0), (10, 2.0)], "context": [(10, 3.0)]}
