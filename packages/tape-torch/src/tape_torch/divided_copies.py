"""Plain tensors beside divided arrays: each process has a copy, and that all have the same is checked."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.weak import WeakTensorKeyDictionary

from tape_torch.conversion import bytes_of
from tape_torch.divided import added_up, describe, failed, is_here, part_of
from tape_torch.mismatches import described_array

T = TypeVar("T")

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


_OF_TWO_MESHES = (
    "in {name}: an array of shape {shape} is divided among the processes of another mesh than the one beside it: "
    "{own} with {placements}, and {other} (this is rank {rank}). Make one mesh, and take it for models, strategies and "
    "batches alike; or bring the array onto the other one: tape_torch.distributed.distribute(x, layout, mesh=mesh), "
    "which all processes call"
)


def has_another_mesh(values: Iterable[Any], mesh: DeviceMesh) -> bool:
    """Return whether there is an array of another mesh among values, and lists of them."""
    for value in values:
        kind = type(value)
        if kind is DTensor:
            if value.device_mesh is not mesh and value.device_mesh != mesh:
                return True
        elif (kind is list or kind is tuple) and has_another_mesh(value, mesh):
            return True
    return False


def on_one_mesh(given: Any, name: str) -> tuple[Any, DeviceMesh]:
    """Return a tree whose arrays are of several meshes, with all on one, and the mesh.

    Arrays of which each process has all values are as well copies on any mesh.

    Raises:
        ValueError: others are divided along two meshes. PyTorch computes of arrays of one mesh alone.
    """
    arrays = [added_up(x) for x in tree_leaves(given) if type(x) is DTensor]
    first = next((x for x in arrays if not is_here(x)), arrays[0])
    mesh = first.device_mesh

    def moved(x: Any) -> Any:
        if x.device_mesh == mesh:
            return x
        whole = added_up(x)
        if is_here(whole):
            return as_copy(part_of(whole), mesh)
        own, other = [dict(zip(m.mesh_dim_names or range(m.ndim), m.shape, strict=True)) for m in (x.device_mesh, mesh)]
        raise ValueError(
            _OF_TWO_MESHES.format(
                name=name, shape=tuple(x.shape), own=own, placements=describe(x), other=other, rank=dist.get_rank()
            )
        )

    return tree_map_only(DTensor, moved, given), mesh


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
    about = described_array(tensor)
    digest = hashlib.blake2b(about.encode(), digest_size=8)
    digest.update(bytes_of(tensor))
    try:
        same = _is_same(digest.digest(), mesh)
    except RuntimeError as error:
        if (found := failed(error, f"comparing an array: {where}")) is not None:
            raise found from error
        raise
    if not same:
        differing = _differing(about, digest.digest(), mesh)
        raise ValueError(said.format(where=where, shape=tuple(tensor.shape), differing=differing, rank=dist.get_rank()))


def same_everywhere(text: str, mesh: DeviceMesh) -> bool:
    """Return whether all processes of a mesh, which all call this, have the same text."""
    return _is_same(hashlib.blake2b(text.encode(), digest_size=8).digest(), mesh)


def told_by_all(own: T, mesh: DeviceMesh) -> dict[int, T]:
    """Return by rank what each process of a mesh, which all call this, tells the others."""
    told = {dist.get_rank(): own}
    for axis in range(mesh.ndim):
        found: list[Any] = [None] * mesh.size(axis)
        dist.all_gather_object(found, told, group=mesh.get_group(axis))
        told = {rank: one for part in found for rank, one in part.items()}
    return told


def _is_same(digest: bytes, mesh: DeviceMesh) -> bool:
    number = int.from_bytes(digest, "big") >> 1
    both = torch.tensor([number, -number], device=mesh.device_type)
    for axis in range(mesh.ndim):
        dist.all_reduce(both, dist.ReduceOp.MAX, group=mesh.get_group(axis))
    most, least = both.tolist()
    return bool(most == -least)


def _differing(about: str, digest: bytes, mesh: DeviceMesh) -> str:
    """Return which processes of a mesh, which all call this, have another array than the first of them."""
    told = told_by_all((about, digest), mesh)
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
