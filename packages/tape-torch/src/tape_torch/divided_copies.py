"""Plain tensors beside divided arrays: each process has a copy, and that all have the same is checked."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.utils.weak import WeakTensorKeyDictionary

from tape_torch.divided import without_group

_SAID: Final = 8  # processes in a message that have other arrays

_BESIDE = (
    "{where}: a plain array of shape {shape} beside a divided one is a copy in each process, and the processes have "
    "different ones: {differing} (this is rank {rank}). If each has its part, make it "
    "tape_torch.distributed.distribute(part, layout, mesh=mesh, local=True); if it is to be the same, draw it from one "
    "seed, or take that of the first process: distribute(value, (), mesh=mesh)"
)

DIVIDE = (
    "{where}: all processes give the same array, here of shape {shape}, of which each keeps its part, and they give "
    "different ones: {differing} (this is rank {rank}). If each has loaded rows of its own, make one array of them: "
    "tape_torch.distributed.distribute(part, layout, mesh=mesh, local=True), or strategy.join(batch) of nn.parallel; "
    "if it is to be the same, draw it from one seed"
)
"""Of what is divided, which is no constant beside other arrays."""

_copies: Any = WeakTensorKeyDictionary()
"""By a plain tensor its version and the DTensor that it is beside others."""


def as_copy(x: torch.Tensor, mesh: DeviceMesh) -> DTensor:
    """Return a tensor that all processes have; what is a DTensor already stays so."""
    if isinstance(x, DTensor):
        return x
    return DTensor.from_local(x, mesh, [Replicate()] * mesh.ndim, run_check=False)


def copy_on(mesh: DeviceMesh, tensor: torch.Tensor, where: str) -> Any:
    """Return a plain tensor as a copy in each process, after comparing what the processes have."""
    known = _copies.get(tensor)
    if known is not None and known[0] == tensor._version and known[1].device_mesh == mesh:
        return known[1]
    check_same(tensor, mesh, where)
    copy = as_copy(tensor, mesh)
    _copies[tensor] = tensor._version, copy
    return copy


def check_same(tensor: torch.Tensor, mesh: DeviceMesh, where: str, said: str = _BESIDE) -> None:
    """Refuse a plain tensor of which the processes of a mesh have different values, dtypes or shapes.

    Args:
        where: for the message.
        said: the message, with places for `where`, the shape, what differs and the rank.

    Raises:
        ValueError: they differ.
        RuntimeError: there are no processes any more.
    """
    values = tensor.detach().to("cpu").contiguous().view(-1)
    digest = hashlib.blake2b(_about(tensor).encode(), digest_size=8)
    if values.numel():
        digest.update(values.view(torch.uint8).numpy().tobytes())
    try:
        same = _is_same(digest.digest(), mesh)
    except RuntimeError as error:
        if (gone := without_group(error)) is not None:
            raise gone from error
        raise
    if not same:
        differing = _differing(_about(tensor), digest.digest(), mesh)
        raise ValueError(said.format(where=where, shape=tuple(tensor.shape), differing=differing, rank=dist.get_rank()))


def same_everywhere(text: str, mesh: DeviceMesh) -> bool:
    """Return whether all processes of a mesh, which all call this, have the same text."""
    return _is_same(hashlib.blake2b(text.encode(), digest_size=8).digest(), mesh)


def _about(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _is_same(digest: bytes, mesh: DeviceMesh) -> bool:
    number = int.from_bytes(digest, "big") >> 1
    both = torch.tensor([number, -number], device=mesh.device_type)
    for axis in range(mesh.ndim):
        dist.all_reduce(both, dist.ReduceOp.MAX, group=mesh.get_group(axis))
    most, least = both.tolist()
    return bool(most == -least)


def _differing(about: str, digest: bytes, mesh: DeviceMesh) -> str:
    """Return which processes of a mesh, which all call this, have another array than the first of them."""
    told = {dist.get_rank(): (about, digest)}
    for axis in range(mesh.ndim):
        found: list[Any] = [None] * mesh.size(axis)
        dist.all_gather_object(found, told, group=mesh.get_group(axis))
        told = {rank: one for part in found for rank, one in part.items()}
    first, *others = sorted(told)
    own = told[first]
    said = [
        f"rank {k} has {told[k][0]}, and rank {first} {own[0]}"
        if told[k][0] != own[0]
        else f"rank {k} has other values than rank {first}"
        for k in others
        if told[k] != own
    ]
    return "; ".join([*said[:_SAID], *["..."] * (len(said) > _SAID)])
