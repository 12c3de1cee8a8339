"""What the conformance suite needs to run on DTensors: `pytest --pyargs tape_conformance --tape-backend=torch:dtensor`.

The suite starts the processes; here is how they find each other, and how an array of one process becomes a distributed
one and comes back (the protocol `tape_conformance.processes.Arrays`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist
from tape_core.backends.discovery import load
from torch._C._distributed_c10d import FileStore
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from tape_torch.backend import TorchBackend

LAYOUTS: Final = ("divided", "last", "whole", "partial", "mixed")
"""How each sample is laid out: along its first axis, along its last one, a copy everywhere, as terms of a sum that is
still to be taken, and each input in another way. Axes that the processes do not divide evenly are among the samples."""

_TURNS: Final = ("divided", "whole", "last", "partial")  # of `mixed`, by the number of the input


class DTensors:
    """DTensors on a mesh of gloo processes; from four on, which are even in number, of two axes.

    Args:
        rank, size: this process, and how many there are.
        store: a file by which they find each other.
        timeout: seconds after which a collective that a process does not join is an error.
    """

    def __init__(self, rank: int, size: int, store: str, timeout: float) -> None:
        dist.init_process_group(
            "gloo",
            store=FileStore(store, size),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout),
        )
        backend = load("torch")
        assert isinstance(backend, TorchBackend)
        backend.expect_divided()
        self._line = init_device_mesh("cpu", (size,))
        self._grid = init_device_mesh("cpu", (2, size // 2)) if "grid" in self.layouts(size) else None

    @staticmethod
    def layouts(size: int) -> tuple[str, ...]:
        """Return the layouts of so many processes."""
        return (*LAYOUTS, "grid") if size >= 4 and size % 2 == 0 else LAYOUTS

    def distribute(self, array: torch.Tensor, layout: str, place: int) -> torch.Tensor:
        """Return a DTensor of the values, which every process has.

        Args:
            array: a tensor.
            layout: one of `layouts`.
            place: the number of the input, which counts in the layout `mixed`.
        """
        if layout == "mixed":
            layout = _TURNS[place % len(_TURNS)]
        if layout == "grid":
            assert self._grid is not None
            placements = [Shard(0), Shard(1)] if array.ndim > 1 else [Shard(0), Replicate()]
            return distribute_tensor(array, self._grid, placements if array.ndim else [Replicate(), Replicate()])
        return self._on(self._line, array, layout)

    def _on(self, mesh: DeviceMesh, array: torch.Tensor, layout: str) -> torch.Tensor:
        if layout == "partial":
            if array.dtype is torch.bool:
                return distribute_tensor(array, mesh, [Replicate()])
            # One process has the values and the others zeros: no rounding.
            own = array.clone() if mesh.get_local_rank() == 0 else torch.zeros_like(array)
            return DTensor.from_local(own, mesh, [Partial()], run_check=False)
        if layout == "whole" or not array.ndim:
            return distribute_tensor(array, mesh, [Replicate()])
        return distribute_tensor(array, mesh, [Shard(0 if layout == "divided" else array.ndim - 1)])

    def full(self, array: torch.Tensor) -> torch.Tensor:
        """Return the whole array on this process; one that is not distributed, as it is."""
        whole = array.full_tensor() if isinstance(array, DTensor) else array
        return whole.wait() if isinstance(whole, AsyncCollectiveTensor) else whole

    def is_distributed(self, array: torch.Tensor) -> bool:
        """Return whether an array is a DTensor."""
        return isinstance(array, DTensor)

    def close(self) -> None:
        """Leave the group of processes."""
        dist.destroy_process_group()


PROCESSES: Final = {"dtensor": DTensors}
"""By the word after `torch:`, what makes distributed arrays."""
