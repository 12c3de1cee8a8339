"""Arrays that are divided among processes, PyTorch's DTensors, as the backend meets them.

They are told by their attributes: PyTorch's module for them is imported by those who make them.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Any

import torch

COMPILED_PARTS = "TAPE_COMPILED_PARTS"
"""The environment variable that, as 0, has compiled functions of divided arrays not computed by parts."""

_ELSEWHERE = (
    "an array of shape {shape} with the placements {placements} is divided among processes, and rank {rank} has only a "
    "part of the values: tape_torch.distributed.full(x), which all processes call, returns all of them in each, and "
    "tape_torch.distributed.local(x) this part"
)


_GONE = (
    "the group of processes that this array is divided among is no more: torch.distributed.destroy_process_group has "
    "ended it. Call that when nothing is left to compute, or take what is needed afterwards before it: "
    "tape_torch.distributed.full(x), which all processes call, is a plain array in each"
)
_OF_NO_GROUP = ("Could not resolve the process group", "process group has not been initialized")
"""Words of PyTorch's errors where there is no group."""


def without_group(error: Exception) -> RuntimeError | None:
    """Return what to say in place of an error of PyTorch's that only says that it finds no group of processes.

    None where it is another one, or where there is a group.
    """
    if torch.distributed.is_initialized() or not any([words in str(error) for words in _OF_NO_GROUP]):
        return None
    return RuntimeError(_GONE)


def failed(error: Exception, what: str) -> RuntimeError | None:
    """Return what to say in place of an error of PyTorch's that a collective has failed, or finds no group; or None.

    Args:
        what: the collective, or what it belongs to, in the words of users.
    """
    from tape_torch.peers import explained  # which needs PyTorch's module of processes

    return without_group(error) or explained(error, what)


def is_asked_for(variable: str, *, otherwise: bool = False) -> bool:
    """Return whether an environment variable turns something on; `otherwise` where it is empty or not there.

    Raises:
        ValueError: it is neither 0 nor 1, nor empty.
    """
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{variable}={value!r} is neither 0 nor 1")
    return value == "1" if value else otherwise


def is_divided(array: object) -> bool:
    """Return whether an array is a DTensor."""
    kind = type(array)
    if issubclass(kind, torch.Tensor):  # to ask a class takes less time than to ask a DTensor
        return is_divided_kind(kind)
    return hasattr(array, "device_mesh") and hasattr(array, "placements")


def is_divided_kind(kind: type) -> bool:
    """Return whether a class is that of DTensors."""
    return kind is not torch.Tensor and hasattr(kind, "device_mesh") and hasattr(kind, "placements")


def is_watched() -> bool:
    """Return whether a mode of PyTorch's sees what is called: it is to see calls with DTensors."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())


def is_here(array: Any) -> bool:
    """Return whether each process has all values of a DTensor."""
    return all(p.is_replicate() for p in array.placements)


def part_of(array: Any) -> torch.Tensor:
    """Return the part of a DTensor that this process has; what is still being sent is waited for."""
    part = array.to_local()
    return _waited_for(part) if type(part) is not torch.Tensor and hasattr(part, "trigger_wait") else part


def own_part(array: Any) -> torch.Tensor:
    """Return what `part_of` does, without PyTorch's autograd, in which `to_local` makes another tensor."""
    part = array._local_tensor
    return _waited_for(part) if hasattr(part, "trigger_wait") else part


def whole_value(array: Any) -> torch.Tensor:
    """Return the plain tensor of a DTensor of which each process has all values, or summands.

    Summands are added up, by a collective: they are what a mean or a loss is before anybody reads it. All processes
    compute it, and all read it or none.

    Raises:
        ValueError: other processes have some of the values.
    """
    if is_here(array):
        return part_of(array) if array.requires_grad else own_part(array)
    if any(p.is_shard() for p in array.placements):
        if not torch.distributed.is_initialized():
            raise RuntimeError(_GONE)
        rank = torch.distributed.get_rank()
        raise ValueError(_ELSEWHERE.format(shape=tuple(array.shape), placements=tuple(array.placements), rank=rank))
    try:
        return array.full_tensor()  # type: ignore[no-any-return]
    except RuntimeError as error:
        if (said := failed(error, "reading a value")) is not None:
            raise said from error
        raise


def added_up(array: Any) -> Any:
    """Return a DTensor without terms that are still to be added up, in a collective if there are such."""
    if not any(p.is_partial() for p in array.placements):
        return array
    from torch.distributed.tensor import Replicate

    return array.redistribute(placements=[Replicate() if p.is_partial() else p for p in array.placements])


def describe(array: Any) -> str:
    """Return the placements of a DTensor by the axes of its mesh, such as `placements={'data': Shard(dim=0)}`."""
    mesh = array.device_mesh
    names = mesh.mesh_dim_names or range(mesh.ndim)
    return f"placements={dict(zip(names, array.placements, strict=True))}"


def laid_out_like(x: Any, like: Any) -> Any:
    """Return an array in the layout of another one, where both are DTensors of one shape and mesh.

    It may still be on its way: what is computed with it waits for it, so that gradients are sent while others are made.
    """
    if not is_divided(like) or not is_divided(x):
        return x
    if x._spec is like._spec or x.shape != like.shape or x.device_mesh != like.device_mesh:
        return x
    if tuple(x.placements) == tuple(like.placements) or any(p.is_partial() for p in like.placements):
        return x
    return sent(x, like.placements)


def sent(x: Any, placements: Any) -> Any:
    """Return an array in another layout, in which it may still be on its way."""
    if _dropped:
        wait_for_dropped()
    return sent_later(x.redistribute(placements=placements, async_op=True))


def sent_later(found: Any) -> Any:
    """Note of an array that it may be on its way, so that it is waited for when nobody has it any more; return it."""
    part = found._local_tensor
    if hasattr(part, "trigger_wait") and type(part.elem) is torch.Tensor:
        _on_their_way[id(part)] = part.elem
        weakref.finalize(part, _drop, id(part)).atexit = False
    return found


_on_their_way: dict[int, torch.Tensor] = {}
"""By the ids of parts that may not have been waited for the memory that they come into."""

_dropped: list[torch.Tensor] = []
"""The memory of such parts that nobody has any more."""


def _waited_for(part: Any) -> torch.Tensor:
    """Wait for a part, which is on its way no more: its memory is nobody's when the last who has it lets it go."""
    try:
        found: torch.Tensor = part.wait()
    except RuntimeError as error:
        if (said := failed(error, "waiting for a value")) is not None:
            raise said from error
        raise
    _on_their_way.pop(id(part), None)
    return found


def _drop(key: int) -> None:
    # Not waited for here: a process that ends by an error drops what its peers may never send.
    memory = _on_their_way.pop(key, None)
    if memory is not None:
        _dropped.append(memory)


def wait_for_dropped(*, ending: bool = False) -> None:
    """Wait for parts that nobody has any more: until then PyTorch keeps them, and at the end it warns of them.

    Args:
        ending: also for those that are still there.
    """
    try:
        for part in list(_on_their_way.values()) if ending else ():
            torch.ops._c10d_functional.wait_tensor(part)
        with suppress(IndexError):  # there are no more
            while True:
                torch.ops._c10d_functional.wait_tensor(_dropped.pop())
    except RuntimeError as error:
        if (said := failed(error, "waiting for a value")) is not None:
            raise said from error
        raise
