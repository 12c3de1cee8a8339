"""Arrays that are divided among the devices of a mesh, with the names and layouts of `tape_torch.distributed`.

A mesh gives the devices their places, and a layout says along which of its axes those of an array are divided. What is
divided computes as any other Tensor does: XLA adds the communication. One process may have all devices.

    mesh = tape_jax.distributed.mesh({"data": -1})
    model = tape_jax.distributed.distribute(model, (), mesh=mesh)       # a copy on each device
    x = tape_jax.distributed.distribute(batch, ("data",), mesh=mesh)    # divided along its first axis
"""

from tape_jax.distributed.creation import create
from tape_jax.distributed.layouts import Layout, sharding
from tape_jax.distributed.meshes import Mesh, mesh
from tape_jax.distributed.moving import (
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

__all__ = [
    "Layout",
    "Mesh",
    "agree",
    "compare",
    "create",
    "distribute",
    "divide",
    "full",
    "joined",
    "local",
    "mesh",
    "own_device",
    "own_rows",
    "sharding",
]
