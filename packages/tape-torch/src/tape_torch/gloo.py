"""Two faults of PyTorch's gloo, and the ways around them.

One ends processes. Two threads carry out the collectives of a group of processes. When one has ended, each of them
writes the name of what it was into a string that both share, without a lock (`ProcessGroupGloo::runLoop` in PyTorch
2.13). Names of up to 15 characters have their place in the string itself, and nothing comes of that. A longer one lies
in memory of its own, which the next name frees: where two collectives end at the same moment, both threads free it, or
one writes into what the other has freed. The process dies then, or later: "free(): invalid pointer", "malloc():
unaligned tcache chunk".

Of what DTensors call one name is longer: `ALLGATHER_COALESCED`, of which PyTorch's functional gather is a case. The
same bytes are sent as `ALLGATHER` where the result is given. So that is what gathers of tensors on the CPU become.

The other loses NaN. The greatest of two numbers is `a > b ? a : b` there, which of a NaN and a number is the one or the
other by their order: what one process knows to be no number is one for all, and they need not agree. So extremes of
floating-point numbers are taken of integers in the same order, in which NaN is beyond everything.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_SPACE, _NAME = "_c10d_functional", "all_gather_into_tensor"

EXTREMES = ("max", "min")

_AS_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}


@cache
def mend_gloo() -> None:
    """Have collectives of tensors on the CPU, those of DTensors and of whoever calls PyTorch's, be without them."""
    if hasattr(torch.ops._c10d_functional, f"{_NAME}_out"):
        _register(_NAME, _gather)
    _register("all_reduce", _all_reduce)


def _register(name: str, kernel: Any) -> None:
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"{_SPACE}::{name}", "CPU"):  # else somebody has another way
        _library().impl(name, kernel, "CPU")


@cache
def _library() -> Any:
    """Return what a kernel is registered by, for as long as this object lives."""
    make: Any = torch.library.Library  # it has no types
    return make(_SPACE, "IMPL")


def _gather(x: torch.Tensor, size: int, group: str) -> torch.Tensor:
    """Return the tensors of all processes of a group, one after the other along their first axis, once they are there.

    Args:
        x: the tensor of this process.
        size: how many processes there are.
        group: their name.
    """
    x = x if x.ndim else x.view(1)
    found = torch.empty((size * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
    given, out = (torch.view_as_real(x), torch.view_as_real(found)) if x.is_complex() else (x, found)
    torch.ops._c10d_functional.all_gather_into_tensor_out(given, size, group, out=out)
    return found


def _all_reduce(x: torch.Tensor, reduction: str, group: str) -> torch.Tensor:
    """Return the sum, or another reduction, of the tensors of all processes of a group; an extreme once it is there."""
    if reduction not in EXTREMES or not x.is_floating_point():
        copy = x.clone(memory_format=torch.contiguous_format)
        found: torch.Tensor = torch.ops._c10d_functional.all_reduce_(copy, reduction, group)
        return found
    # What has fewer bits is exact in float32, and gloo reduces no integers of 16 bits.
    number = x.contiguous() if x.dtype in _AS_INTEGERS else x.float().contiguous()
    kind = _AS_INTEGERS[number.dtype]
    limits = torch.iinfo(kind)
    bits = number.view(kind)
    # As integers floats are in their order where they are positive, and in the opposite one where they are negative.
    ordered = bits ^ ((bits >> (limits.bits - 1)) & limits.max)
    beyond = limits.max if reduction == "max" else limits.min
    ordered = torch.where(torch.isnan(number), beyond, ordered)
    ordered = torch.ops._c10d_functional.all_reduce_(ordered, reduction, group)
    ordered = torch.ops._c10d_functional.wait_tensor(ordered)
    found = (ordered ^ ((ordered >> (limits.bits - 1)) & limits.max)).view(number.dtype)
    return found.to(x.dtype)
