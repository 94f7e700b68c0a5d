"""The command line as people and machines meet it."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib

import pytest
import typer
from typer.testing import CliRunner

from examples import TINY
from metafun import __version__
from metafun.cli import app
from metafun.config import load_config
from metafun.files import LOCK
from metafun.training.run import Run
from metafun.training.run_folder import Figure

SETTINGS = [part for setting in TINY for part in ("--set", setting)]


def _commands(group, above=()):
    """The path of every command, ("data", "import") for one."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*above, name))
        else:
            yield (*above, name)


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fails(*arguments) -> str:
    """The one line a mistake is answered with."""
    result = metafun(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    return result.stderr


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "run"
    result = metafun("train", "sinusoid", "--seeds", 2, "--out", path, *SETTINGS)
    assert result.exit_code == 0, result.output
    return path


def test_training_without_validation_ends_well(tmp_path):
    result = metafun("train", "sinusoid", *SETTINGS, "--set", "training.validate_every=0", "--out", tmp_path / "run")
    assert result.exit_code == 0 and "best validation error" not in result.stderr, result.output
    assert "need a --coordinator" in fails("train", "sinusoid", "--processes", 2, "--out", tmp_path / "other")


def test_demo_does_everything(tmp_path):
    result = metafun("demo", "--out", tmp_path / "demo", *SETTINGS)
    assert result.exit_code == 0, result.output
    assert "mse_5shot" in result.stdout and "0.040" in result.stdout
    summary = json.loads((tmp_path / "demo" / "summary.json").read_text())
    assert {"mse_5shot", "mse_10shot", "parameters", "train_seconds", "figure"} <= set(summary)
    assert summary["mse_10shot"] > 0 and summary["train_seconds"] > 0
    with open(summary["figure"], "rb") as figure:
        assert figure.read(4) == b"\x89PNG"


def test_train_leaves_a_run_folder(trained):
    assert sorted(os.listdir(trained))[:4] == [LOCK, "checkpoint.safetensors", "config.toml", "metrics.jsonl"]
    assert tomllib.loads((trained / "config.toml").read_text())["training"]["seeds"] == [0, 1]


def test_evaluate_as_a_table_and_as_json(trained, tmp_path):
    assert "mse_5shot" in metafun("evaluate", trained).stdout
    record = tmp_path / "results.jsonl"
    result = metafun("evaluate", trained, "--json", "--shots", 3, "--tasks", 20, "--record", record)
    results = json.loads(result.stdout)
    assert set(results["metrics"]) == {"mse_3shot"} and len(results["metrics"]["mse_3shot"]["seeds"]) == 2
    assert results["test_tasks"] == 20 and results["parameters"] > 0
    assert json.loads(record.read_text()) == results


def test_evaluation_of_best_and_last_differ_only_in_the_parameters(trained):
    best, last = (json.loads(metafun("evaluate", trained, "--json", *extra).stdout) for extra in ([], ["--last"]))
    assert (best["which"], last["which"]) == ("best", "last")
    assert best["config"] == last["config"]


def test_plot_draws_two_figures_and_overwrite_removes_every_figure(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    result = metafun("plot", run)
    assert result.exit_code == 0, result.output
    for path in result.stdout.split():
        with open(path, "rb") as figure:
            assert figure.read(4) == b"\x89PNG"
    for name in (*Figure, "mine.png"):
        (run / name).touch()
    assert metafun("train", "sinusoid", "--out", run, "--overwrite", *SETTINGS).exit_code == 0
    assert [path.name for path in run.glob("*.png")] == ["mine.png"], "only figures of the run"


def test_several_runs_are_drawn_side_by_side(trained, tmp_path):
    """Also runs of another model: MAML trains, evaluates and is drawn by the same commands."""
    tiny = [s for s in TINY if not s.startswith("model.")]
    settings = [part for setting in [*tiny, "model.test_steps=3"] for part in ("--set", setting)]
    assert metafun("train", "maml", "--out", tmp_path / "maml", *settings).exit_code == 0
    assert "mse_5shot" in metafun("evaluate", tmp_path / "maml").stdout
    figure = tmp_path / "both.png"
    result = metafun("plot", trained, tmp_path / "maml", "--out", figure)
    assert result.exit_code == 0 and figure.read_bytes()[:4] == b"\x89PNG"
    assert "a figure is a .png" in fails("plot", trained, tmp_path / "maml", "--out", tmp_path / "both.txt")
    assert "there is no folder" in fails("plot", trained, tmp_path / "maml", "--out", tmp_path / "no" / "both.png")
    assert "must have different folder names" in fails("plot", trained, trained, "--out", figure)


def test_runs_are_compared_as_a_table_and_as_json(trained, tmp_path):
    other = tmp_path / "other"
    changed = ("--set", "model.iterations=1", "--set", "evaluation.tasks=30")
    assert metafun("train", "sinusoid", "--out", other, *SETTINGS, *changed).exit_code == 0
    results = json.loads(metafun("compare", trained, other, "--json").stdout)
    assert results["test_tasks"] == 40, "the evaluation of the first"
    first, second = results["runs"]
    assert first["settings"] == {"model.iterations": 2, "training.seeds": [0, 1]}
    assert second["settings"] == {"model.iterations": 1, "training.seeds": [0]}
    alone = json.loads(metafun("evaluate", trained, "--json").stdout)["metrics"]
    assert first["metrics"] == alone
    assert second["metrics"] == json.loads(metafun("evaluate", other, "--json", "--tasks", 40).stdout)["metrics"]
    table = metafun("compare", trained, other, "--tasks", 20).stdout
    assert "model.iterations" in table and "mse_5shot" in table and "20 test tasks" in table
    assert "is not a run folder" in fails("compare", trained, tmp_path)


def test_the_figure_of_one_run_goes_where_it_is_told(trained, tmp_path):
    figure = tmp_path / "mine.svg"
    result = metafun("plot", trained, "--out", figure)
    assert result.stdout.split() == [str(figure)] and b"<svg" in figure.read_bytes()[:1000]
    assert "a figure is a .png" in fails("plot", trained, "--out", tmp_path / "mine.txt")


def test_runs_on_curves_are_compared_but_not_with_runs_on_sinusoids(trained, tmp_path):
    for name in ("gp-paper-kfp", "gp-paper-dfp"):
        assert metafun("train", name, "--out", tmp_path / name, *SETTINGS).exit_code == 0
    other = ("--set", "tasks.kernel=matern52", "--out", tmp_path / "matern")
    assert metafun("train", "gp-paper-kfp", *SETTINGS, *other).exit_code == 0
    refused = fails("compare", tmp_path / "gp-paper-kfp", tmp_path / "matern")
    assert "have different test tasks: tasks.kernel is 'rbf' and 'matern52'; compare runs with the same." in refused
    figure = tmp_path / "both.png"
    assert metafun("plot", tmp_path / "gp-paper-kfp", tmp_path / "gp-paper-dfp", "--out", figure).exit_code == 0
    assert figure.read_bytes()[:4] == b"\x89PNG"
    message = fails("plot", trained, tmp_path / "gp-paper-kfp", "--out", figure)
    assert "gp-paper-kfp was trained on new curves, rbf kernel; runs on sinusoids can be compared with each" in message


def test_a_model_is_drawn_step_by_step(trained, tmp_path):
    """A shipped model, a run folder, and the checkpoint in it."""
    figure = tmp_path / "steps.png"
    for model in ("sinusoid", trained, trained / "checkpoint.safetensors"):
        result = metafun("plot", model, "--step-by-step", "--out", figure)
        assert result.exit_code == 0 and result.stdout.split() == [str(figure)], result.output
        assert figure.read_bytes()[:4] == b"\x89PNG"
        figure.unlink()
    assert "but this model has: 784 inputs, classification" in fails("plot", "glyphs", "--step-by-step")
    assert "draws one model, but 2 were given" in fails("plot", "sinusoid", "gp-rbf", "--step-by-step")
    assert "a figure is a .png" in fails("plot", "sinusoid", "--step-by-step", "--out", tmp_path / "steps.txt")
    assert "no checkpoint of that name is shipped" in fails("plot", "sinusoids", "--step-by-step")


def test_info_names_versions_and_devices():
    facts = json.loads(metafun("info", "--json").stdout)
    assert facts["devices"] and "sinusoid" in facts["presets"]
    assert "jax" in metafun("info").stdout


COMMANDS = sorted(path for path in _commands(typer.main.get_command(app)) if path != ("info",))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command):
    """Its help has a summary, an example of the command itself, and a sentence for every option."""
    group = typer.main.get_command(app)
    for name in command:
        group = group.commands[name]
    result = metafun(*command, "--help")
    assert result.exit_code == 0
    assert f"metafun {' '.join(command)}" in result.stdout.split("Example", 1)[1]
    options = [p for p in group.params if not getattr(p, "hidden", False)]
    assert all(p.help for p in options), [p.name for p in options if not p.help]
    shown = set(re.findall(r"--[a-z-]+", result.stdout))
    assert {name for p in options for name in p.opts if name.startswith("--")} <= shown


def test_mistakes_are_answered_in_one_line(trained, tmp_path):
    assert "unknown preset 'sinusiod'; did you mean 'sinusoid'" in fails("train", "sinusiod")
    assert "unknown key 'training.step'; did you mean 'steps'" in fails("train", "sinusoid", "--set", "training.step=3")
    assert "holds a run already" in fails("train", "sinusoid", "--out", trained, *SETTINGS)
    asked = fails("train", "sinusoid", "--out", trained, "--resume", "--seeds", 2, "--set", "model.iterations=5")
    assert "was started with other settings: model.iterations is 2 there and 5 here. A run that goes on may" in asked
    assert "--data needs tasks.kind = 'episodes'" in fails("train", "sinusoid", "--data", "mine")
    assert "there is no folder" in fails("evaluate", trained, "--record", tmp_path / "no" / "results.jsonl")
    assert "is not a run folder" in fails("evaluate", tmp_path)
    assert "is not a run folder" in fails("plot", tmp_path / "nothing")
    assert f"The run is its folder, {trained}" in fails("evaluate", trained / "checkpoint.safetensors")
    assert f"It contains runs; name one of them: {trained}" in fails("evaluate", trained.parent)
    assert f"Did you mean {trained}?" in fails("evaluate", f"{trained}s")
    (tmp_path / "started").mkdir()
    (tmp_path / "started" / "config.toml").write_text((trained / "config.toml").read_text())
    assert "there is no checkpoint" in fails("evaluate", tmp_path / "started")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.toml").write_text("[tool]\nname = 3\n")
    assert "unknown key 'tool'" in fails("evaluate", tmp_path / "foreign")
    (tmp_path / "file").write_text("")
    assert "is not a run folder" in fails("train", "sinusoid", "--out", tmp_path / "file")


def test_options_that_contradict_each_other_are_refused(tmp_path):
    assert "contradict" in fails("train", "sinusoid", "--resume", "--overwrite", "--out", tmp_path / "run")
    assert "set the same thing" in fails("train", "sinusoid", "--seeds", 2, "--set", "training.seeds=[7]")


def test_brackets_in_a_path_are_only_brackets(tmp_path):
    path = tmp_path / "r[/x]u[bold]"
    result = metafun("train", "sinusoid", "--out", path, *SETTINGS)
    assert result.exit_code == 0 and "r[/x]u[bold]" in result.stderr
    assert "r[/x]u[bold]" in metafun("plot", path).stdout
    assert metafun("evaluate", path).exit_code == 0


def test_overwrite_replaces_a_run(trained, tmp_path):
    path = tmp_path / "run"
    for extra in ([], ["--overwrite", "--set", "training.steps=20"]):
        assert metafun("train", "sinusoid", "--out", path, *SETTINGS, *extra).exit_code == 0
    assert tomllib.loads((path / "config.toml").read_text())["training"]["steps"] == 20
    assert len((path / "metrics.jsonl").read_text().splitlines()) == 2


def test_resume_needs_no_settings(tmp_path):
    """Those of the folder are taken; what was measured before is of another model and goes."""
    path = tmp_path / "run"
    run = Run.create(path, load_config("sinusoid", TINY))
    training = run.train()
    next(training)
    training.close()
    assert "stopped after 10 of 60 steps" in metafun("evaluate", path).stderr and (path / "evaluation.json").exists()
    assert metafun("train", "sinusoid", "--resume", "--out", path).exit_code == 0
    assert run.record.step == 60 and not (path / "evaluation.json").exists()


@pytest.mark.parametrize(("start", "is_noted"), [("", True), ('base = "sinusoid"\n', False)])
def test_a_file_without_base_and_tasks_says_what_it_trains(start, is_noted, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(start + "[training]\npatience = 3\n")
    result = metafun("train", path, "--out", tmp_path / "run", *SETTINGS, "--set", "training.keep=best")
    assert result.exit_code == 0 and is_noted == (
        "names no base and no tasks, so it trains model.kind = 'metafun' on new sinusoids" in result.stderr
    )


def test_the_version_is_told():
    assert metafun("--version").stdout.strip() == __version__


@pytest.mark.parametrize("command", ["train sinusoid", "demo", "protocol features", "search features"])
def test_resume_of_nothing_is_a_mistake(command, tmp_path):
    message = fails(*command.split(), "--resume", "--out", tmp_path / "run")
    assert "run to continue; name it with --out, or drop --resume" in message and not (tmp_path / "run").exists()


def test_a_run_killed_before_it_began_is_resumed(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / LOCK).touch()
    assert metafun("train", "sinusoid", "--resume", "--out", tmp_path / "run", *SETTINGS).exit_code == 0


def test_a_finished_run_is_extended(trained, tmp_path):
    """The longer schedule holds from the step where the run was, whatever its chunks; the rest of the settings stay."""
    run = shutil.copytree(trained, tmp_path / "run")
    assert "is complete; extend it with" in metafun("train", "sinusoid", "--resume", "--out", run).stderr
    assert "has trained for 60 steps already" in fails(
        "train", "sinusoid", "--resume", "--out", run, "--set", "training.steps=50"
    )
    for steps in (65, 100):
        command = ("train", "sinusoid", "--resume", "--out", run, "--set", f"training.steps={steps}")
        assert metafun(*command).exit_code == 0
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in metrics] == [10, 20, 30, 40, 50, 60, 65, 70, 80, 90, 100]
    assert [entry["step"] for entry in metrics if "validation" in entry] == [20, 40, 60, 65, 80, 100]
    assert Run(run).record.extended == (60, 65) and Run(run).config.training.seeds == (0, 1)
    assert metrics[:6] == [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    result = metafun("evaluate", run, "--json", "--tasks", 20)
    assert "training was extended at step 60, 65; it is not one run of 100 steps" in result.stderr
    assert json.loads(result.stdout)["extended"] == [60, 65]


@pytest.mark.slow
def test_away_from_a_terminal_there_is_a_line_for_each_validation(tmp_path):
    command = [sys.executable, "-m", "metafun.cli", "train", "sinusoid", "--out", str(tmp_path / "run"), *SETTINGS]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    first, *validations, last = result.stderr.splitlines()
    assert result.stdout == "" and "60 steps, 1 seed, on new sinusoids" in first
    assert [line.split(":")[0] for line in validations] == ["step 20", "step 40", "step 60"]
    assert "Next: metafun evaluate" in last
