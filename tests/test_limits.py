"""Small files with large numbers: refused before anything is built, with the setting, the number and the remedy."""

import inspect
import json
import os
import shutil
import time
from pathlib import Path
from typing import get_args

import jax
import numpy as np
import pytest
import safetensors.numpy
from typer.testing import CliRunner

from examples import TINY, clusters
from metafun import MetaFunClassifier, MetaFunRegressor
from metafun.cli import app, console
from metafun.config import limits, load_config
from metafun.config.load import MOST_BASES
from metafun.data import pickle_bounds
from metafun.data.csv_columns import MAX_LINE_CHARACTERS, read_csv
from metafun.data.images import MAX_FILE_SIDE, MAX_PIXELS
from metafun.data.table_folder import save_table
from metafun.errors import InvalidCheckpoint, InvalidConfig, InvalidData, InvalidTask, MetaFunError, NotEnoughMemory
from metafun.estimators.base import LARGEST
from metafun.estimators.padding import MAX_CONTEXT_FLOATS, check_context
from metafun.estimators.trained import Trained, open_trained
from metafun.files import read_text
from metafun.schema import MOST_DEPTH
from metafun.training.memory import enough_memory
from metafun.training.run import Run
from metafun.values import Width


def metafun(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def fails(*arguments) -> str:
    result = metafun(*arguments)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1, (result.exception, result.output)
    return result.stderr


@pytest.mark.parametrize(
    ("preset", "settings", "message"),
    [
        ("maml", ["model.layers=2147483647"], "must be between 0 and 100"),
        ("prototypes", ["model.layers=2147483647"], "must be between 0 and 100"),
        ("sinusoid", ["model.pooling.heads=2147483647"], "must be between 1 and 65,536"),
        ("logistic", ["model.steps=2147483647"], "must be between 1 and 100,000"),
        ("tables-regression", ["tasks.columns=1000000000"], "must be between 1 and 65,536"),
        ("gp-bnp-np", ["model.latent.samples=2147483647"], "must be between 1 and 100,000"),
        ("collected", ["tasks.outputs=2147483647"], "must be between 1 and 65,536"),
        ("sinusoid", ["tasks.targets=2147483647"], "must be between 1 and 1,048,576"),
        ("sinusoid", ["tasks.context=[1, 2147483647]"], "must be between 0 and 1,048,576"),
        ("sinusoid", ["tasks.context=[1, 1048576]", "training.batch=1000"], "context = 1,048,576 gives .* training"),
        ("collected", ["model.population.members=2500", "tasks.targets=1000"], "members = 2,500 gives .* numbers"),
        (
            "sinusoid",
            ["model.iterations=100", "model.update.layers=100"],
            "model.update.layers = 100 gives 1.04e.04 lay",
        ),
        ("maml", ["model.layers=100", "model.test_steps=100"], "gives 1e.04 layers, counting every iteration"),
        ("sinusoid", ["model.representation=65536", "model.update.width=65536"], "gives .* parameters in a model"),
        ("images", ["embedding.growth=60000"], "channels in the last block, more than 65,536"),
        ("sinusoid", ["evaluation.tasks=2147483647"], "must be between 1 and 1,048,576"),
        ("sinusoid", ["evaluation.shots=[5, 2147483647]"], "must be between 0 and 1,048,576"),
        (
            "sinusoid",
            ["evaluation.shots=[5, 1000000]", "evaluation.targets=9999"],
            "= 1,000,000 gives .* in a test task",
        ),
        ("sinusoid", [f"evaluation.shots={list(range(5000))}"], "= 5,000 gives 5e.03 kinds of test tasks"),
        ("sinusoid", ["evaluation.targets=2147483647"], "must be between 1 and 1,048,576"),
        ("sinusoid", [f"tasks{'.a' * 2000}=1"], "has 2,001 parts; no setting has more than 20"),
        (
            "sinusoid",
            [f"vary={{'training.learning_rate'={[0.1] * 3000}}}"],
            "= 3,000 gives 3e.03 variants, more than 256",
        ),
    ],
)
def test_a_setting_that_would_exhaust_the_machine_is_refused(preset, settings, message):
    began = time.monotonic()
    with pytest.raises(InvalidConfig, match=message):
        load_config(preset, settings)
    assert time.monotonic() - began < 5


def test_a_bound_can_be_raised(monkeypatch):
    settings = ["model.iterations=30", "model.update.layers=30"]
    with pytest.raises(InvalidConfig, match="set the environment variable METAFUN_LIMIT_FACTOR to 2") as error:
        load_config("sinusoid", settings)
    monkeypatch.setenv(limits.FACTOR, str(error.value).rstrip(".").split()[-1])
    assert load_config("sinusoid", settings).model.iterations == 30
    for text in ("0", "many", "inf"):
        monkeypatch.setenv(limits.FACTOR, text)
        with pytest.raises(InvalidConfig, match="it must be a positive number"):
            load_config("sinusoid")


def test_files_of_settings_are_bounded(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    assert "it is not a file" in fails("train", tmp_path / "pipe.toml")
    (tmp_path / "zero.toml").symlink_to("/dev/zero")
    assert "it is not a file" in fails("train", tmp_path / "zero.toml")
    with open(tmp_path / "large.toml", "wb") as file:
        file.truncate(2**33)
    assert "at most 4,194,304 are read" in fails("train", tmp_path / "large.toml")
    (tmp_path / "deep.toml").write_text(f"[{'.'.join('a' * 2000)}]\n")
    assert "nested more than 20 deep" in fails("train", tmp_path / "deep.toml")
    for i in range(2000):
        (tmp_path / f"{i}.toml").write_text(f'base = "{i + 1}.toml"\n')
    assert "a chain of more than 20 files" in fails("train", tmp_path / "0.toml")
    with pytest.raises(OSError, match="it is not a file"):
        read_text(tmp_path / "pipe.toml")


def checkpoint(tmp_path, header=None, tensors=None):
    """A shipped model with another header, or further tensors."""
    source = open_trained("sinusoid")
    source.save(tmp_path / "plain.safetensors")
    with safetensors.safe_open(tmp_path / "plain.safetensors", framework="numpy") as file:
        known, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    path = tmp_path / "changed.safetensors"
    path.write_bytes(safetensors.numpy.save(arrays | (tensors or {}), known | (header or {})))
    return path


@pytest.mark.parametrize("lacking", ["columns", "keeps_missing"])
def test_an_encoding_that_lacks_a_key_is_refused(tmp_path, lacking):
    encoding = {"columns": [{"name": "x", "kind": "number"}], "keeps_missing": True}
    del encoding[lacking]
    path = checkpoint(tmp_path, {"record": json.dumps({"encoding": encoding})})
    with pytest.raises(InvalidCheckpoint, match=f"damaged encoding: the key '{lacking}' is missing"):
        open_trained(path)


@pytest.mark.parametrize("target", [3, True, [1], [["y"]], {"y": 1}, [None]])
def test_a_target_that_is_no_name_is_refused(tmp_path, target):
    (tmp_path / "rows.csv").write_text("x,y\n0.1,1\n0.2,2\n")
    path = checkpoint(tmp_path, {"record": json.dumps({"columns": ["x"], "target": target})})
    command = ("predict", tmp_path / "rows.csv", "--model", path, "--context", tmp_path / "rows.csv", "--json")
    assert "its target is not the name of a column" in fails(*command)


RECORDS = ["9" * 5000, "[]", "null", '{"step": ' + "9" * 5000 + "}", "[" * 100_000, '{"best_error": 3}']


@pytest.mark.parametrize("record", RECORDS, ids=lambda text: text[:12])
def test_a_damaged_record_is_refused_or_ignored(tmp_path, record):
    try:
        open_trained(checkpoint(tmp_path, {"record": record}))
    except InvalidCheckpoint as error:
        assert "damaged header" in str(error) and len(str(error)) < 500


@pytest.mark.parametrize("record", [{"seconds": -1e300}, {"step": -5}, {"step": 10**30}, {"extended": [-1]}])
def test_a_run_that_never_was_is_not_resumed(trained, tmp_path, record):
    run = shutil.copytree(trained, tmp_path / "run")
    path = run / "checkpoint.safetensors"
    with safetensors.safe_open(path, framework="numpy") as file:
        header, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header["record"] = json.dumps(json.loads(header["record"]) | record)
    path.write_bytes(safetensors.numpy.save(arrays, header))
    for command in (("evaluate", run), ("train", "sinusoid", "--resume", "--out", run)):
        assert "has a damaged header" in fails(*command)


def test_shapes_are_compared_before_data_are_read(tmp_path, monkeypatch):
    """A file of 8 GB that takes no space on disk."""
    path = checkpoint(tmp_path)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    # The last in the file, since data must not have gaps.
    name = max(header.keys() - {"__metadata__"}, key=lambda name: header[name]["data_offsets"])
    begin = header[name]["data_offsets"][0]
    header[name] |= {"shape": [2**31], "data_offsets": [begin, begin + 2**33]}
    content = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(content).to_bytes(8, "little") + content + raw[8 + length :])
        file.truncate(8 + len(content) + begin + 2**33)
    monkeypatch.setattr("metafun.training.checkpoint.read_arrays", lambda *_: pytest.fail("data are read"))
    with pytest.raises(InvalidCheckpoint, match=r"float32\[2147483648\], expected"):
        open_trained(path)


@pytest.mark.parametrize(("dtype", "per_float"), [("F8_E4M3", 4), ("F8_E5M2", 4), ("BF16", 2), ("F4", 8)])
def test_tensors_of_other_types_are_refused(tmp_path, dtype, per_float):
    path = checkpoint(tmp_path)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    name = next(name for name in header if name != "__metadata__" and header[name]["shape"][1:])
    header[name]["dtype"] = dtype
    header[name]["shape"][-1] *= per_float  # as many bytes as before
    content = json.dumps(header).encode()
    path.write_bytes(len(content).to_bytes(8, "little") + content + raw[8 + length :])
    with pytest.raises(InvalidCheckpoint, match=f"is of type {dtype}, expected one of"):
        open_trained(path)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "fitted.safetensors"
    rng = np.random.default_rng(0)
    MetaFunClassifier().fit(rng.normal(size=(6, 2)), ["a", "b"] * 3).save(path)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, r: a.update({"context.y": a["context.y"] - 1}), "not indices of its 2 labels"),
        (lambda a, r: a.update({"context.y": a["context.y"] + 0.0}), "not indices of its 2 labels"),
        (lambda a, r: a.update({"context.y": a["context.y"][:3]}), "X .* and y"),
        (lambda a, r: a.update({"context.X": a["context.X"][0]}), "X .* and y"),
        (lambda a, r: r.update(names=["x"]), "names of its columns are not 2 texts"),
        (lambda a, r: r.update(names="xy"), "names of its columns are not 2 texts"),
        (lambda a, r: r.update(labels={}), "labels are not texts or numbers"),
        (lambda a, r: r.update(labels=[[1], [2]]), "labels are not texts or numbers"),
        (lambda a, r: r.update(labels=["a", "b" * 2**24]), "its labels are too long for 6 rows"),
    ],
)
def test_a_damaged_context_is_refused(saved, change, message):
    with safetensors.safe_open(saved, framework="numpy") as file:
        header, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    record = json.loads(header["record"])
    change(arrays, record)
    saved.write_bytes(safetensors.numpy.save(arrays, header | {"record": json.dumps(record)}))
    with pytest.raises(InvalidCheckpoint, match=message):
        MetaFunClassifier.load(saved)


def test_many_rows_of_many_classes_are_refused_before_they_are_encoded(tmp_path, monkeypatch):
    """The memory that they take is that of both multiplied; these would need 800 GB."""
    path = tmp_path / "many.csv"
    path.write_text("x,y\n" + "".join(f"1,{i}\n" for i in range(20_000)))
    command = ("predict", path, "--model", "tables-classification", "--context", path, "--target", "y", "--json")
    assert "20,000 rows of 20,000 classes take" in fails(*command)
    model = open_trained("tables-classification").model
    check_context(model, 1000, 1, 100)
    with pytest.raises(NotEnoughMemory, match=r"set the environment variable METAFUN_LIMIT_FACTOR to 2\."):
        check_context(model, 1000, 1, 500)
    monkeypatch.setenv(limits.FACTOR, "2")
    check_context(model, 1000, 1, 500)


def test_a_long_label_does_not_fill_the_memory(tmp_path):
    """An array of text gives each entry the length of the longest: 24 GB here, from 260 kB."""
    path = tmp_path / "long.csv"
    path.write_text("x,y\n" + "1,a\n" * 100_000 + f"1,{'b' * 60_000}\n")
    with pytest.raises(InvalidData, match="'y' has an entry of 60,000 characters; in 100,001 rows, at most 671"):
        read_csv(path).labels("y")


@pytest.mark.parametrize("scale", [1e101, 1e200, 1e300])
@pytest.mark.parametrize("checkpoint", ["gp-rbf", "tables-regression"])
@pytest.mark.filterwarnings("ignore")
def test_numbers_that_overflow_are_refused(scale, checkpoint):
    x, y = np.linspace(0, 1, 8)[:, None], np.linspace(-1, 1, 8)
    with pytest.raises(ValueError, match=r"y has numbers beyond (±1e\+100|the range of float32); scale it"):
        MetaFunRegressor(checkpoint).fit(x, scale * y)
    try:
        fitted = MetaFunRegressor(checkpoint).fit(scale * x, y)
        assert np.isfinite(fitted.predict(scale * x)).all(), "scaled"
    except ValueError as error:
        assert "scale" in str(error)


@pytest.mark.filterwarnings("ignore")
def test_a_prediction_that_is_not_finite_is_an_error():
    x, y = np.linspace(0, 1, 8)[:, None], np.linspace(-1, 1, 8)
    try:
        assert np.isfinite(MetaFunRegressor("gp-rbf").fit(x, y).predict([[1e38], [3e38]])).all()
    except InvalidTask as error:
        assert "scale" in str(error)
    trained = open_trained("gp-rbf")
    huge = jax.tree.map(lambda leaf: 1e30 * leaf if isinstance(leaf, jax.Array) else leaf, trained.model)
    with pytest.raises(InvalidTask, match="the prediction of row 0 is not finite"):
        MetaFunRegressor(Trained(trained.experiment, huge)).fit(x, y).predict(x)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes."),
        jax.errors.JaxRuntimeError("INTERNAL: std::bad_alloc"),
        jax.errors.JaxRuntimeError("Unable to allocate 3 GiB"),
    ],
)
def test_a_lack_of_memory_has_a_remedy(monkeypatch, error):
    def fail(*_):
        raise error

    with pytest.raises(NotEnoughMemory, match=r"not enough memory; use fewer rows\."), enough_memory("use fewer rows"):
        fail()
    fitted = MetaFunRegressor("gp-rbf").fit([[0.0], [0.5]], [0.0, 1.0])
    monkeypatch.setattr(
        fitted, "trained_", type("Full", (), {"predict": fail, "tasks": fitted.trained_.tasks, "model": 0})
    )
    with pytest.raises(NotEnoughMemory, match="fit fewer rows, or predict fewer at a time"):
        fitted.predict([[0.0]])
    monkeypatch.setattr("metafun.cli.experiments.load_config", fail, raising=False)
    monkeypatch.setattr("metafun.cli.options.load_config", fail, raising=False)
    assert "not enough memory; use a smaller model" in fails("train", "sinusoid")
    with pytest.raises(jax.errors.JaxRuntimeError), enough_memory("nothing"):
        raise jax.errors.JaxRuntimeError("INVALID_ARGUMENT: a mistake")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    run = Run.create(tmp_path_factory.mktemp("run") / "run", load_config("sinusoid", [*TINY, "training.steps=40"]))
    list(run.train())
    return run.path


LINES = ['{"step": "a", "seconds": 1, "loss": [1]}', '{"step": 10, "seconds": [], "loss": [1]}', "null", "[" * 100_000]
LINES += ['{"step": 10, "seconds": 1.0, "loss": ["x"]}', '{"step": 10, "seconds": 1.0, "loss": 3}', "9" * 5000]
LINES += [
    '{"step": 20, "seconds": 1.0, "loss": [1.0], "validation": "x"}',
    '{"step": 1e400, "seconds": 1, "loss": [1]}',
]
LINES += ['{"step": 10, "seconds": 1.0, "loss": []}', '{"step": 10, "seconds": 1.0, "loss": [1.0, 2.0]}']
SAME = ["\n".join(f'{{"step": {step}, "seconds": 1.0, "loss": [1.0]}}' for step in (10, 20, 30))]


@pytest.mark.parametrize("text", [*LINES, *SAME, None], ids=lambda text: str(text)[-30:])
def test_metrics_of_other_types_are_skipped(trained, tmp_path, text):
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    if text is not None:
        (run / "metrics.jsonl").write_text(text + "\n")
    for command in (("evaluate", run), ("plot", run), ("train", "sinusoid", "--resume", "--out", run)):
        result = metafun(*command)
        assert result.exit_code == 0, (command, result.exception, result.output)


def test_a_long_entry_of_a_csv_file_is_not_repeated_in_full(tmp_path):
    (path := tmp_path / "a.csv").write_text(f"x,y\n1,2\n3,-4{'e' * 50_000}\n", "utf-8")
    with pytest.raises(InvalidData, match=r"row 2: 'y' is '-4eee.*…e*', not a number; correct it.*\.$") as refused:
        read_csv(path).column("y", "number")
    assert len(str(refused.value)) < 3000


def test_a_csv_file_without_line_breaks_is_not_read_to_its_end(tmp_path):
    """8 GB that take no space on disk."""
    for name, begin in (("one", b""), ("two", b"x,y\n1,2\n")):
        path = tmp_path / f"{name}.csv"
        path.write_bytes(begin)
        os.truncate(path, 2**33)
        command = ("predict", path, "--model", "gp-rbf", "--context", path, "--target", "y", "--json")
        assert "it has a line of more than 16,777,216 characters" in fails(*command)


def test_a_large_table_does_not_hide_the_others(tmp_path, monkeypatch):
    monkeypatch.setenv("METAFUN_DATA", str(tmp_path))
    save_table(clusters(), tmp_path, "a test")
    shutil.copytree(tmp_path / "clusters", tmp_path / "large")
    os.truncate(tmp_path / "large" / "table.json", 2**33)
    result = metafun("data", "list")
    assert result.exit_code == 0 and "clusters" in result.stdout and "8,589,934,592 bytes" in result.output, (
        result.output
    )


def test_what_is_printed_is_one_short_line_without_escapes(tmp_path):
    (tmp_path / "escape.toml").write_text('"\\u001b[2J" = 3\n', "utf-8")
    assert "\x1b" not in fails("train", tmp_path / "escape.toml")
    (tmp_path / "long.toml").write_text(f'model.activation = "{"x" * 3_000_000}"\n')
    assert len(fails("train", tmp_path / "long.toml")) < 3000


def test_a_failed_prediction_leaves_no_file(tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("x,y\n0.1,1\n0.2,2\n")
    command = ["predict", tmp_path / "rows.csv", "--model", "gp-rbf", "--context", tmp_path / "rows.csv"]
    command += ["--out", tmp_path / "out.csv"]

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert "out.csv" in fails(*command)
    assert not (tmp_path / "out.csv").exists()
    assert metafun(*command).exit_code == 0


def test_arrays_of_different_lengths_are_refused(tmp_path):
    x = np.zeros((8, 2))
    for name, arrays in {
        "y": {"X": x, "y": np.zeros(7)},
        "task": {"X": x, "y": x[:, 0], "task": np.zeros(9, int)},
    }.items():
        np.savez(tmp_path / f"{name}.npz", **arrays)
        task = ["--task", "task"] if name == "task" else []
        command = ("fit", tmp_path / f"{name}.npz", "--target", "y", *task, "--out", tmp_path / "model.safetensors")
        assert "must have the same number of rows" in fails(*command)
    assert issubclass(NotEnoughMemory, MetaFunError)


def test_the_page_on_files_from_strangers_has_the_limits_of_the_code():
    page = " ".join((Path(__file__).parent.parent / "docs" / "threat-model.md").read_text("utf-8").split())
    width = get_args(Width)[1].most
    sizes = (limits.MOST_PARAMETERS, limits.MOST_PARAMETERS_TOGETHER, limits.MOST_LAYERS, limits.MOST_ACTIVATIONS)
    for bound in (
        *sizes,
        MAX_CONTEXT_FLOATS,
        limits.MOST_VARIANTS,
        limits.MOST_KINDS,
        width,
        console.MOST_SHOWN,
        MAX_LINE_CHARACTERS,
        inspect.signature(read_text).parameters["most"].default,
    ):
        assert f" {bound:,} " in page
    assert (
        f"{MAX_PIXELS:,}, at most {MAX_FILE_SIDE:,} along a side" in page
        and f"beyond {LARGEST:g}".replace("+", "") in page
    )
    levels, keys = pickle_bounds.MOST_LEVELS, pickle_bounds.MOST_NUMBER_KEYS
    containers = (
        f"a container for every {pickle_bounds.BYTES_PER_CONTAINER} bytes beside {pickle_bounds.FREE_CONTAINERS:,}"
    )
    operations = f"an operation for every {pickle_bounds.BYTES_PER_OPERATION} bytes"
    operations += f" beside {pickle_bounds.FREE_OPERATIONS:,}"
    assert f"{levels} levels, {keys:,} keys that are not text, {containers}, {operations} |" in page
    assert f"{MOST_DEPTH} levels, {MOST_BASES} bases" in page and limits.FACTOR in page
