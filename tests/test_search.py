"""Hyperparameter search: spaces, studies that many workers share, interruption, storage that is not there."""

import getpass
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from typer.testing import CliRunner

from examples import TINY, TINY_EPISODES, clusters
from metafun.cli import app
from metafun.config import default_space, load_config, load_space
from metafun.data.table_folder import save_table
from metafun.errors import InvalidConfig, InvalidSearch
from metafun.training.run import Run
from metafun.training.search import best, finished, forget, open_study, running, winner, work

SPACE = """
["model.iterations"]
integers = [1, 2]

["model.initial.kind"]
choices = ["zero", "parametric"]

["training.learning_rate"]
log_uniform = [1e-4, 1e-1]

["model.decoder.dropout"]
uniform = [0.0, 0.5]
also = ["model.initial.dropout"]
"""


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path / "data"))
    save_table(clusters(), tmp_path / "data", "a test")


@pytest.fixture
def space(tmp_path):
    (tmp_path / "space.toml").write_text(SPACE)
    return load_space(str(tmp_path / "space.toml"), tiny())


@pytest.fixture
def numbers(tmp_path):
    """A space in which all trials have one shape."""
    (tmp_path / "numbers.toml").write_text('["training.learning_rate"]\nlog_uniform = [1e-4, 1e-1]')
    return load_space(str(tmp_path / "numbers.toml"), tiny("training.steps=40"))


def tiny(*settings):
    return load_config("features", [*TINY_EPISODES, "tasks.data=clusters", *settings])


def all_trials(study):
    return study.get_trials(deepcopy=False)


def test_the_space_of_the_paper_fits_its_presets():
    for preset, fixed in (("mini-dfp-1shot", []), ("mini-kfp-5shot", ["model.step_size"])):
        space = load_space("space-table4", load_config(preset), fixed)
        assert len(space.ranges) == 11 - len(fixed)
        assert {"training.learning_rate", "model.decoder.dropout", "model.l2"} <= space.batchable
        assert not {"model.iterations", "model.initial.kind", "model.representation"} & space.batchable


def test_a_fixed_setting_still_decides_what_goes_with_it():
    config = load_config("mini-kfp-1shot", ["model.update.kind=gradient"])
    space = load_space("space-table4", config, ["model.update.layers", "model.decoder.dropout", "model.step_size"])
    assert "model.step_size" not in space.ranges and "model.decoder.dropout" in space.batchable
    values = {"model.initial.kind": "parametric", "model.update.layers": 2}
    drawn = space.configure(values | {"model.decoder.dropout": 0.25})
    assert drawn.model.initial.layers == 2 and drawn.model.initial.dropout == 0.25
    assert drawn.model.decoder.dropout == config.model.decoder.dropout
    both = space.combine([values | {"model.decoder.dropout": rate} for rate in (0.1, 0.2)])
    assert both.vary == {"model.initial.dropout": (0.1, 0.2)}


def test_settings_that_go_together(space):
    config = space.configure({"model.initial.kind": "parametric", "model.decoder.dropout": 0.25})
    assert config.model.initial.dropout == config.model.decoder.dropout == 0.25
    both = space.combine([{"model.decoder.dropout": 0.1}, {"model.decoder.dropout": 0.2}])
    assert both.vary == {"model.decoder.dropout": (0.1, 0.2)}, "there is no initial dropout to go with it"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["model.iteration"]\nintegers = [1, 2]', "no setting 'model.iteration'; did you mean 'model.iterations'"),
        ('["model.iterations"]\ninteger = [1, 2]', "unknown key 'model.iterations.integer'; did you mean 'integers'"),
        ('["model.iterations"]\nintegers = [2, 1]', "the lower bound comes first"),
        ('["model.iterations"]\nintegers = [1, 2]\nuniform = [0, 1]', "one of choices, integers, uniform, log_uniform"),
        ('["model.iterations"]\nchoices = []', "an empty list of choices"),
        ('["model.iterations"]\nintegers = [1, 1000]', "model.iterations = 1000, but it must be between"),
        ('["model.initial.kind"]\nchoices = ["zero", "one"]', "model.initial.kind = 'one' is not known"),
        ('["training.learning_rate"]\nlog_uniform = [0.0, 1.0]', "for log_uniform, is positive"),
        ('"model.iterations" = 3', "must be a table such as uniform"),
        ("[", "not valid TOML"),
    ],
)
def test_a_space_with_a_mistake_is_refused(tmp_path, text, message):
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises(InvalidConfig, match=message.replace("[", r"\[")):
        load_space(str(tmp_path / "wrong.toml"), tiny())
    with pytest.raises(InvalidConfig, match="unknown space 'table'"):
        load_space("table", tiny())
    with pytest.raises(InvalidConfig, match=r"no setting 'model\.step' to fix; did you mean 'model.step_size'"):
        load_space("space-table4", tiny(), ["model.step"])


def test_a_search_that_is_stopped_goes_on_and_does_nothing_twice(space, tmp_path):
    journal, folder = str(tmp_path / "journal"), tmp_path / "worker"
    options = {"worker": "w", "trials": 5, "batch": 2}
    moments = work(open_study("s", journal, space, pruner="none"), space, folder, **options)
    for _ in range(4):  # the first trials are in the middle of their training
        next(moments)
    moments.close()
    study = open_study("s", journal, space, pruner="none")
    assert [t.number for t in running(study)] == [0, 1]
    first = list(work(study, space, folder, **options))
    assert first[0].trials == (0, 1) and first[1].metrics.record.step > 30, "not from the start"
    assert [t.state for t in all_trials(study)] == [TrialState.COMPLETE] * 5 and not running(study)
    assert list(work(study, space, folder, **options)) == [], "nothing is left to do"
    for path in filter(Path.is_dir, folder.iterdir()):
        trials = [t for t in all_trials(study) if t.user_attrs["run"] == path.name]
        run = Run(path)
        assert len(run.experiment.variants) == len(trials)
        shapes = {(t.params["model.iterations"], t.params["model.initial.kind"]) for t in trials}
        assert len(shapes) == 1, "what is trained together has one shape"
        assert [v.training.learning_rate for v in run.experiment.variants] == pytest.approx(
            [t.params["training.learning_rate"] for t in trials]
        )
        assert [t.value for t in trials] == pytest.approx(list(run.record.best_error))


def test_trials_of_one_batch_are_drawn_independently(space, tmp_path):
    """They once shared the shape of the first, so that a search saw few architectures."""
    study = open_study("s", str(tmp_path / "journal"), space, pruner="none")
    next(work(study, space, tmp_path / "worker", worker="w", trials=8, batch=8))
    params = [trial.params for trial in all_trials(study)]
    assert len(params) == 8
    assert {p["model.iterations"] for p in params} == {1, 2}
    assert {p["model.initial.kind"] for p in params} == {"zero", "parametric"}


def test_one_that_was_being_asked_for_is_replaced(numbers, tmp_path):
    space, study = numbers, open_study("s", str(tmp_path / "journal"), numbers)
    lost, half = study.ask(), study.ask()
    half.set_user_attr("worker", "w")
    options = {"worker": "w", "trials": 2, "batch": 2}
    list(work(study, space, tmp_path / "worker", **options))
    assert [t.state for t in all_trials(study)] == [TrialState.RUNNING, TrialState.FAIL, TrialState.COMPLETE]
    assert forget(study) == 1 and lost.number == 0
    list(work(study, space, tmp_path / "worker", **options))
    assert len(finished(study)) == 2 and not running(study)


def test_a_worker_killed_after_its_first_trial_was_created_loses_no_place(numbers, tmp_path, monkeypatch):
    study = open_study("s", str(tmp_path / "journal"), numbers)
    options = {"worker": "w", "trials": 2, "batch": 2}
    with monkeypatch.context() as context:
        context.setattr("metafun.training.search.Trial", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            list(work(study, numbers, tmp_path / "worker", **options))
    assert len(running(study)) == 1
    list(work(study, numbers, tmp_path / "worker", **options))
    assert len(finished(study)) == 2 and not running(study)


def test_when_all_are_hopeless_a_batch_is_given_up(numbers, tmp_path, monkeypatch):
    study = open_study("s", str(tmp_path / "journal"), numbers)
    monkeypatch.setattr(optuna.trial.Trial, "should_prune", lambda trial: trial.number in (0, 1, 2))
    moments = list(work(study, numbers, tmp_path / "worker", worker="w", trials=4, batch=2))
    steps = {moment.trials: moment.metrics.record.step for moment in moments if moment.metrics}
    assert steps == {(0, 1): 20, (2, 3): 40}, "one that is promising takes the other with it"
    states = [t.state for t in all_trials(study)]
    assert states == [TrialState.PRUNED] * 2 + [TrialState.COMPLETE] * 2, "what was trained to its end counts"
    assert best(study).number in (2, 3) and [t.number for t in finished(study)][2:] == [0, 1]


def test_settings_that_do_not_fit_together_are_passed_over(tmp_path):
    ranges = '["model.pooling.kind"]\nchoices = ["attention", "squared-exponential"]'
    (tmp_path / "space.toml").write_text(f'{ranges}\n["model.pooling.layers"]\nchoices = [1]')
    space = load_space(str(tmp_path / "space.toml"), tiny())
    study = open_study("s", str(tmp_path / "journal"), space)
    list(work(study, space, tmp_path / "worker", worker="w", trials=6, batch=1))
    done = {t.params["model.pooling.kind"]: t.state for t in all_trials(study)}
    assert done == {"attention": TrialState.COMPLETE, "squared-exponential": TrialState.PRUNED}


def test_the_winner_is_what_was_trained(tmp_path):
    """Also where it is of another kind, whose other settings happen to be those of the preset."""
    (tmp_path / "space.toml").write_text('["model.pooling.kind"]\nchoices = ["deep-kernel"]\n')
    space = load_space(str(tmp_path / "space.toml"), tiny("model.pooling.layers=1"))
    study = optuna.create_study()
    trial = study.ask()
    trial.suggest_categorical("model.pooling.kind", ["deep-kernel"])
    study.tell(trial, 0.5)
    (tmp_path / "base.toml").write_text('base = "features"\n[model.pooling]\nlayers = 1\nwidth = 8\n')
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "best.toml").write_text(winner(study, space, str(tmp_path / "base.toml")))
    assert load_config(str(tmp_path / "out" / "best.toml")).model == space.configure(trial.params).model


@pytest.mark.parametrize(
    ("settings", "fixed", "message"),
    [
        (["training.validate_every=0"], [], "compares trials on validation"),
        ([], ["training.learning_rate"], "leaves no setting to search"),
    ],
)
def test_a_search_that_could_not_end_well_does_not_begin(tmp_path, settings, fixed, message):
    (tmp_path / "space.toml").write_text('["training.learning_rate"]\nuniform = [0.1, 1.0]')
    with pytest.raises(InvalidConfig, match=message):
        load_space(str(tmp_path / "space.toml"), tiny(*settings), fixed)


@pytest.mark.parametrize(
    ("preset", "space"),
    [("sinusoid", "metafun"), ("mini-dfp-1shot", "table4"), ("maml", "training"), ("gp", "metafun")],
)
def test_every_preset_has_a_default_space(preset, space):
    config = load_config(preset)
    assert default_space(config) == f"space-{space}" and load_space(default_space(config), config).batchable
    assert default_space(config, ["model.stepsize"]) == f"space-{space}", "a mistake that load_space explains"


def test_sinusoids_are_searched_without_a_space(tmp_path):
    settings = [part for setting in TINY if "steps" not in setting for part in ("--set", setting)]
    command = ("search", "sinusoid", "--trials", "2", "--steps", "20", "--out", str(tmp_path / "out"), *settings)
    assert CliRunner().invoke(app, [*command, "--set", "evaluation.tasks=40"]).exit_code == 0
    assert load_config(str(tmp_path / "out" / "best.toml")).tasks.kind == "sinusoid"


def test_from_search_to_training(tmp_path, space):
    settings = [part for setting in TINY_EPISODES for part in ("--set", setting) if "steps" not in setting]
    common = ["search", "features", "--data", "clusters", "--space", str(tmp_path / "space.toml"), "--steps", "40"]
    common += ["--out", str(tmp_path / "out"), *settings]
    found = CliRunner().invoke(app, [*common, "--trials", "3", "--batch", "2", "--json"])
    assert found.exit_code == 0, found.output
    results = json.loads(found.stdout)
    assert len(results["trials"]) == 3 and all(Path(figure).stat().st_size > 1000 for figure in results["figures"])
    errors = [trial["error"] for trial in results["trials"] if trial["finished"]]
    assert errors == sorted(errors)
    config = load_config(results["best"])
    assert config.training.learning_rate == results["trials"][0]["settings"]["training.learning_rate"]
    assert config.tasks.data == "clusters" and config.tasks.ways == 3, "what the search was told holds for its winner"
    assert config.training.steps == load_config("features").training.steps, "what belongs to a trial does not"

    refused = CliRunner().invoke(app, common)
    assert refused.exit_code == 2 and "add --resume" in refused.stderr
    more = CliRunner().invoke(app, [*common, "--trials", "4", "--resume"])
    assert more.exit_code == 0 and "the best 4 of 4 trials" in more.stdout
    other = CliRunner().invoke(app, [*common, "--steps", "60", "--resume"])
    assert other.exit_code == 2 and "another configuration or space" in other.stderr
    typo = CliRunner().invoke(app, [*common, "--sampler", "randon"])
    assert typo.exit_code == 2 and "did you mean 'random'" in typo.stderr


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://me:secret@127.0.0.1:1/there", "onnection refused"),
        ("nothing://there", "Can't load plugin"),
        ("postgresql://127.0.0.1:1/there?user=me&password=secret", "onnection refused"),
        ("/nowhere/to/be/found/journal", "No such file"),
    ],
)
def test_a_storage_that_is_not_there(space, url, reason):
    began = time.monotonic()
    with pytest.raises(InvalidSearch, match=reason) as error:
        open_study("s", url, space)
    assert "secret" not in str(error.value) and time.monotonic() - began < 15


@pytest.fixture
def postgresql(tmp_path_factory):
    """A server of its own, from Debian's packages, that is reached through a socket."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not binaries:
        pytest.skip("needs a PostgreSQL server in /usr/lib/postgresql")
    user = "postgres" if getpass.getuser() == "root" else getpass.getuser()
    run = ["runuser", "-u", user, "--"] if user != getpass.getuser() else []
    folder = Path(subprocess.check_output([*run, "mktemp", "-d"], text=True).strip())
    options = f"-k {folder} -c listen_addresses='' -c fsync=off"
    subprocess.run([*run, binaries[-1] / "initdb", "-D", folder / "db", "-A", "trust"], check=True, capture_output=True)
    control = [*run, binaries[-1] / "pg_ctl", "-D", folder / "db", "-l", folder / "log", "-w"]
    subprocess.run([*control, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL)
    try:
        yield f"postgresql://{user}@/postgres?host={folder}"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["journal", "postgresql"])
def test_two_workers_lose_nothing_and_do_nothing_twice(kind, request, tmp_path, numbers):
    storage = request.getfixturevalue("postgresql") if kind == "postgresql" else str(tmp_path / "journal")
    settings = [part for setting in TINY_EPISODES for part in ("--set", setting) if "steps" not in setting]
    common = [sys.executable, "-m", "metafun.cli", "search", "features", "--data", "clusters", "--steps", "20"]
    common += ["--space", str(tmp_path / "numbers.toml"), "--storage", storage, "--study", "shared"]
    common += ["--trials", "7", "--batch", "2", "--pruner", "none", *settings]
    workers = [
        subprocess.Popen([*common, "--out", str(tmp_path / name)], stderr=subprocess.PIPE, text=True)
        for name in ("a", "b")
    ]
    for worker in workers:
        _, stderr = worker.communicate(timeout=300)
        assert worker.returncode == 0, stderr

    if kind == "journal":
        opened = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    else:
        opened = optuna.storages.RDBStorage(storage)
    trials = [
        t for t in all_trials(optuna.load_study(study_name="shared", storage=opened)) if t.state != TrialState.FAIL
    ]
    assert [t.state for t in trials] == [TrialState.COMPLETE] * 7
    folders = [path for name in ("a", "b") for path in (tmp_path / name / "worker-0").iterdir() if path.is_dir()]
    assert sorted({t.user_attrs["run"] for t in trials}) == sorted(path.name for path in folders)
    assert sum(len(Run(path).experiment.variants) for path in folders) == 7
    rates = [t.params["training.learning_rate"] for t in trials]
    assert len(set(rates)) == 7, "no two workers drew the same"
    if kind == "postgresql":
        opened.remove_session()
        opened.engine.dispose()
