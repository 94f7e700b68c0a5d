"""Folders and files from a stranger: nothing in them is executed, and nothing outside them is written."""

import itertools
import json
import os
import subprocess
import sys
import warnings

import pytest
from rich.console import Console
from typer.testing import CliRunner

from examples import TINY, TINY_EPISODES, clusters
from metafun import MetaFunClassifier
from metafun.cli import app
from metafun.config import load_config, load_space
from metafun.data.table_folder import save_table
from metafun.errors import InvalidConfig, InvalidRun, InvalidSearch
from metafun.files import write_atomically
from metafun.training import run_folder, search
from metafun.training.protocol import run_protocol
from metafun.training.random_search import RandomSearch
from metafun.training.run import Run
from metafun.training.run_folder import Figure, RunFolder
from metafun.training.search import open_study, work
from test_meta_fit import blobs

SETTINGS = [part for setting in TINY_EPISODES for part in ("--set", setting) if "steps" not in setting]


def metafun(*arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fails(*arguments) -> str:
    result = metafun(*arguments)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, result.output
    return result.stderr


@pytest.fixture
def victim(tmp_path):
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.fixture
def space(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "data"))
    save_table(clusters(), tmp_path / "data", "a test")
    (tmp_path / "space.toml").write_text('["training.learning_rate"]\nlog_uniform = [1e-4, 1e-1]')
    return load_space(str(tmp_path / "space.toml"), load_config("features", [*TINY_EPISODES, "tasks.data=clusters"]))


@pytest.mark.slow
def test_workers_do_not_import_from_the_current_folder(tmp_path, space):
    here = tmp_path / "here"
    here.mkdir()
    (here / "optuna.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\nraise SystemExit(3)\n")
    command = "import sys; del sys.path[0]; from metafun.cli import main; main()"
    arguments = ["search", "features", "--data", "clusters", "--space", str(tmp_path / "space.toml"), "--steps", "20"]
    arguments += [*SETTINGS, "--trials", "2", "--batch", "1", "--workers", "2", "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-c", command, *arguments], cwd=here, capture_output=True)
    assert not (tmp_path / "executed").exists()
    assert done.returncode == 0, done.stderr


def test_a_write_does_not_follow_links(tmp_path, victim):
    for name in ("a.json", "a.json.tmp"):
        (tmp_path / name).symlink_to(victim)
    write_atomically(tmp_path / "a.json", b"new")
    assert victim.read_text() == "precious" and (tmp_path / "a.json").read_bytes() == b"new"


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"):
        write_atomically(tmp_path / "a.json", b"new")
    assert not list(tmp_path.iterdir())


def test_a_run_folder_writes_only_into_itself(tmp_path, victim):
    run = Run.create(tmp_path / "run", load_config("sinusoid", [*TINY, "training.steps=20"]))
    list(run.train())
    names = ["evaluation.json", "checkpoint.safetensors.tmp", "evaluation.json.tmp", *Figure]
    for name in names:
        (run.path / name).symlink_to(victim)
    for command in (("evaluate", run.path), ("plot", run.path), ("evaluate", run.path)):
        assert metafun(*command).exit_code == 0
        assert victim.read_text() == "precious"
    metrics = run.path / "metrics.jsonl"
    metrics.unlink()
    metrics.symlink_to(victim)
    run.checkpoint_file.unlink()
    assert metafun("train", "sinusoid", "--resume", "--out", run.path).exit_code == 0
    assert victim.read_text() == "precious"


def test_pipes_in_received_folders_are_refused(tmp_path, space):
    """Opening one would wait forever."""
    run = Run.create(tmp_path / "run", load_config("sinusoid", [*TINY, "training.steps=20"]))
    results = tmp_path / "results"
    results.mkdir()
    for pipe in (
        run.checkpoint_file,
        results / "paper.jsonl",
        tmp_path / "archive.zip",
        tmp_path / "x.npz",
        results / "seconds",
    ):
        os.mkfifo(pipe)
    assert "it is not a file" in fails("evaluate", run.path)
    assert "it is not a file" in fails("plot", run.path)
    assert "it is not a file" in fails("reproduce", "table1", "--results", results)
    assert "it is not a file" in fails("data", "fetch", "--from", tmp_path / "archive.zip")
    assert "it is not a file" in fails("fit", tmp_path / "x.npz", "--target", "y", "--out", tmp_path / "m.safetensors")
    with pytest.raises(OSError, match="it is not a file"):
        _ = RandomSearch(results, space, seed=0, trials=1).seconds


def test_links_to_folders_are_not_followed(tmp_path, space):
    config, console = load_config("features", [*TINY_EPISODES, "tasks.data=clusters"]), Console(quiet=True)
    outside = Run.create(tmp_path / "outside", config).path
    before, received = sorted(outside.iterdir()), tmp_path / "received"
    received.mkdir()
    for name in ("tune", "final", "trials-00000", "data", "run"):
        (received / name).symlink_to(outside)
    for is_resumed in (False, True):
        with pytest.raises(InvalidRun, match="is a link to another folder; remove it"):
            run_protocol(received, config, console, overwrite=not is_resumed, resume=is_resumed)
    with pytest.raises(InvalidRun, match="is a link to another folder"):
        RandomSearch(received, space, seed=0, trials=1).train(console)
    x, y = blobs()
    with pytest.raises(InvalidRun, match="is a link to another folder"):
        MetaFunClassifier().meta_fit(x, y, folder=received, progress=False)
    assert sorted(outside.iterdir()) == before


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    run = Run.create(tmp_path / "run", load_config("sinusoid", [*TINY, "training.steps=20"]))
    (run.path / f"checkpoint.safetensors.{'0a' * 16}.tmp").write_bytes(b"part")
    list(run.train())
    assert not list(run.path.glob("*.tmp"))


def test_a_run_that_appears_between_check_and_lock_is_kept(tmp_path, monkeypatch):
    config = load_config("sinusoid", [*TINY, "training.steps=20"])
    lock = run_folder.locked

    def late(path):
        if not RunFolder.is_free(path):
            return lock(path)
        with monkeypatch.context() as patch:
            patch.setattr(run_folder, "locked", lock)
            list(Run.create(path, config).train())
        return lock(path)

    monkeypatch.setattr(run_folder, "locked", late)
    with pytest.raises(InvalidRun, match="holds a run already"):
        Run.create(tmp_path / "run", config)
    assert Run(tmp_path / "run").record.step == 20


def test_folders_of_killed_imports_are_removed_after_a_day(tmp_path):
    old, new, other = (
        tmp_path / f".{name}.{digit * 32}" for name, digit in (("clusters", "a"), ("clusters", "b"), ("x", "a"))
    )
    for folder in (old, new, other):
        folder.mkdir()
        (folder / "features.npy").touch()
    for folder in (old, other):
        os.utime(folder, (0, 0))
    save_table(clusters(), tmp_path, "a test")
    assert not old.exists() and new.exists() and other.exists()


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "trials-1", "trials-00000/../x", 3, ["a"], ""])
def test_a_study_cannot_name_another_folder(tmp_path, space, name):
    study = open_study("s", str(tmp_path / "journal"), space, pruner="none")
    trial = study.ask()
    trial.set_user_attr("worker", "w")
    trial.suggest_float("training.learning_rate", 1e-4, 1e-1, log=True)
    trial.set_user_attr("run", name)
    with pytest.raises(InvalidSearch, match="not a run folder of this search"):
        list(work(study, space, tmp_path / "deep" / "worker", worker="w", trials=1, batch=1))
    assert not list(tmp_path.glob("outside*")) and [p.name for p in (tmp_path / "deep").iterdir()] == ["worker"]


def test_a_torn_line_of_a_journal_is_moved_aside(tmp_path, space):
    journal = tmp_path / "journal"
    open_study("s", str(journal), space)
    whole = journal.read_bytes()
    for torn in (b'{"op_code', b'{"op_code": 3', b"\x00" * 10):
        journal.write_bytes(whole + torn)
        with pytest.warns(UserWarning, match=r"the last line was incomplete.*moved to journal\.torn"):
            study = open_study("s", str(journal), space)
        assert (tmp_path / "journal.torn").read_bytes() == torn
        study.ask()
        assert len(open_study("s", str(journal), space).get_trials()) == 1
    journal.write_bytes(whole.splitlines(keepends=True)[0][:-5])
    with pytest.warns(UserWarning, match="the last line was incomplete"):
        open_study("s", str(journal), space)


def test_a_file_that_is_no_journal_is_not_changed(tmp_path, space, victim):
    (tmp_path / "link").symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    for name in ("victim", "link", "pipe", "data"):
        with pytest.raises(InvalidSearch, match=r"is a link or not a file|is not the journal of a study"):
            open_study("s", str(tmp_path / name), space)
        assert victim.read_text() == "precious"


def test_a_changed_journal_is_read_or_refused(tmp_path, space, monkeypatch):
    """Every line removed, doubled and moved to the front, and each of its values replaced: never another error."""
    monkeypatch.setattr(search, "_train", lambda *_: iter(()))
    journal, outcomes = tmp_path / "journal", set()
    study = open_study("s", str(journal), space)
    trial = study.ask()
    trial.set_user_attr("worker", "w")
    trial.suggest_float("training.learning_rate", 1e-4, 1e-1, log=True)
    trial.set_user_attr("run", "trials-00000")
    study.tell(trial, 0.5)
    lines = journal.read_bytes().splitlines(keepends=True)
    changed = [[*lines[:i], *lines[i + 1 :]] for i in range(1, len(lines))]
    changed += [[*lines[: i + 1], *lines[i:]] for i in range(len(lines))] + [[line, *lines] for line in lines[1:]]
    for i, line in enumerate(lines):
        for key, value in itertools.product(json.loads(line), (None, -1, "x", [], {}, 1.5, 10**400)):
            other = json.dumps(json.loads(line) | {key: value}) + "\n"
            changed.append([*lines[:i], other.encode(), *lines[i + 1 :]])
    monkeypatch.setattr(search.time, "sleep", lambda _: None)
    for content in changed:
        journal.write_bytes(b"".join(content))
        try:
            study = open_study("s", str(journal), space)
            list(work(study, space, tmp_path / "worker", worker="w", trials=0, batch=1))
            search.summary(study)
            outcomes.add("read")
        except InvalidSearch as error:
            outcomes.add("refused")
            assert len(str(error)) < 1000
    assert outcomes == {"read", "refused"}


def test_a_run_that_is_not_that_of_the_trials_is_refused(tmp_path, space):
    study = open_study("s", str(tmp_path / "journal"), space, pruner="none")
    moments = work(study, space, tmp_path / "worker", worker="w", trials=2, batch=2)
    next(moments)
    moments.close()
    config = tmp_path / "worker" / "trials-00000" / "config.toml"
    config.write_text(config.read_text().replace("steps = 60", "steps = 80"))
    with pytest.raises(InvalidConfig, match=r"was started with other settings: training\.steps is 80 there and 60"):
        list(work(study, space, tmp_path / "worker", worker="w", trials=2, batch=2))
