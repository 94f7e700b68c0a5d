"""Tasks are spread over the local devices; everything else is the same on each of them."""

import os
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

AXIS = "tasks"


# A step is too short to be worth more than a few rendezvous partners.
MOST_CPU_DEVICES = 4


def use_all_cores() -> None:
    """One CPU device per core, as XLA's own threads leave the second core mostly idle in small products.

    Must come before the first computation; the command line calls it.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    jax.config.update("jax_num_cpu_devices", min(cores, MOST_CPU_DEVICES))


def jit(function: Callable) -> Any:
    """`eqx.filter_jit`, compiled sooner.

    On a GPU, XLA would try many Triton kernels for each matrix product, for longer than most of our runs take; for
    products as small as ours none of them is faster than the one it then takes from cuBLAS.
    """
    options = {"compiler_options": {"xla_gpu_enable_triton_gemm": False}}
    return eqx.filter_jit(function, **options)  # type: ignore[call-overload]


def forget_programs() -> None:
    """Lets go of what was compiled: a process can map only so many pieces of memory, and each program is some."""
    jax.clear_caches()


def task_mesh(tasks: int) -> Mesh:
    """As many local devices as divide the tasks evenly."""
    devices = jax.local_devices()
    count = max(d for d in range(1, len(devices) + 1) if tasks % d == 0)
    return Mesh(devices[:count], (AXIS,))


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """The same arrays on every device of the mesh."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, PartitionSpec())), rest)


def my_share(keys: Array, mesh: Mesh) -> Array:
    """Inside `spread`: the part of the keys, one for each task, that falls to this device."""
    share = len(keys) // mesh.size
    return jax.lax.dynamic_slice_in_dim(keys, jax.lax.axis_index(AXIS) * share, share)


def spread(function: Callable, mesh: Mesh, out_specs: PartitionSpec) -> Callable:
    """`function` run on every device of the mesh with the same arguments."""

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
