"""Meshes: the processes of a program in a grid, whose axes have names."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from tape_core.meshes import AxesAsked, NamedMesh, asked
from tape_core.support import first_process_only, map_large_blocks, real, warn_user
from torch._C._distributed_c10d import HashStore, PrefixStore, TCPStore
from torch._C._distributed_c10d import _get_work_registry_size as get_work_registry_size
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import _get_default_store

from tape_torch import mismatches
from tape_torch.distributed import checkpoints
from tape_torch.distributed.failures import waits_of
from tape_torch.divided import wait_for_dropped
from tape_torch.gloo import mend_gloo
from tape_torch.meetings import MismatchError, ends
from tape_torch.notes import board
from tape_torch.peers import name_peers_in_waits

if TYPE_CHECKING:
    from tape_core.typing import ArrayLike

    from tape_torch.distributed.checkpoints import Like, Loaded, Path, Saving

first_process_only(lambda: dist.get_rank() if dist.is_available() and dist.is_initialized() else 0)

_ENDING_SECONDS = 1.0

_TORCHRUN = "start the program in each process by `torchrun --nproc-per-node N program.py`"


class Mesh(NamedMesh[DeviceMesh]):
    """The processes of a program in a grid, whose axes have names: a view of a `torch.distributed.DeviceMesh`.

    >>> from tape_torch.distributed import mesh
    >>> mesh({"data": 1})  # in one process
    Mesh({'data': 1}, rank 0, on cpu)

    Attributes:
        device_mesh: PyTorch's own mesh, for functions of PyTorch.
    """

    engine_name = "tape_torch.distributed"

    def __init__(self, device_mesh: DeviceMesh) -> None:
        names = device_mesh.mesh_dim_names
        if not names:
            raise ValueError(
                "Mesh: the axes of the DeviceMesh have no names, by which layouts name them; "
                "give init_device_mesh(..., mesh_dim_names=)"
            )
        root = device_mesh._get_root_mesh()  # a mesh that was cut from one along an axis has part of its processes
        if root.size() != dist.get_world_size():
            raise ValueError(
                f"Mesh: the DeviceMesh has {root.size()} of {dist.get_world_size()} processes, and all take part in "
                f"what is done with a mesh: make one of all, of which an axis may be used alone"
            )
        super().__init__(device_mesh, dict(zip(names, device_mesh.shape, strict=True)), device_mesh.device_type)

    @property
    def rank(self) -> int:
        """The number of this process among all, from 0."""
        return dist.get_rank()

    @property
    def coordinates(self) -> dict[str, int]:
        """The place of this process along each axis."""
        found = self.device_mesh.get_coordinate()
        assert found is not None  # a mesh has all processes
        return dict(zip(self._axes, found, strict=True))

    def group(self, axis: str | None = None) -> dist.ProcessGroup:
        """Return PyTorch's group of the processes that differ from this one along an axis; None: of all.

        Raises:
            ValueError: the mesh has no such axis.
            RuntimeError: the process group was destroyed.
        """
        if axis is None:
            group = dist.group.WORLD
            if group is None:
                raise RuntimeError(
                    "the process group of this mesh is no more: torch.distributed.destroy_process_group has ended it. "
                    "Call that when nothing is left to compute"
                )
            return group
        return self.device_mesh.get_group(self.check_axis(axis))

    def save(
        self,
        folder: Path,
        tensors: Mapping[str, ArrayLike],
        metadata: Mapping[str, str] | None = None,
        *,
        step: int = 0,
        keep: int = 1,
        asynchronous: bool = False,
    ) -> Saving:
        """Write named tensors to a checkpoint, from all processes: see :func:`tape_torch.distributed.save`."""
        return checkpoints.save(folder, tensors, metadata, step=step, keep=keep, asynchronous=asynchronous)

    def load(self, folder: Path, like: Like | None = None) -> Loaded:
        """Read the newest checkpoint in a folder, on all processes: see :func:`tape_torch.distributed.load`."""
        return checkpoints.load(folder, like)

    def latest(self, folder: Path) -> str | None:
        """Return the path of the newest complete checkpoint in a folder, or None if there is none."""
        return checkpoints.latest(folder)


def mesh(
    axes: Mapping[str, int] | None = None,
    *,
    device: str | None = None,
    timeout: float | None = None,
    checked: bool | None = None,
) -> Mesh:
    """Return the mesh of all processes of the program; each of them calls this with the same arguments.

    Where PyTorch has no process group yet, one is made: from what `torchrun` has set, or of this process alone, in
    which the same program then runs undivided.

    On Linux with glibc, several processes on CPUs give memory of arrays of 8 MB and more back to the system when it is
    freed, for the whole process, unless the environment sets glibc's own threshold, `MALLOC_MMAP_THRESHOLD_`.

    >>> from tape_torch.distributed import mesh
    >>> mesh({"data": -1}).axes  # as many as there are
    {'data': 1}

    Args:
        axes: the number of processes along each axis, by name; one may be -1, for what remains. By default all
            processes are along one axis, `"data"`.
        device: `"cpu"` or `"cuda"`; by default CUDA where there is a GPU. On CUDA each process has the GPU of its
            number on the machine (`LOCAL_RANK`).
        timeout: the seconds that a process waits for another one in a collective, before it is an error; by
            default PyTorch's, minutes. It counts where this call makes the process group.
        checked: whether the processes compare, before each collective, what they are about to do. Where they differ,
            in the op, in shapes or dtypes, or one has ended, all raise a :class:`MismatchError` that says what each of
            them does; otherwise they may wait for each other, or compute with each other's bytes. It is for all
            collectives of this thread from then on, also those of PyTorch, and for finding mistakes: each takes some
            tenths of a millisecond more. By default as the environment variable `TAPE_CHECK_RANKS` says, `1` or `0`.

    Raises:
        TypeError: the axes are no numbers by name.
        ValueError: the axes are not what the processes can be divided into, or a number is no positive one or -1; or
            there are no such devices, or fewer GPUs than processes of a machine.
        RuntimeError: there are no processes: the program was not started by `torchrun`.
    """
    wanted = asked("tape_torch.distributed.mesh", "processes", axes)
    is_checked = mismatches.is_wanted(checked)
    device_type = _kind_of_device(device)
    if timeout is not None and real("tape_torch.distributed.mesh", "timeout", timeout) <= 0:
        raise ValueError(f"tape_torch.distributed.mesh: timeout must be more than 0 seconds; got {timeout}")
    _ensure_group(wanted, device_type, timeout)
    mend_gloo()
    name_peers_in_waits()
    if device_type == "cpu" and dist.get_world_size() > 1:  # whole weights and gradients come and go in each step
        map_large_blocks()
    board()
    shape = wanted.shape(dist.get_world_size(), f" (this is rank {dist.get_rank()})")
    if is_checked:
        mismatches.compare(timeout)
    if device_type == "cuda":
        torch.cuda.set_device(_own_gpu())
    made = init_device_mesh(device_type, shape, mesh_dim_names=tuple(wanted.axes))
    if (limit := waits_of(dist.group.WORLD)) is not None:
        for group in made.get_all_groups():  # those of the axes are made with PyTorch's own limit, half an hour
            group.set_timeout(limit)
    return Mesh(made)


def _kind_of_device(device: str | None) -> str:
    """Return the kind of the devices of a mesh.

    Raises:
        ValueError: PyTorch has none of this kind, or a single one is named.
    """
    has_gpu = torch.cuda.is_available()
    if device is None:
        return "cuda" if has_gpu else "cpu"
    known = ", ".join(map(repr, ["cpu", *["cuda"] * has_gpu]))
    what = f"tape_torch.distributed.mesh: device={device!r}"
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{what} is none of PyTorch's; here it may be {known}") from error
    if ":" in str(device):
        raise ValueError(f"{what} is one device, and each process has its own: name the kind, {found.type!r}")
    if found.type == "cuda" and not has_gpu:
        raise ValueError(f"{what}, and PyTorch finds no GPU here; it may be {known}")
    return found.type


def _own_gpu() -> int:
    number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if number >= count:
        raise ValueError(
            f"tape_torch.distributed.mesh: this process is number {number} of its machine, counted from 0, where "
            f"PyTorch finds {count} GPUs, one for each process: start no more processes than that, or pass device='cpu'"
        )
    return number


def _ensure_group(wanted: AxesAsked, device_type: str, timeout: float | None) -> None:
    if dist.is_initialized():
        return
    backend = "nccl" if device_type == "cuda" else "gloo"
    patience = None if timeout is None else timedelta(seconds=timeout)
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        atexit.register(_end)
        dist.init_process_group(backend, timeout=patience, **_meeting())
        return
    if any(n > 1 for n in wanted.axes.values()):
        raise RuntimeError(
            f"{wanted}, and this is one: {_TORCHRUN}, or call torch.distributed.init_process_group first"
        )
    atexit.register(_end)
    dist.init_process_group(backend, store=HashStore(), rank=0, world_size=1, timeout=patience)


def _meeting() -> dict[str, Any]:
    """Return where processes meet that torchrun has restarted on one machine; elsewhere PyTorch knows.

    torchrun keeps one store for all attempts, in which a new process would find the addresses of dead ones
    (https://github.com/pytorch/pytorch/issues/135712). The count of attempts is the same on one machine only.
    """
    given = os.environ.get
    attempt = given("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or given("TORCHELASTIC_USE_AGENT_STORE") != "True" or given("GROUP_WORLD_SIZE") != "1":
        return {}
    store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    return {"store": PrefixStore(f"tape/attempt/{attempt}", store), "rank": rank, "world_size": size}


def _all_have_ended() -> bool:
    """Return whether all processes come to their end within a second, and wait for nothing that nobody sends."""
    if not get_work_registry_size():
        return False
    store, until = _get_default_store(), time.monotonic() + _ENDING_SECONDS
    ended = store.add("tape/ended", 1)
    while ended < dist.get_world_size() and time.monotonic() < until:
        time.sleep(0.01)
        ended = store.add("tape/ended", 0)
    return bool(ended >= dist.get_world_size())


def _end() -> None:
    """End the process group before the interpreter ends, or its threads may abort the process."""
    if dist.is_initialized():
        if not hasattr(sys, "last_type"):
            try:
                for compare in ends:
                    compare(PrefixStore("tape/end", _get_default_store()))
            except MismatchError as error:  # an exception here would be one that nobody can catch
                warn_user(str(error))
            except RuntimeError:
                pass  # another process has ended otherwise
        with suppress(RuntimeError):
            if not hasattr(sys, "last_type") and _all_have_ended():
                wait_for_dropped(ending=True)
        dist.destroy_process_group()
        # PyTorch 2.13 keeps gloo's threads all the same. One that is still to free the tensors of the last collective
        # needs the interpreter for it, and without one aborts the process: it can have it meanwhile.
        time.sleep(0.1)
