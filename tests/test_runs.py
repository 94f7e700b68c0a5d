"""Run folders and checkpoints: interrupted, damaged, foreign, full disk."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import safetensors.numpy
from rich.console import Console

import metafun.training.session
from examples import TINY
from metafun import load_model
from metafun.config import load_config
from metafun.errors import Diverged, InvalidCheckpoint, InvalidConfig, InvalidRun
from metafun.estimators.trained import start_from
from metafun.files import LOCK
from metafun.training import compare
from metafun.training.devices import task_mesh
from metafun.training.run import Run
from metafun.training.trainer import State, Trainer


def new_run(path, *settings) -> Run:
    return Run.create(path, load_config("sinusoid", [*TINY, *settings]))


def parameters(run: Run, which: str = "last") -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(run.models(which))]


def assert_identical(a: Run, b: Run) -> None:
    for which in ("last", "best"):
        for p, q in zip(parameters(a, which), parameters(b, which), strict=True):
            np.testing.assert_array_equal(p, q)
    drop_time = [{k: v for k, v in entry.items() if k != "seconds"} for entry in a.metrics()]
    assert drop_time == [{k: v for k, v in entry.items() if k != "seconds"} for entry in b.metrics()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Run:
    run = new_run(tmp_path_factory.mktemp("runs") / "finished", "training.seeds=[0,1]")
    for _ in run.train():
        pass
    return run


def test_a_run_starts_from_a_trained_model_and_says_so(finished, tmp_path):
    start = start_from(finished.path)
    settings = load_config("sinusoid", [*TINY, "training.seeds=[0,1]", "training.learning_rate=0"])
    run = Run.create(tmp_path / "from", settings, start=start)
    assert run.record.step == 0 and run.record.started_from.startswith(f"{finished.path} (")
    for _ in run.train():
        pass
    assert run.record.started_from == start.source, "also at the end"
    for leaf, known in zip(parameters(run), parameters(finished, "best"), strict=True):
        np.testing.assert_array_equal(leaf, np.stack([known[0], known[0]]))
    with pytest.raises(InvalidConfig, match="drop --from to resume"):
        Run.open(run.path, settings, resume=True, start=start)


def test_a_run_does_not_start_from_a_model_of_other_sizes(finished, tmp_path):
    other = load_config("sinusoid", [*TINY, "model.update.width=7"])
    with pytest.raises(InvalidConfig, match=r"cannot start from .*: its parameters have other names or shapes"):
        Run.create(tmp_path / "other", other, start=start_from(finished.path))
    assert not (tmp_path / "other").exists()


def test_a_finished_run_has_everything(finished):
    assert finished.record.step == 60 and len(finished.record.best_error) == 2
    assert [entry["step"] for entry in finished.metrics()] == [10, 20, 30, 40, 50, 60]
    assert [entry["step"] for entry in finished.metrics() if "validation" in entry] == [20, 40, 60]
    assert not list(finished.path.glob("*.tmp"))


def test_training_may_use_fewer_devices_than_validation(tmp_path):
    run = new_run(tmp_path / "run", "training.batch=3", "training.steps=20")
    assert task_mesh(3).size <= task_mesh(run.config.training.validation_tasks).size
    assert [report.validation is not None for report in run.train()] == [False, True]


def test_best_is_the_best_on_validation(finished):
    validation = np.array([entry["validation"] for entry in finished.metrics() if "validation" in entry])
    np.testing.assert_array_equal(finished.record.best_error, validation.min(0))
    np.testing.assert_array_equal(finished.record.best_step, 20 * (1 + validation.argmin(0)))


def test_interrupted_after_any_chunk_it_goes_on_bit_by_bit(finished, tmp_path):
    run = new_run(tmp_path / "run", "training.seeds=[0,1]")
    for _ in range(3):
        training = run.train()
        next(training)
        next(training)
        training.close()
    assert run.record.step == 60
    assert_identical(run, finished)


def test_interrupted_during_validation_it_loses_nothing(finished, tmp_path, monkeypatch):
    def interrupt(validation, models):
        raise KeyboardInterrupt

    run = new_run(tmp_path / "run", "training.seeds=[0,1]")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(metafun.training.session.Validation, "__call__", interrupt)
        list(run.train())
    assert run.record.step == 10
    list(run.train())
    assert_identical(run, finished)


def test_before_the_first_validation_the_latest_is_the_best(tmp_path):
    run = new_run(tmp_path / "run")
    training = run.train()
    next(training)
    training.close()
    for best, last in zip(parameters(run, "best"), parameters(run, "last"), strict=True):
        np.testing.assert_array_equal(best, last)


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    run = new_run(tmp_path / "run")
    training = run.train()
    next(training)
    with pytest.raises(InvalidRun, match="another process is training in"):
        next(run.train())
    training.close()
    assert len(list(run.train())) == 5


def test_an_edited_configuration_does_not_pass_for_the_trained_one(tmp_path):
    run = new_run(tmp_path / "run")
    list(run.train())
    config = run.path / "config.toml"
    config.write_text(config.read_text().replace('activation = "gelu"', 'activation = "relu"'))
    with pytest.raises(InvalidRun, match=r"config\.toml is not the configuration of the checkpoint"):
        list(Run(run.path).train())


def test_a_folder_that_a_killed_process_had_only_begun_is_free(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml.tmp").write_text("[mod")
    (tmp_path / "run" / f"config.toml.{'0a' * 16}.tmp").write_text("[mod")
    assert new_run(tmp_path / "run").config.training.steps == 60
    assert not list((tmp_path / "run").glob("*.tmp"))


def test_temporary_files_of_the_user_are_kept(tmp_path):
    notes = tmp_path / "notes.tmp"
    notes.write_text("precious")
    with pytest.raises(InvalidRun, match="exists and is not a run folder"):
        new_run(tmp_path)
    run = new_run(tmp_path / "run")
    notes = notes.rename(run.path / "notes.tmp")
    run.folder.rewind_metrics(0)
    assert notes.read_text() == "precious"


def test_training_a_finished_run_changes_nothing(finished):
    before = finished.checkpoint_file.read_bytes()
    assert list(finished.train()) == []
    assert finished.checkpoint_file.read_bytes() == before


TRAIN = """
import sys
import metafun.training.session
from metafun.cli import app
from metafun.training.devices import use_all_cores
use_all_cores()
metafun.training.session.SECONDS_BETWEEN_CHECKPOINTS = 0.0
app(sys.argv[1:])
"""


@pytest.mark.slow
def test_killed_and_interrupted_at_any_moment_it_resumes_to_the_same_bits(tmp_path):
    settings = [part for setting in [*TINY, "training.steps=2000"] for part in ("--set", setting)]
    command = [sys.executable, "-c", TRAIN, "train", "sinusoid", *settings]
    subprocess.run([*command, "--out", tmp_path / "whole"], check=True, capture_output=True)

    stopped = []
    for how, extra in ((signal.SIGKILL, []), (signal.SIGINT, ["--resume"]), (None, ["--resume"])):
        process = subprocess.Popen([*command, "--out", tmp_path / "broken", *extra], stderr=subprocess.PIPE, text=True)
        if how:
            wait_for_progress(tmp_path / "broken", process)
            process.send_signal(how)
        _, errors = process.communicate(timeout=120)
        stopped.append(process.returncode)
        assert "Traceback" not in errors
        assert how is not signal.SIGINT or process.returncode == 0 or "--resume" in errors
    assert stopped[0] == -signal.SIGKILL and stopped[2] == 0, "the run ended before it could be killed, or failed"
    assert stopped[1] in (130, 0)
    assert_identical(Run(tmp_path / "broken"), Run(tmp_path / "whole"))


def wait_for_progress(path, process) -> None:
    """Until the run has moved past the checkpoint it began with, so that it is killed at work."""
    metrics = path / "metrics.jsonl"
    start = metrics.stat().st_mtime_ns if metrics.exists() else 0
    while process.poll() is None and (not metrics.exists() or metrics.stat().st_mtime_ns == start):
        time.sleep(0.01)
    time.sleep(0.3)


def test_early_stopping_waits_for_patience(tmp_path, monkeypatch):
    values = iter([3.0, 2.0, 2.5, 2.4, 2.3, 1.0])
    monkeypatch.setattr(metafun.training.session.Validation, "__call__", lambda validation, models: (next(values),))
    run = new_run(tmp_path / "run", "training.steps=200", "training.patience=2", "training.keep=best")
    reports = list(run.train())
    assert reports[-1].record.step == 80 and run.record.stopped_early
    assert run.record.best_step == (40,)
    assert list(run.train()) == [], "a run that stopped early stays stopped"


def test_the_last_parameters_are_kept_although_earlier_ones_were_better_on_validation(tmp_path, monkeypatch):
    values = iter([3.0, 1.0, 2.0, 3.0, 1.0, 2.0])
    monkeypatch.setattr(metafun.training.session.Validation, "__call__", lambda validation, models: (next(values),))
    last, best = (
        new_run(tmp_path / keep, "training.steps=60", f"training.keep={keep}", "training.clip=0.1")
        for keep in ("last", "best")
    )
    for run in (last, best):
        list(run.train())
    assert (last.record.best_step, last.record.best_error) == ((60,), (2.0,))
    assert (best.record.best_step, best.record.best_error) == ((40,), (1.0,))
    for p, q in zip(parameters(last), parameters(last, "best"), strict=True):
        np.testing.assert_array_equal(p, q)
    assert any((p != r).any() for p, r in zip(parameters(last), parameters(best, "best"), strict=True))
    with pytest.raises(InvalidConfig, match=r"training.patience waits for a better model"):
        load_config("sinusoid", ["training.keep=last", "training.patience=2"])


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_state(tmp_path):
    run = new_run(tmp_path / "run", "training.learning_rate=1e30", "training.schedule=constant", "training.steps=1000")
    with pytest.raises(
        Diverged, match=r"the loss of seed 0 became (nan|inf) at step \d+; the run is kept as of step 0"
    ):
        list(run.train())
    assert not run.checkpoint_file.exists(), "the first chunk already diverged"


def test_parameters_that_are_not_finite_are_never_saved(tmp_path, monkeypatch):
    """The last update of a chunk can spoil the parameters while all losses of the chunk are fine."""
    chunks = Trainer.run

    def spoil_the_third(trainer, state):
        for new, losses in chunks(trainer, state):
            parameters = new.parameters * (np.inf if new.step == 30 else 1)
            yield State(parameters, new.optimiser, new.step), losses

    monkeypatch.setattr(Trainer, "run", spoil_the_third)
    run = new_run(tmp_path / "run")
    with pytest.raises(Diverged, match="parameters became NaN or infinite by step 30; the run is kept as of step 20"):
        list(run.train())
    assert run.record.step == 20 and all(np.isfinite(p).all() for p in parameters(run))


def test_an_existing_folder_is_never_overwritten_by_itself(finished, tmp_path):
    config, before = finished.config, finished.checkpoint_file.read_bytes()
    with pytest.raises(InvalidRun, match="holds a run already; add --resume"):
        Run.create(finished.path, config)
    assert finished.checkpoint_file.read_bytes() == before
    (tmp_path / "thesis.txt").write_text("precious")
    (tmp_path / "config.toml").write_text("title = 'a blog'")
    for overwrite in (False, True):
        with pytest.raises(InvalidRun, match="exists and is not a run folder"):
            Run.create(tmp_path, config, overwrite=overwrite)
    assert sorted(os.listdir(tmp_path)) == ["config.toml", "thesis.txt"]


def test_one_seed_can_be_taken_out(finished):
    path = finished.checkpoint_file
    both = finished.models()
    np.testing.assert_array_equal(load_model(path, seed=1).step_size, both.step_size[1])
    with pytest.raises(InvalidCheckpoint, match=r"holds the seeds \[0, 1\], not 7"):
        load_model(path, seed=7)


def edit(path, change) -> None:
    """Rewrites a checkpoint after `change(tensors, header)`."""
    with safetensors.safe_open(path, framework="numpy") as file:
        tensors, header = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    change(tensors, header)
    path.write_bytes(safetensors.numpy.save(tensors, header))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "truncated or not a safetensors file"),
        (lambda path: path.write_bytes(b"<html>not found</html>"), "truncated or not a safetensors file"),
        (lambda path: path.write_bytes(b""), "truncated or not a safetensors file"),
        (lambda path: path.unlink(), "there is no checkpoint"),
        (
            lambda path: path.write_bytes(safetensors.numpy.save({"w": np.zeros(3)})),
            "not a checkpoint of metafun",
        ),
        (
            lambda path: edit(path, lambda t, h: h.update(config="model = 3")),
            "damaged header: model.kind = 3 is not known",
        ),
        (lambda path: edit(path, lambda t, h: h.update(record="{")), "damaged header"),
        (
            lambda path: edit(path, lambda t, h: t.pop("best.step_size")),
            "'best.step_size' is missing or unexpected",
        ),
        (
            lambda path: edit(path, lambda t, h: t.update({"best.extra": np.zeros(1)})),
            "'best.extra' is missing or",
        ),
        (
            lambda path: edit(path, lambda t, h: t.update({"best.step_size": np.zeros(3, np.float32)})),
            r"float32\[3\]",
        ),
        (lambda path: edit(path, lambda t, h: t.update({"best.step_size": np.zeros(2)})), r"is float64\[2\]"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_refused(finished, tmp_path, damage, message):
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(finished.checkpoint_file.read_bytes())
    damage(path)
    with pytest.raises(InvalidCheckpoint, match=message):
        load_model(path)


@pytest.mark.parametrize("record", ["[1, 2]", '{"step": "x"}', '{"steps": 3}'])
def test_a_damaged_record_is_refused(finished, tmp_path, record):
    for file in ("config.toml", "checkpoint.safetensors"):
        (tmp_path / file).write_bytes((finished.path / file).read_bytes())
    edit(tmp_path / "checkpoint.safetensors", lambda t, h: h.update(record=record))
    with pytest.raises(InvalidCheckpoint, match="damaged header"):
        _ = Run(tmp_path).record


def test_a_broken_last_line_of_metrics_is_passed_over(finished, tmp_path):
    run = new_run(tmp_path / "run")
    training = run.train()
    next(training)
    training.close()
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('5\n{}\n{"step": 20, "lo')
    list(run.train())
    assert [entry["step"] for entry in run.metrics()] == [10, 20, 30, 40, 50, 60]


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path):
    """A process that may write no more bytes than this stands in for a disk that is full."""
    settings = [part for setting in [*TINY, "training.steps=20"] for part in ("--set", setting)]
    command = [sys.executable, "-c", TRAIN, "train", "sinusoid", "--out", str(tmp_path / "run"), *settings]
    limited = ["bash", "-c", 'ulimit -f 4; exec "$@"', "bash", *command]
    environment = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "0"}  # JAX would warn of each program
    result = subprocess.run(limited, env=environment, capture_output=True, text=True)
    assert result.returncode == 2
    _, error = result.stderr.splitlines()
    assert error.startswith("error: ") and "File too large" in error
    assert sorted(os.listdir(tmp_path / "run")) == [LOCK, "config.toml", "metrics.jsonl"]


def test_metrics_are_plain_json(finished):
    for line in (finished.path / "metrics.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_untrained_model_is_a_candidate_if_it_is_validated_first(tmp_path, monkeypatch):
    values = iter([1.0, 3.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr(metafun.training.session.Validation, "__call__", lambda validation, models: (next(values),))
    settings = ("training.steps=60", "training.keep=best", "training.validate_first=true", "training.patience=3")
    run = new_run(tmp_path / "run", *settings)
    training = run.train()
    next(training)
    training.close()
    list(Run(run.path).train())
    run = Run(run.path)
    assert [entry["step"] for entry in run.metrics() if "validation" in entry] == [0, 20, 40, 60], "once, also resumed"
    assert (run.record.best_step, run.record.best_error) == ((0,), (1.0,)) and run.record.stopped_early
    trainer = Trainer(run.experiment)
    untrained = jax.tree.leaves(trainer.models(trainer.start().parameters))
    for p, q in zip(untrained, parameters(run, "best"), strict=True):
        np.testing.assert_array_equal(p, q)
    assert run.folder.stability().steps == [None]


def test_a_run_of_no_steps_is_an_untrained_model(tmp_path):
    run = new_run(tmp_path / "run", "training.stop=0", "training.validate_every=0", "training.keep=best")
    assert list(run.train()) == []
    assert run.record.step == 0 and Run(run.path).model() is not None


def test_a_run_killed_before_its_first_checkpoint_is_validated_first_once(tmp_path):
    run = new_run(tmp_path / "run", "training.steps=20", "training.keep=best", "training.validate_first=true")
    run.folder.append_metrics({"step": 0, "seconds": 0.0, "loss": [None], "validation": [1.0]})
    list(run.train())
    assert [entry["step"] for entry in run.metrics() if "validation" in entry] == [0, 20]


def test_runs_on_features_are_compared_on_the_table_and_the_sizes_of_the_first(monkeypatch):
    class RunOnFeatures(Run):
        """A run without a folder."""

        experiment = variant = None

        def __init__(self, path, experiment):
            self.path, self.experiment, self.variant = path, experiment, experiment

    def run(name, ways, fingerprint):
        config = load_config("features", ["tasks.data=t", f"tasks.ways={ways}"])
        tasks = dataclasses.replace(config.tasks, fingerprint=fingerprint)
        experiment = SimpleNamespace(config=config, tasks=tasks, evaluation=config.evaluation)
        return RunOnFeatures(name, experiment)

    found = []
    facts = dict.fromkeys((*compare.FACTS, "test_tasks"))
    monkeypatch.setattr(compare, "measure", lambda run, console, changes: found.append(changes) or facts)
    compare.compare_runs([run("a", 5, "x"), run("b", 20, "x")], Console(), {"evaluation.shots": (3,)})
    sizes = {"evaluation.ways": (5,), "evaluation.shots": (3,), "evaluation.targets": 5}
    assert len(found) == 2 and all(sizes.items() <= changes.items() for changes in found)
    with pytest.raises(
        InvalidRun, match=r"a and b have different test tasks: tasks\.data is 't, SHA-256 x…' and 't, SHA-256 y…'"
    ):
        compare.compare_runs([run("a", 5, "x"), run("b", 5, "y")], Console())
