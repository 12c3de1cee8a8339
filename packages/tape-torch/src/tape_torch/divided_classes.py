"""The cross-entropy of logits of which each process has some classes, as those of a divided vocabulary are.

Of an example processes exchange three numbers, its greatest logit, a sum of exponentials and the logit of its label, in
place of all its logits, which may be more than all else that is computed (Shoeybi et al. 2019, arXiv:1909.08053).
"""

from __future__ import annotations

from typing import Any

import torch
from tape_core.backends import label_error
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from tape_torch.divided import part_of
from tape_torch.divided_rows import are_arrays, are_plain, joined, own_range, part_as, within


def on_classes(name: str, mesh: DeviceMesh, args: tuple[Any, ...], kwargs: dict[str, Any]) -> DTensor | None:
    """Return what `cross_entropy` or `cross_entropy_vjp` is of logits whose classes are divided; None for all else.

    Raises:
        ValueError: a label is out of bounds; on a GPU that is an error of the device.
    """
    if name not in ("cross_entropy", "cross_entropy_vjp"):
        return None
    *cotangents, logits, labels = args
    axis = kwargs.get("axis", -1)
    if not are_arrays(*args) or not are_plain(*args) or not -logits.ndim <= axis < logits.ndim:
        return None
    axis %= logits.ndim
    lines = torch.Size([n for k, n in enumerate(logits.shape) if k != axis])
    if not logits.is_floating_point() or not any([p.is_shard(axis) for p in logits.placements]):
        return None
    if labels.is_floating_point() or labels.is_complex() or labels.dtype is torch.bool:
        return None  # the kernel says what is wrong
    if any([x.shape != lines for x in (*cotangents, labels)]) or any([g.dtype is not logits.dtype for g in cotangents]):
        return None
    by_lines = [_without(p, axis) for p in logits.placements]
    divided = [p.is_shard(axis) for p in logits.placements]

    def over_all(x: torch.Tensor, how: str) -> torch.Tensor:
        terms: list[Placement] = [Partial(how) if is_term else p for p, is_term in zip(by_lines, divided, strict=True)]
        return part_as(joined(x, mesh, terms, lines), by_lines)

    part, n = part_of(logits), logits.shape[axis]
    # PyTorch's softmax adds up in float32, too.
    wide = part.float() if part.dtype in (torch.float16, torch.bfloat16) else part
    first, length = own_range(logits.shape, mesh, list(logits.placements), axis)
    own = part_as(labels, by_lines).to(torch.int64)
    if own.device.type == "cpu" and own.numel() and (own.min() < 0 or own.max() >= n):
        raise label_error(own.min(), own.max(), n)
    places, mine = within(torch.where(own < 0, n, own), first, length, axis, n)
    places, mine = places.unsqueeze(axis), mine.unsqueeze(axis)
    least = torch.full((), -torch.inf, dtype=wide.dtype, device=wide.device)
    greatest = wide.amax(axis) if length else least.expand(own.shape)
    shifted = wide - over_all(greatest, "max").unsqueeze(axis)
    terms = shifted.exp()
    total = over_all(terms.sum(axis), "sum")
    if not cotangents:
        chosen = shifted.gather(axis, places) if length else shifted.new_zeros(places.shape)
        chosen = torch.where(mine, chosen, torch.zeros_like(chosen)).squeeze(axis)
        found = total.log() - over_all(chosen, "sum")
        return joined(found.to(logits.dtype), mesh, by_lines, lines)
    weights = terms.div_(total.unsqueeze(axis))
    if length:
        weights.scatter_add_(axis, places, -mine.to(weights.dtype))
    weights = weights.mul_(part_as(cotangents[0], by_lines).unsqueeze(axis))
    return joined(weights.to(logits.dtype), mesh, list(logits.placements), logits.shape)


def _without(p: Placement, axis: int) -> Placement:
    """Return the placement of lines along an axis in an array that does not have the axis."""
    if not isinstance(p, Shard) or p.dim < axis:
        return p
    return Replicate() if p.dim == axis else Shard(p.dim - 1)
