"""Programs in several processes, by torch.distributed: arrays that are divided among them, checkpoints, and failures.

Each process runs the same program, started by `torchrun`; a mesh gives the processes their places. What is divided
among them computes as any other Tensor does: PyTorch adds the communication.

    mesh = tape_torch.distributed.mesh({"data": -1})
    model = tape_torch.distributed.distribute(model, (), mesh=mesh)       # a copy in each process
    x = tape_torch.distributed.distribute(batch, ("data",), mesh=mesh)    # divided along its first axis
"""

from tape_torch.distributed.averaging import average_gradients, averaged_gradient
from tape_torch.distributed.checkpoints import Loaded, Saving, latest, load, save
from tape_torch.distributed.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from tape_torch.distributed.creation import create
from tape_torch.distributed.failures import watched
from tape_torch.distributed.layouts import Layout, placements
from tape_torch.distributed.meshes import Mesh, mesh
from tape_torch.distributed.moving import (
    agree,
    compare,
    distribute,
    divide,
    full,
    joined,
    local,
    own_device,
    own_rows,
)
from tape_torch.meetings import MismatchError
from tape_torch.peers import PeerError

__all__ = [
    "Layout",
    "Loaded",
    "Mesh",
    "MismatchError",
    "PeerError",
    "Saving",
    "agree",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "average_gradients",
    "averaged_gradient",
    "broadcast",
    "compare",
    "create",
    "distribute",
    "divide",
    "full",
    "joined",
    "latest",
    "load",
    "local",
    "mesh",
    "own_device",
    "own_rows",
    "placements",
    "reduce_scatter",
    "save",
    "watched",
]
