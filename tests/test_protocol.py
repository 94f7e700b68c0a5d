"""Training, choosing and testing on a table of features, from the file to the result."""

import json
import os
import shutil

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

from examples import TINY_EPISODES, clusters
from metafun.cli import app
from metafun.config import load_config
from metafun.data.table_folder import save_table
from metafun.errors import InvalidConfig, InvalidData
from metafun.training import protocol
from metafun.training.evaluation import evaluate, summarise
from metafun.training.run import Run
from metafun.training.run_folder import Figure
from metafun.training.trainer import Trainer

SETTINGS = [part for setting in TINY_EPISODES for part in ("--set", setting)]


def metafun(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def fails(*arguments) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
    return result.stderr


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "data"))
    save_table(clusters(), tmp_path / "data", "a test")
    save_table(clusters(classes=(3, 3, 5), spread=0.05, name="other"), tmp_path / "data", "a test")
    return tmp_path / "data"


def tiny(*settings):
    return load_config("features", [*TINY_EPISODES, "tasks.data=clusters", *settings])


def test_protocol_end_to_end(tmp_path):
    folder, record = tmp_path / "run", tmp_path / "results.jsonl"
    arguments = ("protocol", "features", "--data", "clusters", "--seeds", 2, "--out", folder, *SETTINGS)
    results = json.loads(metafun(*arguments, "--json", "--record", record).stdout)
    tuned, final = Run(folder / "tune"), Run(folder / "final")

    errors = {e["step"]: np.mean(e["validation"]) for e in tuned.metrics() if "validation" in e}
    assert set(errors) == {20, 40, 60}
    best = min(errors, key=errors.get)
    assert results["validation"]["step"] == best and results["validation"]["error"] == pytest.approx(errors[best])
    assert final.record.step == best and final.record.best_error == ()
    assert tuned.config.tasks.train_on == ("train",) and final.config.tasks.train_on == ("train", "val")
    assert results["trained_on"] == "clusters, train+val" and "train+val" in metafun(*arguments, "--resume").stdout

    accuracy = results["metrics"]["accuracy_3way_1shot"]
    assert accuracy["mean"] == pytest.approx(np.mean(accuracy["seeds"])) and len(accuracy["seeds"]) == 2
    assert 0 < accuracy["mean"] < 1 and accuracy["interval"] > 0
    assert {"log_likelihood_3way_1shot", "ece_3way_1shot"} < set(results["metrics"])
    assert json.loads(record.read_text()) == results


def test_protocol_goes_on_where_it_was_stopped(tmp_path):
    folder = tmp_path / "run"
    arguments = ("protocol", "features", "--data", "clusters", "--seeds", 1, "--out", folder, *SETTINGS)
    run = Run.create(folder / "tune", tiny())
    training = run.train()
    next(training)
    training.close()
    metafun(*arguments, "--resume")
    first = jax.tree.leaves(Run(folder / "final").models())
    for run in ("tune", "final"):
        for name in Figure:
            (folder / run / name).touch()
    metafun(*arguments, "--overwrite")
    assert not list(folder.glob("*/*.png")), "figures of the replaced runs are gone"
    for a, b in zip(first, jax.tree.leaves(Run(folder / "final").models()), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_protocol_needs_a_split_to_choose_on(tmp_path):
    assert "the protocol needs tasks.kind = 'episodes'" in fails("protocol", "sinusoid", "--out", tmp_path / "run")
    with pytest.raises(InvalidConfig, match="the protocol validates on val"):
        protocol.check_protocol(tiny("training.validate_every=0"))
    with pytest.raises(InvalidConfig, match="so val cannot be used for validation"):
        tiny('tasks.train_on=["train","val"]')


def test_a_run_holds_on_to_its_data(tmp_path, data):
    run = Run.create(tmp_path / "run", tiny("training.steps=10"))
    assert run.config.tasks.features == 12 and len(run.config.tasks.fingerprint) == 64
    list(run.train())
    save_table(clusters(spread=0.2), data, "a test", overwrite=True)
    assert "have changed since this run began" in fails("evaluate", tmp_path / "run")
    with pytest.raises(InvalidData, match="have changed since"):
        list(run.train())
    os.rename(data / "clusters", data / "moved")
    assert run.model().iterations == 2, "a model can be loaded where its data are not"


def test_other_ways_shots_and_data(tmp_path):
    """One model serves any number of classes and examples, and classes from elsewhere."""
    list(Run.create(tmp_path / "run", tiny("training.steps=200")).train())
    results = json.loads(
        metafun("evaluate", tmp_path / "run", "--ways", 2, "--ways", 5, "--shots", 1, "--shots", 3, "--json").stdout
    )
    accuracy = {name: value["mean"] for name, value in results["metrics"].items() if name.startswith("accuracy")}
    assert set(accuracy) == {f"accuracy_{w}way_{s}shot" for w in (2, 5) for s in (1, 3)}
    assert accuracy["accuracy_2way_3shot"] > accuracy["accuracy_5way_1shot"]
    other = json.loads(metafun("evaluate", tmp_path / "run", "--data", "other", "--json").stdout)
    assert other["metrics"]["accuracy_3way_1shot"]["mean"] > 0.8 and 'data = "other"' in other["config"]
    assert "6 ways need as many classes" in fails("evaluate", tmp_path / "run", "--ways", 6)


def test_a_stranger_needs_three_commands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = clusters()
    labels = [rows.name for rows in table.classes for _ in range(rows.count)]
    np.savez("mine.npz", X=table.features, y=labels)
    metafun("data", "import", "mine.npz")
    metafun("train", "features", "--data", "mine", *SETTINGS, "--set", "tasks.ways=2")
    assert "accuracy_2way_1shot" in metafun("evaluate", "runs/features").stdout
    assert "reliability.png" in metafun("plot", "runs/features").stdout


def test_demo_glyphs_draws_a_picture(tmp_path, monkeypatch):
    table = clusters(dx=16)
    monkeypatch.setattr("metafun.data.glyphs.make", lambda: type(table)(**vars(table) | {"image": (4, 4)}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    metafun("demo", "glyphs", "--out", tmp_path / "demo", *SETTINGS)
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert summary["figure"].endswith("episodes.png") and summary["accuracy_3way_1shot"] > 0.4
    for figure in ("episodes", "reliability", "training"):
        assert (tmp_path / "demo" / f"{figure}.png").read_bytes()[:4] == b"\x89PNG"


def accuracy_after_training(*settings) -> float:
    trainer = Trainer(tiny("training.steps=200", "training.learning_rate=1e-2", *settings))
    *_, (state, _) = trainer.run(trainer.start())
    return evaluate(trainer.models(trainer.trained(state)), trainer.experiment)["accuracy_3way_1shot"]["mean"]


def test_only_a_bias_tells_features_without_a_common_direction_apart():
    """What the decoder's docstring claims; the directions of these classes are random and their mean is 0."""
    assert accuracy_after_training("model.decoder.bias=true") > 0.85
    assert accuracy_after_training("model.decoder.bias=false") < 0.6


def test_one_that_knows_nothing_is_as_sure_as_it_is_right():
    """With a step size of 0 every class has probability ⅓, and it says the same class each time."""
    trainer = Trainer(tiny("model.step_size=0.0"))
    results = evaluate(trainer.models(trainer.start().parameters), trainer.experiment)
    np.testing.assert_allclose(np.sum(results["ece_3way_1shot"]["reliability"], axis=0), [1, 1 / 3, 1 / 3], rtol=1e-5)
    assert results["ece_3way_1shot"]["mean"] == pytest.approx(0, abs=1e-6)
    assert results["log_likelihood_3way_1shot"]["mean"] == pytest.approx(-np.log(3))


def test_data_that_cannot_serve_leave_no_folder_behind(tmp_path):
    path = tmp_path / "run"
    arguments = ("train", "features", "--data", "clusters", "--out", path, *SETTINGS)
    assert "need 1 + 40 rows of each class" in fails(*arguments, "--set", "tasks.queries=40")
    assert "val: 6 ways need as many classes, and there are 5" in fails(*arguments, "--set", "tasks.ways=6")
    assert not path.exists()


def test_a_run_knows_its_file_from_anywhere(tmp_path, monkeypatch):
    table = clusters()
    labels = [rows.name for rows in table.classes for _ in range(rows.count)]
    splits = [rows.split for rows in table.classes for _ in range(rows.count)]
    np.savez(tmp_path / "2024.npz", X=table.features, y=labels, split=splits)
    monkeypatch.chdir(tmp_path)
    metafun("train", "features", "--data", "2024.npz", "--out", "run", *SETTINGS)
    monkeypatch.chdir("/")
    metafun("evaluate", tmp_path / "run")


def test_an_averaged_run_resumes_to_the_bit(tmp_path):
    whole, parts = (Run.create(tmp_path / name, tiny("training.seeds=[0,1]")) for name in ("whole", "parts"))
    assert whole.config.training.average > 0
    list(whole.train())
    while not parts.checkpoint_file.exists() or parts.record.step < 60:
        training = parts.train()
        next(training)
        training.close()
    for which in ("best", "last"):
        for a, b in zip(*(jax.tree.leaves(run.models(which)) for run in (whole, parts)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_seeds_of_episodes_train_the_same_alone_and_in_company():
    together, alone = (Trainer(tiny(f"training.seeds={seeds}")) for seeds in ("[3,4]", "[4]"))
    # The losses: Adam makes whole steps of the rounding in a gradient that is next to nothing.
    a, b = (np.concatenate([losses for _, losses in trainer.run(trainer.start())]) for trainer in (together, alone))
    np.testing.assert_allclose(a[:, 1], b[:, 0], rtol=1e-4)
    assert not np.allclose(a[:, 0], b[:, 0], rtol=1e-2)


def test_an_overwritten_protocol_does_not_trip_over_its_old_end(tmp_path):
    """Interrupted after `tune` was replaced, it goes on: the old `final` went first."""
    folder = tmp_path / "run"
    arguments = ("protocol", "features", "--data", "clusters", "--out", folder, *SETTINGS)
    metafun(*arguments)
    metafun(*arguments, "--overwrite", "--set", "training.learning_rate=2e-2")
    metafun("protocol", "features", "--out", folder, "--resume")
    assert Run(folder / "final").config.training.learning_rate == 2e-2
    assert f"left its model in {folder / 'final'}" in fails("evaluate", folder)


def test_the_interval_is_over_tasks_and_the_deviation_over_seeds():
    values = np.random.default_rng(0).normal(size=(3, 400)) + np.array([[0.0], [1.0], [2.0]])
    summary = summarise(values)
    assert summary["std"] == pytest.approx(values.mean(1).std(ddof=1))
    assert summary["interval"] == pytest.approx(1.96 * values.mean(0).std(ddof=1) / 20)
    assert summarise(values[:1, :1])["std"] is None and summarise(values[:1, :1])["interval"] is None


def test_the_table_is_an_argument_of_the_compiled_step():
    """As a constant it would be copied into the program, and compiled anew with every table."""
    trainer = Trainer(tiny())
    state, tasks = trainer.start(), trainer.experiment.tasks.training()
    lowered = jax.jit(lambda p, o, t, s: trainer.scan_steps(p, o, t, s)).lower(
        state.parameters, state.optimiser, tasks, np.arange(2)
    )
    features = "x".join(map(str, tasks.features.shape))
    constants = [line for line in lowered.as_text().splitlines() if "constant" in line and f"<{features}x" in line]
    assert f"tensor<{features}xf32>" in lowered.as_text() and not constants


FOLDED = ["model.similarity.kind=class-mean", "embedding.kind=linear", "tasks.val_share=0.5", "tasks.centre=true"]
FOLDED += ["model.similarity.temperature=0.1", "training.validate_first=true", "tasks.ways=2", "training.average=0.0"]


def folded(folder, *settings):
    options = [part for setting in (*TINY_EPISODES, *FOLDED, *settings) for part in ("--set", setting)]
    arguments = ("protocol", "features", "--data", "clusters", "--seeds", 2, "--out", folder, *options)
    return json.loads(metafun(*arguments, "--json").stdout), arguments


def test_the_step_is_chosen_on_folds_of_val(tmp_path):
    results, arguments = folded(tmp_path / "run")
    runs = [Run(tmp_path / "run" / f"tune-{fold}") for fold in (1, 2)]
    assert [run.config.tasks.held_out for run in runs] == [(0, 2), (1, 2)]
    errors = [{e["step"]: np.mean(e["validation"]) for e in run.metrics() if "validation" in e} for run in runs]
    assert list(errors[0]) == [0, 20, 40, 60]
    mean = {step: np.mean([fold[step] for fold in errors]) for step in errors[0]}
    best = min(mean, key=mean.get)
    assert results["validation"]["step"] == best and results["validation"]["error"] == pytest.approx(mean[best])
    final = Run(tmp_path / "run" / "final")
    assert final.record.step == best and final.config.tasks.held_out is None
    again = json.loads(metafun(*arguments, "--json", "--resume").stdout)
    assert again["metrics"] == results["metrics"], "nothing is trained twice"


def test_folds_go_on_with_the_settings_of_the_folder(tmp_path):
    """Also if the second fold was not begun."""
    results, _ = folded(tmp_path / "run")
    for name in ("tune-2", "final"):
        shutil.rmtree(tmp_path / "run" / name)
    again = json.loads(metafun("protocol", "features", "--out", tmp_path / "run", "--resume", "--json").stdout)
    assert again["metrics"] == results["metrics"]
    plain = ("protocol", "features", "--data", "clusters", "--out", tmp_path / "run", "--overwrite", *SETTINGS)
    metafun(*plain)
    assert (tmp_path / "run" / "tune" / "config.toml").exists(), "there are no folds in these settings"
    assert not list((tmp_path / "run").glob("tune-*/config.toml")), "and those of the replaced protocol are gone"


def test_a_learned_part_that_does_harm_is_not_used(tmp_path):
    """The step 0 of a model with a similarity term is the nearest class mean."""
    results, _ = folded(tmp_path / "run", "training.learning_rate=0.1", "training.schedule=constant")
    assert results["validation"]["step"] == 0 and Run(tmp_path / "run" / "final").record.step == 0
    options = [part for setting in ("tasks.ways=2", "tasks.queries=4") for part in ("--set", setting)]
    options += ["--set", "model.temperature=0.1", "--set", "training.learning_rate=0.0", "--set", "tasks.val_share=0.5"]
    options += ["--set", "tasks.centre=true", "--set", "training.steps=10", "--set", "training.validate_every=10"]
    options += ["--set", "training.chunk=10", "--set", "training.warmup=0", "--set", "evaluation.tasks=40"]
    nearest = metafun("protocol", "nearest-mean", "--data", "clusters", "--out", tmp_path / "mean", *options, "--json")
    expected = json.loads(nearest.stdout)["metrics"]
    for name in ("accuracy_2way_1shot", "log_likelihood_2way_1shot"):
        assert results["metrics"][name]["mean"] == pytest.approx(expected[name]["mean"], abs=1e-5)


def test_without_enough_classes_of_val_for_folds_val_only_validates(tmp_path):
    options = [part for setting in (*TINY_EPISODES, *FOLDED, "tasks.ways=3") for part in ("--set", setting)]
    result = metafun("protocol", "features", "--data", "clusters", "--out", tmp_path / "run", *options)
    assert "val has too few classes for 2 folds, so tasks.val_share is not used" in result.stderr
    tuned, final = Run(tmp_path / "run" / "tune").config.tasks, Run(tmp_path / "run" / "final").config.tasks
    assert tuned.train_on == ("train",) and final.train_on == ("train", "val") and final.val_share is None
