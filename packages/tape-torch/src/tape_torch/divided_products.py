"""Matrix products of arrays that are divided among processes.

Of a batch that is divided by rows, and a weight that is divided along the same axis of the mesh, PyTorch sends whatever
is fewer bytes: often the batch, and the product, while nothing else can be computed. A weight can be asked for before,
and together with others, and is the same in a backward pass. So it is the weight that is gathered, as FSDP does, unless
it is much larger.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.distributed.tensor import DTensor, Placement, Replicate, Shard

from tape_torch.divided_weights import whole_of
from tape_torch.thresholds import WEIGHT_TO_ACTIVATIONS


def multiplied(kernel: Callable[..., Any], x1: Any, x2: Any) -> Any:
    """Multiply vectors as matrices: PyTorch squeezes the product in place, which a DTensor's shape does not show."""
    out = kernel(x1[None] if x1.ndim == 1 else x1, x2[:, None] if x2.ndim == 1 else x2)
    out = out[..., 0] if x2.ndim == 1 else out
    if x1.ndim > 1:
        return out
    return out[..., 0] if x2.ndim == 1 else out[..., 0, :]


def beside_rows(x1: Any, x2: Any) -> Any:
    """Return a matrix such that each process has all of it that its rows of another array are multiplied by."""
    if type(x1) is not DTensor or type(x2) is not DTensor or x1.ndim < 2 or x2.ndim != 2 or not x1.numel():
        return x2
    places: list[Placement] = [
        Replicate() if type(p) is Shard and p.dim < x1.ndim - 1 and type(q) is Shard else q
        for p, q in zip(x1.placements, x2.placements, strict=True)
    ]
    rows = x1.numel() // max(x1.shape[-1], 1)
    if places == list(x2.placements) or x2.numel() > WEIGHT_TO_ACTIVATIONS * rows * sum(x2.shape):
        return x2
    if (whole := whole_of(x2)) is not None:
        return whole
    if x2.stride()[0] >= x2.stride()[1]:
        return x2.redistribute(x2.device_mesh, places)
    # The transpose of a weight: gathered as the weight itself is, so that a compiled function does so once.
    turned = [Shard(1 - p.dim) if isinstance(p, Shard) else p for p in places]
    weight: Any = x2.mT
    return weight.redistribute(x2.device_mesh, turned).mT
