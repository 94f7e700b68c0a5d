"""For each format: a good file, how it is read, and hostile ones."""

import io
import json
import pickle
import random
import socket
import tempfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import numpy as np
import safetensors.numpy
from PIL import Image

from metafun.bench.results import Cell, mean_metrics, read_cells
from metafun.config import Experiment, load_config, load_space
from metafun.data import Table
from metafun.data.csv_columns import read_csv
from metafun.data.download import download
from metafun.data.fetch import fetch
from metafun.data.frames import Column
from metafun.data.images import read_images
from metafun.data.readers import read_features
from metafun.data.table_folder import open_table_folder, save_table
from metafun.errors import InvalidCheckpoint
from metafun.estimators.saving import load_context
from metafun.estimators.trained import locate, open_trained
from metafun.training import search
from metafun.training.checkpoint import Checkpoint
from metafun.training.run_folder import RunFolder

from .harm import prepare
from .mutations import mutate
from .pickle_programs import random_pickle

# Few settings, so that studies of the same space are found.
SPACE = '["training.learning_rate"]\nlog_uniform = [1e-4, 1e-1]\n'


class Format(NamedTuple):
    """A format of files that users receive.

    Args:
        good: a valid file.
        name: where it goes in its folder.
        read: reads it in its folder, as a command would.
        hostile: further hostile files, beside mutations of the good one.
    """

    good: Callable[[], bytes]
    name: str
    read: Callable[[Path], object]
    hostile: Callable[[random.Random], bytes] | None = None


def _arrays(prefix: str = "") -> dict[str, np.ndarray]:
    rng, labels = np.random.default_rng(0), np.repeat([prefix + letter for letter in "abcd"], 3)
    return {"embeddings": rng.normal(size=(12, 3)).astype(np.float32), "labels": labels}


def _saved(write: Callable[[io.BytesIO], object]) -> bytes:
    file = io.BytesIO()
    write(file)
    return file.getvalue()


def _pickle(prefix: str = "") -> bytes:
    return pickle.dumps(_arrays(prefix), 2)


def _zip() -> bytes:
    def write(file: io.BytesIO) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for split in ("train", "val", "test"):
                archive.writestr(f"embeddings/miniImageNet/center/{split}_embeddings.pkl", _pickle(split))

    return _saved(write)


def _image() -> bytes:
    return _saved(lambda file: Image.effect_noise((9, 7), 50).save(file, format="PNG"))


def _read_image(path: Path) -> None:
    for name in "abc":
        (path.parent.parent / name).mkdir(exist_ok=True)
        (path.parent.parent / name / "good.png").write_bytes(_image())
    read_images(path.parent.parent, "images")


def _journal() -> bytes:
    """A study of one trial that has ended."""
    event = {"worker_id": "w"}
    distribution = (
        '{"name": "FloatDistribution", "attributes": {"step": null, "low": 0.0001, "high": 0.1, "log": true}}'
    )
    events = [
        {"op_code": 0, "study_name": "s", "directions": [1]},
        {"op_code": 4, "study_id": 0, "datetime_start": "2026-01-01T00:00:00.000000+00:00"},
        {"op_code": 8, "trial_id": 0, "user_attr": {"worker": "w"}},
        {
            "op_code": 5,
            "trial_id": 0,
            "param_name": "training.learning_rate",
            "param_value_internal": 0.001,
            "distribution": distribution,
        },
        {"op_code": 8, "trial_id": 0, "user_attr": {"run": "trials-00000"}},
        {"op_code": 6, "trial_id": 0, "state": 1, "values": [0.5], "datetime_complete": "2026-01-01T00:00:01.000000"},
    ]
    return "".join(json.dumps({**each, **event}) + "\n" for each in events).encode()


def _read_journal(path: Path) -> None:
    (path.parent / "space.toml").write_text(SPACE, "utf-8")
    space = load_space(str(path.parent / "space.toml"), load_config("sinusoid"))
    search.summary(search.open_study("s", str(path), space, pruner="none"))


def _http() -> bytes:
    body = _zip()
    head = f'HTTP/1.1 200 OK\r\nContent-Type: application/zip\r\nETag: "a"\r\nContent-Length: {len(body)}\r\n\r\n'
    return head.encode() + body


def _read_http(path: Path) -> None:
    """Downloads from a server whose answer is the file."""
    answer, server = path.read_bytes(), socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection = server.accept()[0]
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    address = f"http://127.0.0.1:{server.getsockname()[1]}/a.zip"
    for _ in download(address, path.parent / "download" / "a.zip", max_bytes=2**20, timeout=0.5):
        pass


def _preset() -> bytes:
    return (resources.files("metafun") / "presets" / "sinusoid.toml").read_bytes()


def _settings(rng: random.Random) -> bytes:
    """A preset with a few settings of any size."""
    base = rng.choice(
        ("sinusoid", "maml", "prototypes", "features", "gp-bnp-np", "images", "tables-regression", "logistic")
    )
    keys = (
        "layers",
        "width",
        "iterations",
        "representation",
        "pooling.heads",
        "pooling.width",
        "update.layers",
        "steps",
    )
    settings = {f"model.{key}" for key in rng.sample(keys, 3)} | {"tasks.targets", "training.batch", "tasks.columns"}
    chosen = rng.sample(sorted(settings), rng.randrange(1, 4))
    value = lambda: rng.choice((0, 1, 2, 7, 64, 100, 1000, 65536, 10**6, 2**31 - 1, 2**63, 10**30))  # noqa: E731
    return "\n".join([f'base = "{base}"', *(f"{key} = {value()}" for key in chosen), ""]).encode()


@cache
def _described() -> bytes:
    """The description of a table."""
    table = Table.of("t", _arrays()["embeddings"], _arrays()["labels"].tolist(), ["train"] * 12)
    with tempfile.TemporaryDirectory() as folder:
        save_table(table, Path(folder), "a test")
        return (Path(folder) / "t" / "table.json").read_bytes()


def _read_table(path: Path) -> None:
    np.save(path.parent / "features.npy", _arrays()["embeddings"])
    open_table_folder(path.parent)


ENCODING = {
    "columns": [
        {"name": "x", "kind": "number", "fill": 0.5, "marks_missing": True},
        {"name": "t", "kind": "time", "origin": 1.7e9},
        {"name": "c", "kind": "category", "categories": ["a", "b", "c"], "one_hot": True},
    ],
    "keeps_missing": False,
}


def _estimator(change: Callable[[bytes], bytes] = lambda record: record) -> bytes:
    """A saved estimator with a context and an encoding.

    Args:
        change: changes its record.
    """
    with safetensors.safe_open(locate("sinusoid"), framework="numpy") as file:
        header, arrays = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    record = {"labels": [], "names": ["x", "t", "c"], "context_encoding": ENCODING}
    text = change(json.dumps(record).encode()).decode("utf-8", "replace")
    rows = {"context.X": np.zeros((4, 6)), "context.y": np.arange(4.0)}
    return safetensors.numpy.save(arrays | rows, header | {"record": text})


def _read_estimator(path: Path) -> None:
    """What `load` does before it computes, and the encoding of a row."""
    context = None
    try:
        context = load_context(path, open_trained(path))
    except (KeyError, TypeError, ValueError) as error:  # as documented
        raise InvalidCheckpoint(str(error)) from None
    values = {"number": np.array([np.nan]), "time": np.zeros(1), "category": np.array([None], object)}
    if context is not None and context.encoding is not None:
        codes = context.encoding.columns
        context.encoding([Column(code.name, code.kind, values[code.kind]) for code in codes])


def _results() -> bytes:
    line = Cell("iris", 2, "MetaFun", {"accuracy": (0.5,), "log_likelihood": (-1.0,)}, ((0.5, 0.5, 0.5),), 1.0)
    return (json.dumps(asdict(line)) + "\n").encode() * 2


def _metrics() -> bytes:
    lines = [{"step": step, "seconds": step / 10, "loss": [1.0 / step], "validation": [2.0]} for step in range(1, 9)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _read_metrics(path: Path) -> None:
    run = RunFolder(path.parent, Experiment(load_config("sinusoid")))
    run.stability()
    run.steps_per_second()


FORMATS: dict[str, Format] = {
    "pickle": Format(_pickle, "train_embeddings.pkl", lambda path: read_features(path.parent, "t"), random_pickle),
    "npz": Format(
        lambda: _saved(lambda f: np.savez(f, allow_pickle=False, **_arrays())),
        "t.npz",
        lambda path: read_features(path, "t"),
    ),
    "npy": Format(
        lambda: _saved(lambda f: np.save(f, _arrays()["embeddings"])),
        "train/a.npy",
        lambda path: read_features(path.parent.parent, "t"),
    ),
    "safetensors": Format(
        lambda: (resources.files("metafun") / "checkpoints" / "sinusoid.safetensors").read_bytes(),
        "model.safetensors",
        lambda path: open_trained(path),
    ),
    "toml": Format(_preset, "x.toml", lambda path: load_config(str(path)), _settings),
    "estimator": Format(
        _estimator, "model.safetensors", _read_estimator, lambda rng: _estimator(lambda record: mutate(record, rng))
    ),
    "table": Format(_described, "t/table.json", _read_table),
    "results": Format(_results, "r.jsonl", lambda path: [mean_metrics(cell) for cell in read_cells(path)]),
    "metrics": Format(_metrics, "run/metrics.jsonl", _read_metrics),
    "csv": Format(
        lambda: b"x,y,z,t\n1,2,a,2024-05-31\n3.5,-4e3,b,NA\n",
        "x.csv",
        lambda path: [(t := read_csv(path)).numbers(t.names[:2]), *map(t.column, t.names)],
    ),
    "image": Format(_image, "a/x.png", _read_image),
    "zip": Format(_zip, "x.zip", lambda path: list(fetch(source=path))),
    "journal": Format(_journal, "study.journal", _read_journal),
    "http": Format(_http, "answer", _read_http),
}


def warm_up(folder: Path) -> None:
    """Imports and traces what the readers need, so that this process does it once and not each of its forks.

    Nothing is computed and no thread is left: a process with threads must not be forked.

    Args:
        folder: an empty one, for good files and for the data of this process from now on.
    """
    prepare(folder)  # what is read must not go into the user's data
    "localhost".encode("idna")
    for name, form in FORMATS.items():
        path = folder / name / form.name
        path.parent.mkdir(parents=True)
        path.write_bytes(form.good())
        if path.suffix == ".safetensors":
            Checkpoint(path)  # its arrays would be placed on the device
        elif name != "http":
            form.read(path)
