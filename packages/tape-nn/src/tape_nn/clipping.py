"""Gradients made smaller where they are too large."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import tape_core as tc
from tape_core import IndexedSlices
from tape_core.base.mistakes import real


def global_norm(gradients: Iterable[Any]) -> tc.Tensor:
    """The Euclidean norm of all gradients together, as if they were one long vector. None counts as nothing.

    Gradients of half precision are summed in float32, in which their squares do not overflow.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.global_norm([tc.asarray([3.0]), None, tc.asarray([[0.0, 4.0]])]).item()
    5.0

    Raises:
        ValueError: there is no gradient at all.
    """
    found: tc.Tensor = norm(tc, [_tensor(g) for g in gradients if g is not None])
    return found


def clip_by_value(gradient: Any, clip_value: float) -> tc.Tensor:
    """`gradient` with its elements between `-clip_value` and `clip_value`; NaN stays.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.clip_by_value(tc.asarray([-3.0, 0.5, 4.0]), 1.0).tolist()
    [-1.0, 0.5, 1.0]

    Raises:
        ValueError: `clip_value` is not above 0.
    """
    limit = positive("clip_value", clip_value)
    return tc.clip(_tensor(gradient), -limit, limit)


def clip_by_norm(gradient: Any, clip_norm: float) -> tc.Tensor:
    """`gradient`, scaled to the Euclidean norm `clip_norm` if its own is larger; NaN where that is not finite.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.clip_by_norm(tc.asarray([3.0, 4.0]), 2.5).tolist()
    [1.5, 2.0]
    """
    g = _tensor(gradient)
    return _scaled(g, factor(tc, norm(tc, [g]), positive("clip_norm", clip_norm)))


def clip_by_global_norm(gradients: Iterable[Any], clip_norm: float) -> tuple[list[Any], tc.Tensor]:
    """All gradients scaled by one factor, so that their :func:`global_norm` is at most `clip_norm`; and that norm.

    Where the norm is not finite, all of them become NaN, as in TensorFlow: the direction is lost. None stays None.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> clipped, norm = nn.clip_by_global_norm([tc.asarray([3.0]), tc.asarray([4.0])], 2.5)
    >>> [g.tolist() for g in clipped], norm.item()
    ([[1.5], [2.0]], 5.0)
    """
    tensors = [None if g is None else _tensor(g) for g in gradients]
    total = norm(tc, [g for g in tensors if g is not None])
    by = factor(tc, total, positive("clip_norm", clip_norm))
    return [None if g is None else _scaled(g, by) for g in tensors], total


def norm(xp: Any, arrays: list[Any]) -> Any:
    """The norm of arrays together: of Tensors with `tape_core`, of raw arrays with a backend's kernels."""
    if not arrays:
        raise ValueError("the norm of no gradients: all are None, or there are none")
    total = None
    for g in arrays:
        wide = xp.abs(g) if xp.isdtype(g.dtype, "complex floating") else g
        if xp.finfo(wide.dtype).bits < 32:
            wide = xp.astype(wide, xp.float32)
        part = xp.sum(wide * wide)
        total = part if total is None else total + part
    return xp.sqrt(total)


def factor(xp: Any, norm: Any, limit: float) -> Any:
    """What gradients of this norm are multiplied by; NaN where it is not finite."""
    clipped = limit / xp.maximum(norm, xp.full_like(norm, limit))
    return xp.where(xp.isfinite(norm), clipped, xp.full_like(norm, math.nan))


def positive(name: str, value: Any) -> float:
    """A number above 0."""
    found = real("", name, value)
    if not found > 0:
        raise ValueError(f"{name} must be above 0; got {value}")
    return found


def _scaled(g: tc.Tensor, by: tc.Tensor) -> tc.Tensor:
    return g * (by if by.dtype is g.dtype else tc.astype(by, g.dtype))


def _tensor(gradient: Any) -> tc.Tensor:
    if isinstance(gradient, IndexedSlices):
        return gradient.densify()
    return gradient if isinstance(gradient, tc.Tensor) else tc.asarray(gradient)
