"""Tasks are divided among the devices of one or several processes; everything else is replicated."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ..errors import InvalidConfig

AXIS = "tasks"
# Long, because a scheduler may start the other processes later.
SECONDS_TO_MEET = 300


# Steps are short: with more devices, waiting for each other costs more than it saves.
MOST_CPU_DEVICES = 4


def use_all_cores() -> None:
    """One CPU device per core, at most `MOST_CPU_DEVICES`: XLA's threads hardly help in small matrix products.

    Call it before the first computation, as the command line does.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", min(cores, MOST_CPU_DEVICES))


def jit(function: Callable) -> Any:
    """`eqx.filter_jit` without Triton matrix products.

    On a GPU, XLA tunes many Triton kernels for each product, which takes longer than most of our runs; for products as
    small as ours, cuBLAS is as fast.
    """
    options = {"compiler_options": {"xla_gpu_enable_triton_gemm": False}}
    return eqx.filter_jit(function, **options)  # type: ignore[call-overload]


# Linux allows a process 65,530 by default; a program of a training takes about 100.
MOST_MEMORY_MAPS = 10_000


def forget_programs() -> None:
    """Frees compiled programs when there are many: each takes some of the limited number of memory maps of a process.

    Not sooner, since the next training needs many of the small ones again.
    """
    maps = Path("/proc/self/maps")  # other systems do not count them
    if not maps.exists() or maps.read_bytes().count(b"\n") > MOST_MEMORY_MAPS:
        jax.clear_caches()


def join_processes(coordinator: str, processes: int, process: int) -> None:
    """Joins several processes into one training. Call it before the first computation.

    Args:
        coordinator: HOST:PORT of the first process.
        processes: how many there are.
        process: the index of this one, from 0.
    """
    if process >= processes:
        raise InvalidConfig(f"process {process} is not one of {processes}; they are counted from 0.")
    try:
        jax.distributed.initialize(coordinator, processes, process, initialization_timeout=SECONDS_TO_MEET)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidConfig(f"{processes} processes did not meet at {coordinator}: {reason}") from None


def task_mesh(tasks: int) -> Mesh:
    """The largest mesh whose size divides the number of `tasks`, with equally many devices of each process."""
    processes = range(jax.process_count())
    devices = [[d for d in jax.devices() if d.process_index == process] for process in processes]
    fit = [n for n in range(1, min(map(len, devices)) + 1) if tasks % (n * len(devices)) == 0]
    if not fit:
        raise InvalidConfig(
            f"{tasks} tasks cannot be shared by {len(devices)} processes; make training.batch, "
            "training.validation_tasks and evaluation.tasks multiples of their number."
        )
    return Mesh([d for local in devices for d in local[: max(fit)]], (AXIS,))


def same_everywhere(number: int) -> bool:
    """Whether all processes have the same number."""
    return jax.process_count() == 1 or len(set(multihost_utils.process_allgather(np.int32(number)).tolist())) == 1


def gathered(tree: PyTree) -> PyTree:
    """The arrays on the devices of all processes, as NumPy arrays."""
    if jax.process_count() == 1:
        return jax.tree.map(np.asarray, tree)
    return multihost_utils.process_allgather(tree, tiled=True)


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """The same arrays on every device of the mesh."""
    everywhere = NamedSharding(mesh, PartitionSpec())

    def put(leaf: Any) -> Any:
        if not isinstance(leaf, (jax.Array, np.ndarray)):
            return leaf
        if jax.process_count() == 1:
            return jax.device_put(leaf, everywhere)
        # `device_put` would synchronise the processes, out of step with their other computations.
        values = np.asarray(leaf)
        return jax.make_array_from_callback(values.shape, everywhere, lambda index: values[index])

    return jax.tree.map(put, tree)


def local_keys(keys: Array, mesh: Mesh) -> Array:
    """Inside `run_on_mesh`: the keys of the tasks of this device."""
    share = len(keys) // mesh.size
    return jax.lax.dynamic_slice_in_dim(keys, jax.lax.axis_index(AXIS) * share, share)


def run_on_mesh(function: Callable, mesh: Mesh, out_specs: PartitionSpec) -> Callable:
    """`function` on every device of the mesh, with the same arguments."""

    def call(*arguments: PyTree) -> PyTree:
        arrays, rest = eqx.partition(arguments, eqx.is_array)
        mapped = jax.shard_map(
            lambda arrays: function(*eqx.combine(arrays, rest)),
            mesh=mesh,
            in_specs=PartitionSpec(),
            out_specs=out_specs,
            check_vma=False,
        )
        return mapped(arrays)

    return call
