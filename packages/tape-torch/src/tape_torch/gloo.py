"""A fault of PyTorch's gloo that ends processes, and the way around it.

Two threads carry out the collectives of a group of processes. When one has ended, each of them writes the name of what
it was into a string that both share, without a lock (`ProcessGroupGloo::runLoop` in PyTorch 2.13). Names of up to 15
characters have their place in the string itself, and nothing comes of that. A longer one lies in memory of its own,
which the next name frees: where two collectives end at the same moment, both threads free it, or one writes into what
the other has freed. The process dies then, or later: "free(): invalid pointer", "malloc(): unaligned tcache chunk".

Of what DTensors call one name is longer: `ALLGATHER_COALESCED`, of which PyTorch's functional gather is a case. The
same bytes are sent as `ALLGATHER` where the result is given. So that is what gathers of tensors on the CPU become.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_SPACE, _NAME = "_c10d_functional", "all_gather_into_tensor"


@cache
def gather_by_a_short_name() -> None:
    """Have gathers of tensors on the CPU, those of DTensors and of whoever calls PyTorch's, be safe beside others."""
    if not hasattr(torch.ops._c10d_functional, f"{_NAME}_out"):
        return
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"{_SPACE}::{_NAME}", "CPU"):  # else somebody has another way
        _library().impl(_NAME, _gather, "CPU")


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
