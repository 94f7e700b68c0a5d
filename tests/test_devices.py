"""More than one device, and more than one process: the same losses."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from examples import TINY
from metafun.errors import InvalidConfig
from metafun.training import devices
from metafun.training.devices import join_processes, task_mesh

SETTINGS = [*TINY, "training.batch=16", "training.steps=20", "training.validation_tasks=16", "training.seeds=[0,1]"]

TRAIN = """
import sys
from pathlib import Path
import jax
from metafun.cli import app
jax.config.update("jax_num_cpu_devices", int(sys.argv[1]))
app(sys.argv[2:])
"""


def command(devices, path, *options):
    settings = [part for setting in SETTINGS for part in ("--set", setting)]
    return [sys.executable, "-c", TRAIN, str(devices), "train", "sinusoid", *settings, "--out", str(path), *options]


def losses(path):
    entries = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [entry["loss"] for entry in entries], [entry["validation"] for entry in entries if "validation" in entry]


def assert_same(a, b):
    for found, expected in zip(losses(a), losses(b), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.fixture
def alone(tmp_path):
    subprocess.run(command(1, tmp_path / "alone"), check=True, capture_output=True, timeout=300)
    return tmp_path / "alone"


@pytest.mark.slow
def test_eight_devices_and_two_processes_train_as_one_device(alone, tmp_path):
    subprocess.run(command(8, tmp_path / "eight"), check=True, capture_output=True, timeout=300)
    assert_same(tmp_path / "eight", alone)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    together = ("--coordinator", address, "--processes", "2", "--process")
    processes = [
        subprocess.Popen(command(2, tmp_path / "two", *together, str(i)), stderr=subprocess.PIPE, text=True)
        for i in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-2000:]
    assert_same(tmp_path / "two", alone)
    assert_same(tmp_path / "two.process-1", alone)


def test_a_batch_that_processes_cannot_share(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    first, second = (type("Device", (), {"process_index": i})() for i in range(2))
    monkeypatch.setattr(jax, "devices", lambda: [first, second])
    with pytest.raises(InvalidConfig, match="25 tasks cannot be shared by 2 processes"):
        task_mesh(25)


def test_a_process_has_to_be_one_of_them():
    with pytest.raises(InvalidConfig, match="process 2 is not one of 2; they are counted from 0"):
        join_processes("127.0.0.1:1", 2, 2)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="memory maps are counted on Linux only")
def test_programs_are_forgotten_when_there_are_many(monkeypatch):
    traced = []
    double = jax.jit(lambda x: traced.append(0) or 2 * x)
    for most, traces in ((10**9, 1), (10**9, 1), (0, 2)):
        monkeypatch.setattr(devices, "MOST_MEMORY_MAPS", most)
        devices.forget_programs()
        double(np.ones(3))
        assert len(traced) == traces
