"""Losses that break away: what counts as one, and that a run, its metrics and its evaluation say so."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from examples import TINY
from metafun.cli import app
from metafun.files import present
from metafun.training.stability import CHUNKS, describe_break_aways, watched_metrics


def steps_of(*losses, in_logarithm=True):
    """The step at which each loss broke away, with one chunk every 10 steps."""
    entries = [{"step": 10 * (i + 1), "loss": values} for i, values in enumerate(zip(*losses, strict=True))]
    return watched_metrics(entries, in_logarithm).steps


def falling(start, end, chunks=40):
    return np.geomspace(start, end, chunks).tolist()


def test_only_the_model_that_stays_above_its_best_has_broken_away():
    stable = falling(10, 1e-3, 60)
    broken = falling(10, 1e-3) + [0.5] * 20
    spike = falling(10, 1e-3) + [5.0] * (CHUNKS // 2) + [1e-3] * (20 - CHUNKS // 2)
    none, step, one_spike = steps_of(stable, broken, spike)
    assert (none, one_spike) == (None, None)
    assert 400 < step <= 10 * (40 + CHUNKS), "named within a few chunks"


def test_a_model_that_recovers_keeps_its_mark():
    assert steps_of(falling(10, 1e-3) + [0.5] * 20 + falling(0.5, 1e-4))[0] is not None


def test_a_loss_in_nats_must_lose_a_third_of_its_gain_and_half_a_nat():
    down = np.linspace(3, 0, 30).tolist()
    assert steps_of(down + [0.9] * 10, in_logarithm=False) == [None], "less than a third"
    assert steps_of(down + [1.3] * 10, in_logarithm=False) != [None]
    huge = [1000.0, 50.0, *np.linspace(2, -1.2, 30).tolist()]
    assert steps_of(huge + [20.0] * 10, in_logarithm=False) != [None], "the first losses may be huge"
    flat = np.linspace(1.0, 0.8, 30).tolist()
    assert steps_of(flat + [1.2] * 10, in_logarithm=False) == [None], "noise of a model that learned nothing"


def test_noise_of_the_first_chunks_is_no_break_away():
    """The first losses of a training on series of many kinds."""
    assert steps_of([4.19, 2.26, 6.86, 1.83, 1.53, 1.3, 1.29, 1.4, 1.23, 1.2], in_logarithm=False) == [None]


def test_so_few_chunks_have_no_level_to_break_away_from():
    assert steps_of([1.0, 3.0, 4.0, 2.0], in_logarithm=False) == [None]


def test_a_loss_that_is_not_finite_does_not_hide_the_others():
    broken = falling(10, 1e-3) + [0.5] * 20
    diverged = falling(10, 1e-3) + [None] * 20
    assert steps_of(broken, diverged)[0] == steps_of(broken)[0] is not None


def test_the_message_names_seed_step_and_remedy():
    assert describe_break_aways([0, 1], [None, None]) == ""
    text = describe_break_aways([3, 4], [None, 20000])
    assert "1 of 2 models broke away: seed 4 at step 20,000" in text and "training.clip=1.0" in text


@pytest.fixture(scope="module")
def broken_run(tmp_path_factory):
    """A run whose learning rate is far too large: its loss rises by orders of magnitude and stays finite."""
    path = tmp_path_factory.mktemp("runs") / "broken"
    settings = ["training.learning_rate=1.0", "training.schedule=constant", "training.clip=1e9", "training.chunk=5"]
    options = [word for setting in (*TINY, *settings) for word in ("--set", setting)]
    result = CliRunner().invoke(app, ["train", "sinusoid", "--seeds", "2", "--out", str(path), *options])
    assert result.exit_code == 0, result.output
    return path, result


def test_training_ends_with_a_warning_and_metrics_have_the_step(broken_run):
    path, result = broken_run
    entries = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    steps = entries[-1]["broke_away"]
    assert any(steps) and "broke_away" not in entries[0]
    seed = next(i for i, step in enumerate(steps) if step)
    words = " ".join(result.stderr.split())
    assert f"seed {seed} at step {steps[seed]}" in words and "training.learning_rate" in words


def test_evaluation_says_which_seeds_broke_away(broken_run):
    path, _ = broken_run
    result = CliRunner().invoke(app, ["evaluate", str(path), "--json", "--tasks", "20"])
    assert result.exit_code == 0, result.output
    last = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    assert json.loads(result.stdout)["broke_away"] == last["broke_away"]
    assert "broke away" in result.stderr and "broke away" not in result.stdout.replace("broke_away", "")


def test_processes_count_each_other_and_not_the_dead(tmp_path):
    program = (
        "import sys, pathlib; from metafun.files import present\n"
        "with present(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    with present(tmp_path) as others:
        assert others() == 0
        with subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout.readline().strip() == b"in"
            assert others() == 1
            other.kill()
            other.wait()
            assert others() == 0, "a killed process leaves its file, but no lock"
    assert not list(tmp_path.glob("*.process"))
