"""Updates of optimizers that write over old values: who else has one, and formulas as calls of PyTorch's own functions.

See `tape_core/engine/overwriting.py`. A value's memory gets a tensor of its own, which takes its place afterwards: so
whoever knows an array by its identity does not take the new value for the old one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any
from weakref import getweakrefcount

import torch
from tape_core.support import Call, Old

from tape_torch.divided import is_divided, is_watched
from tape_torch.references import COUNTS

_storage_count: Any = getattr(torch._C, "_storage_Use_Count", None)
_is_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor


def old_value(array: Any, gradient: Any) -> Old | None:
    """Return what it takes to write over the value of a Variable; see `Backend.old_value`."""
    if not COUNTS or is_watched() or torch.is_inference_mode_enabled():
        return None
    is_part = is_divided(array)
    part = array._local_tensor if is_part else array
    for x in (part, gradient):
        if type(x) is not torch.Tensor or x.requires_grad or x.is_inference() or _is_wrapped(x):
            return None
        if x.device.type != "cpu" or x.is_conj() or x.is_neg() or not x.is_contiguous():
            return None
    storage = part.untyped_storage()
    if storage.nbytes() != part.numel() * part.element_size() or storage.is_shared() or not storage.resizable():
        return None
    # `Spare.made` has one of them.
    if getweakrefcount(array) != 1 or (is_part and (array.requires_grad or getweakrefcount(part))):
        return None
    if torch.cuda.is_initialized() and part.is_pinned():  # type: ignore[no-untyped-call]
        return None
    memory = part.detach()
    del storage

    def watched(pieces: int) -> tuple[list[Call], list[int]]:
        if is_part:
            counts = [*_counts(array), *_counts(part)]
            return counts, [*_alone(None, True), *_alone(pieces, False)]
        return _counts(array), [*_alone(pieces, True)]

    return Old(memory, watched)


def _counts(x: torch.Tensor) -> list[Call]:
    """Return calls that count who has a tensor, as Python's object and as PyTorch's, and its storage."""
    storage = x.untyped_storage()
    use_count: Any = x._use_count  # type: ignore[attr-defined]
    return [
        partial(sys.getrefcount, x),
        partial(use_count),
        partial(sys.getrefcount, storage),
        partial(_storage_count, storage._cdata),
    ]


@lru_cache(maxsize=256)
def _alone(pieces: int | None, is_value: bool) -> tuple[int, ...]:
    """Return what `_counts` find of a tensor that nobody else has: versions of Python and PyTorch differ.

    Args:
        pieces: in how many the tensor in the same memory has been cut, which has all of them; None if there is none.
        is_value: whether the Variable has it, and the commit as the former value; else an array that is divided.
    """
    holder = [torch.empty(max(1, pieces or 0), device="cpu")]
    former = [holder[0]] if is_value else []
    views: list[torch.Tensor] = []
    if pieces is not None:
        memory = holder[0].detach()
        views = [memory, *torch.split(memory.view(-1), 1)]
    counts = _counts(holder[0])
    found = tuple(map(_call, counts))
    del former, views
    return found


_call: Callable[[Call], int] = partial.__call__


def formulas(example: torch.Tensor, calls: list[Call]) -> Mapping[str, Callable[..., torch.Tensor]]:
    """Return the formulas of `tape_torch.updates` that add calls to a list; see `Backend.overwriting`."""
    rooms: list[torch.Tensor] = []

    def room(like: torch.Tensor, k: int = 0) -> torch.Tensor:
        while len(rooms) <= k:
            rooms.append(torch.empty_like(example))
        return rooms[k] if like.shape == example.shape else rooms[k][: like.numel()]

    def lerp(x: Any, y: Any, weight: float, *, out: torch.Tensor) -> torch.Tensor:
        calls.append(partial(torch.lerp, x, y, weight, out=out))
        return out

    def lerp_square(x: Any, y: Any, weight: float, *, out: torch.Tensor) -> torch.Tensor:
        square = room(y)
        calls.append(partial(torch.mul, y, y, out=square))
        calls.append(partial(torch.lerp, x, square, weight, out=out))
        return out

    def accumulate(x: Any, decay: float, y: Any, scale: Any, *, out: torch.Tensor) -> torch.Tensor:
        decayed = room(x)
        calls.append(partial(torch.mul, x, decay, out=decayed))
        if type(scale) is not float and isinstance(scale, torch.Tensor):
            calls.append(partial(torch.mul, y, scale, out=room(y, 1)))
            calls.append(partial(torch.add, decayed, room(y, 1), out=out))
        else:
            calls.append(partial(torch.add, decayed, y, alpha=scale, out=out))
        return out

    def subtract_scaled(w: Any, x: Any, scale: Any, *, out: torch.Tensor) -> torch.Tensor:
        if type(scale) is not float and isinstance(scale, torch.Tensor):
            calls.append(partial(torch.mul, x, scale, out=room(x)))
            calls.append(partial(torch.sub, w, room(x), out=out))
        else:
            calls.append(partial(torch.sub, w, x, alpha=scale, out=out))
        return out

    def subtract_root_quotient(
        w: Any, a: Any, b: Any, epsilon: float, scale: Any, *, out: torch.Tensor
    ) -> torch.Tensor:
        root = room(b)
        calls.append(partial(torch.sqrt, b, out=root))
        calls.append(partial(root.add_, epsilon))
        if type(scale) is not float and isinstance(scale, torch.Tensor):
            calls.append(partial(torch.mul, a, -scale, out=room(a, 1)))
            calls.append(partial(room(a, 1).div_, root))
            calls.append(partial(torch.add, w, room(a, 1), out=out))
        else:
            calls.append(partial(torch.addcdiv, w, a, root, value=-scale, out=out))
        return out

    return {f.__name__: f for f in (lerp, lerp_square, accumulate, subtract_scaled, subtract_root_quotient)}
