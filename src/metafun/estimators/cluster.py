"""Files predicted by the workers of a Dask cluster, to each of which the model is sent once."""

import contextlib
import os
import pickle
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import dask
import jax
from distributed import Client, KilledWorker, LocalCluster, WorkerPlugin, as_completed, get_worker

from ..config.plugins import load_plugin, loaded_plugins
from ..errors import InvalidConfig
from .predict_files import FilePredictor, FileResult
from .predict_folder import Engine

SECONDS_TO_CONNECT = 20
LOCAL = {
    # One file at a time: a file whose prediction kills its worker must not count against others that wait there.
    "distributed.scheduler.worker-saturation": 1.0,
    # Otherwise workers would import modules from the current folder, which may hold a stranger's files.
    "distributed.nanny.pre-spawn-environ.PYTHONSAFEPATH": "1",
}


class _Model(WorkerPlugin):
    """The predictor in the memory of a worker; those that join later or start again get it too.

    Args:
        predictor: what predicts the files.
    """

    def __init__(self, predictor: FilePredictor):
        self.name = f"metafun-{uuid.uuid4().hex}"
        # Parts of one's own are registered before a model with them is opened.
        self._plugins, self._pickled = loaded_plugins(), pickle.dumps(predictor)

    def setup(self, worker: Any) -> None:
        for path in self._plugins:
            load_plugin(path)
        predictor = pickle.loads(self._pickled)
        predictor.prepare()
        self._predictor, self._lock = predictor, Lock()

    def predict(self, source: Path, destination: Path) -> FileResult:
        with self._lock:  # a prediction takes all cores, and warnings are caught for a whole process
            return self._predictor(source, destination)


def _predict(name: str, source: Path, destination: Path) -> FileResult:
    model: Any = get_worker().plugins[name]
    return model.predict(source, destination)


@contextlib.contextmanager
def dask_engine(workers: int | None, scheduler: str | None) -> Iterator[Engine]:
    """An engine on a cluster.

    Args:
        workers: number of processes to start on this machine.
        scheduler: address of a cluster that runs already.
    """
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            address: Any = stack.enter_context(_local_cluster(workers or 1))
        else:
            address = scheduler
        client = stack.enter_context(Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False))
        try:
            client.wait_for_workers(1, timeout=SECONDS_TO_CONNECT)
        except TimeoutError:
            raise InvalidConfig(f"the cluster at {scheduler} has no workers; start some.") from None

        def engine(predictor: FilePredictor, files: Sequence[tuple[Path, Path]]) -> Iterator[FileResult]:
            return _on_workers(client, _Model(predictor), files)

        yield engine


def _local_cluster(workers: int) -> LocalCluster:
    # Workers share a GPU, and the compiled programs of the user.
    environment = {"XLA_PYTHON_CLIENT_PREALLOCATE": os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE", "false")}
    if cache := jax.config.values["jax_compilation_cache_dir"]:
        environment["JAX_COMPILATION_CACHE_DIR"] = cache
    with dask.config.set(LOCAL):
        return LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            env=environment,
            security=True,  # TLS: other users of this machine cannot send it programs
            dashboard_address=None,
            silence_logs="CRITICAL",
        )


def _on_workers(client: Client, model: _Model, files: Sequence[tuple[Path, Path]]) -> Iterator[FileResult]:
    client.register_plugin(model)
    try:
        sources = {
            client.submit(_predict, model.name, source, destination, key=f"{model.name}-{i}", pure=False): source
            for i, (source, destination) in enumerate(files)
        }
        for future in as_completed(list(sources), loop=client.loop):
            yield _result(future, sources.pop(future))
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            client.unregister_worker_plugin(model.name)


def _result(future: Any, source: Path) -> FileResult:
    try:
        return future.result()
    except KilledWorker:
        problem = "every worker that predicted it died, perhaps for lack of memory"
        return FileResult(source, 0, f"{source}: {problem}")
