"""What is called with a kernel and DTensors where PyTorch's own way with them fails."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.utils._pytree import tree_leaves

from tape_torch.divided import part_of
from tape_torch.divided_products import multiplied


def _reshape(kernel: Callable[..., Any], x: DTensor, shape: Any, *args: Any, **kwargs: Any) -> Any:
    """Reshape a DTensor of which a part need not lie in memory as the whole would, which PyTorch relies on.

    Parts of different lengths are brought together where their axis does not stay: of (3, 4) by rows two processes
    have 8 and 4 elements, and of (12,) 6 each.
    """
    args = (shape, *args)
    kept = _ends_of_axes(kernel(torch.empty(x.shape, device="meta"), shape).shape)

    def is_lost(place: Placement) -> bool:
        if not isinstance(place, Shard):
            return False
        parts = math.prod([x.device_mesh.size(k) for k, p in enumerate(x.placements) if p == place])
        length, after = x.shape[place.dim], math.prod(x.shape[place.dim + 1 :])
        return length % parts != 0 and (length, after) not in kept

    if any(map(is_lost, x.placements)):
        x = x.redistribute(placements=[Replicate() if is_lost(p) else p for p in x.placements])
    try:
        return kernel(x, *args, **kwargs)
    except RuntimeError as error:
        if "view size is not compatible" not in str(error):
            raise
    part, strides = part_of(x).contiguous(), torch.empty(x.shape, device="meta").stride()
    packed = DTensor.from_local(part, x.device_mesh, x.placements, run_check=False, shape=x.shape, stride=strides)
    return kernel(packed, *args, **kwargs)


def _ends_of_axes(shape: Sequence[int]) -> set[tuple[int, int]]:
    """Return of each axis its length and the number of elements from one step along it to the next."""
    return {(n, math.prod(shape[k + 1 :])) for k, n in enumerate(shape)}


def _logsumexp(kernel: Callable[..., Any], x: DTensor, axis: Any = None, keepdims: bool = False) -> Any:
    """Reduce without the axes, and put them back: PyTorch forgets them where it says how the result is divided."""
    out = kernel(x, axis=axis, keepdims=False)
    if keepdims:
        for k in sorted([k % x.ndim for k in (range(x.ndim) if axis is None else tree_leaves(axis))]):
            out = out.unsqueeze(k)
    return out


def _place_of_extreme(kernel: Callable[..., Any], x: DTensor, axis: Any = None, keepdims: bool = False) -> Any:
    """Count the axis from the first: with one from the last, PyTorch joins what processes have found wrongly."""
    is_from_last = type(axis) is int and -x.ndim <= axis < 0
    return kernel(x, axis=axis + x.ndim if is_from_last else axis, keepdims=keepdims)


WAYS: dict[str, Callable[..., Any]] = {
    "argmax": _place_of_extreme,
    "argmin": _place_of_extreme,
    "logsumexp": _logsumexp,
    "matmul": multiplied,
    "reshape": _reshape,
}
"""By the name of an op the function that is called with its kernel where PyTorch's own way with a DTensor fails."""
