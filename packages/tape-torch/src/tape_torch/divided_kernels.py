"""Kernels on arrays that are divided among processes: what PyTorch's DTensors lack, or leave to their user.

Once there is such an array, each kernel is called through here. PyTorch computes with DTensors by itself; besides that

- a plain tensor beside them, a constant say, is a copy in each process, and that it is the same in each is checked;
- an op for which PyTorch has no way to divide it is computed in each process on the whole arrays, and a warning says
  so once for each op;
- a result without dimensions is added up at once: `float` of a summand would be a number of one process alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from tape_compile.extend import TracedArray
from tape_core.support import warn_user
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten
from torch.utils.weak import WeakTensorKeyDictionary

_LACKS = ("does not have a sharding strategy registered", "does not support cross-mesh", "not supported yet")
"""Words of PyTorch's errors for ops that DTensors do not have, or not in such a layout."""

_copies: Any = WeakTensorKeyDictionary()
"""By a plain tensor its version and the DTensor that it is beside others."""

_told: set[str] = set()


def guard(name: str, kernel: Any) -> Any:
    """Return what is called in place of a kernel; see `tape_core.backends.Backend.guarded`."""

    if not callable(kernel) or isinstance(kernel, type):
        return kernel

    def called(*args: Any, **kwargs: Any) -> Any:
        mesh = _mesh_of(args, kwargs)
        if mesh is None:
            return kernel(*args, **kwargs)
        return _call(name, kernel, mesh, args, kwargs)

    def chosen(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        inner = getattr(kernel, "chosen", None)
        if _mesh_of(args, kwargs) is not None:
            return called
        found: Callable[..., Any] = kernel if inner is None else inner(args, kwargs)
        return found

    called.__name__ = name
    called.__wrapped__ = kernel  # type: ignore[attr-defined]
    called.unguarded = getattr(kernel, "unguarded", kernel)  # type: ignore[attr-defined]
    called.chosen = chosen  # type: ignore[attr-defined]
    return called


def _mesh_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> DeviceMesh | None:
    for value in args:
        kind = type(value)
        if kind is DTensor:
            mesh: DeviceMesh = value.device_mesh
            return mesh
        if kind is TracedArray and type(value.value) is DTensor:  # in a trace
            return _mesh_of((value.value,), {})
        if kind in (list, tuple) and (found := _mesh_of(tuple(value), {})) is not None:
            return found
    return _mesh_of(tuple(kwargs.values()), {}) if kwargs else None


def _call(name: str, kernel: Callable[..., Any], mesh: DeviceMesh, args: Any, kwargs: Any) -> Any:
    leaves, structure = tree_flatten((args, kwargs))
    for k, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and type(leaf) is not DTensor:
            leaves[k] = copy_on(mesh, leaf, f"in {name}")
    args, kwargs = tree_unflatten(leaves, structure)
    try:
        found = kernel(*args, **kwargs)
    except (NotImplementedError, RuntimeError) as error:
        if not any(words in str(error) for words in _LACKS):
            raise
        found = _call_whole(name, kernel, mesh, args, kwargs)
    return tree_map_only(DTensor, _settled, found)


def _call_whole(name: str, kernel: Callable[..., Any], mesh: DeviceMesh, args: Any, kwargs: Any) -> Any:
    """Compute in each process on the whole arrays, of which each result is a copy there."""
    if name not in _told:
        _told.add(name)
        warn_user(
            f"PyTorch cannot divide {name} among processes: it is computed in each on the whole arrays, which are "
            f"brought together first. This is said once for each op"
        )
    args, kwargs = tree_map_only(DTensor, lambda x: x.full_tensor(), (args, kwargs))
    everywhere = [Replicate()] * mesh.ndim
    return tree_map_only(
        torch.Tensor,
        lambda x: DTensor.from_local(x, mesh, everywhere, run_check=False),
        kernel(*args, **kwargs),
    )


def _settled(x: Any) -> Any:
    if x.ndim or not any(p.is_partial() for p in x.placements):
        return x
    return x.redistribute(x.device_mesh, [Replicate()] * x.device_mesh.ndim)


def copy_on(mesh: DeviceMesh, tensor: torch.Tensor, where: str) -> Any:
    """Return a plain tensor as a copy in each process, after comparing what the processes have."""
    known = _copies.get(tensor)
    if known is not None and known[0] == tensor._version and known[1].device_mesh == mesh:
        return known[1]
    check_same(tensor, mesh, where)
    copy = DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
    _copies[tensor] = tensor._version, copy
    return copy


def check_same(tensor: torch.Tensor, mesh: DeviceMesh, where: str) -> None:
    """Refuse a plain tensor of which the processes of a mesh have different values, dtypes or shapes.

    Raises:
        ValueError: they differ.
    """
    text = f"{tuple(tensor.shape)} {tensor.dtype}".encode()
    values = tensor.detach().to("cpu").contiguous().view(-1)
    digest = hashlib.blake2b(text, digest_size=8)
    if values.numel():
        digest.update(values.view(torch.uint8).numpy().tobytes())
    number = int.from_bytes(digest.digest(), "big") >> 1
    both = torch.tensor([number, -number], device=mesh.device_type)
    for axis in range(mesh.ndim):
        dist.all_reduce(both, dist.ReduceOp.MAX, group=mesh.get_group(axis))
    most, least = both.tolist()
    if most != -least:
        raise ValueError(
            f"{where}: a plain array of shape {tuple(tensor.shape)} beside a divided one is a copy in each process, "
            f"and the processes have different ones (this is rank {dist.get_rank()}). If each has its part, make it "
            f"tape_torch.distributed.distribute(part, layout, mesh=mesh, local=True); if it is to be the same, draw "
            f"it from one seed, or take that of the first process: distribute(value, (), mesh=mesh)"
        )
