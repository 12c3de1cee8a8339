"""Groups of processes, one after the other, for programs of `support.run_processes` that leave a group of no use."""

from __future__ import annotations

import os
from datetime import timedelta
from types import TracebackType

import torch.distributed as dist
from tape_torch.distributed import Mesh, mesh

_store: list[dist.Store] = []


class Trial:
    """A group of all processes, as a context whose value is its mesh; one that leaves it waits for all others."""

    count = 0

    def __enter__(self) -> Mesh:
        Trial.count += 1
        if not _store:
            _store.append(dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False))
        place = dist.PrefixStore(f"trial {Trial.count}", _store[0])
        dist.init_process_group("gloo", store=place, rank=int(os.environ["RANK"]), world_size=_size())
        found = mesh({"data": -1}, device="cpu")
        limit_waits(found, 30.0)
        return found

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            _store[0].set(f"{Trial.count} {os.environ['RANK']}", "")
            _store[0].wait([f"{Trial.count} {k}" for k in range(_size())])
            dist.destroy_process_group()


def limit_waits(mesh: Mesh, seconds: float) -> None:
    """Have the processes of a mesh wait so long for each other in collectives, from now on."""
    for group in (dist.group.WORLD, *mesh.device_mesh.get_all_groups()):
        assert group is not None  # there is a mesh
        group.set_timeout(timedelta(seconds=seconds))


def _size() -> int:
    return int(os.environ["WORLD_SIZE"])
