"""Gradient clipping: by value, by the norm of each gradient, by the norm of all together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import tape_core as tc
from tape_core import IndexedSlices
from tape_core.support import real
from tape_core.typing import Namespace, Raw

from tape_nn.types import Gradient


def global_norm(gradients: Iterable[Gradient]) -> tc.Tensor:
    """Return the Euclidean norm of all gradients together, as if they were one long vector. None is left out.

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


def clip_by_value(gradient: Gradient, clip_value: float) -> tc.Tensor:
    """Clip the elements of `gradient` to the range from `-clip_value` to `clip_value`. NaN stays NaN.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.clip_by_value(tc.asarray([-3.0, 0.5, 4.0]), 1.0).tolist()
    [-1.0, 0.5, 1.0]

    Raises:
        ValueError: `clip_value` is not above 0.
    """
    limit = check_positive("clip_value", clip_value)
    return tc.clip(_tensor(gradient), -limit, limit)


def clip_by_norm(gradient: Gradient, clip_norm: float) -> tc.Tensor:
    """Scale `gradient` down to the Euclidean norm `clip_norm` if its own is larger; to NaN if that is not finite.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> nn.clip_by_norm(tc.asarray([3.0, 4.0]), 2.5).tolist()
    [1.5, 2.0]
    """
    g = _tensor(gradient)
    return _scale(g, clip_factor(tc, norm(tc, [g]), check_positive("clip_norm", clip_norm)))


def clip_by_global_norm(gradients: Iterable[Gradient], clip_norm: float) -> tuple[list[tc.Tensor | None], tc.Tensor]:
    """Scale all gradients by one factor, so that their :func:`global_norm` is at most `clip_norm`.

    Where the norm is not finite, all of them become NaN, as in TensorFlow: the direction is lost. None stays None.

    Returns:
        The gradients, and their norm before the scaling.

    >>> import tape_core as tc
    >>> import tape_nn as nn
    >>> clipped, norm = nn.clip_by_global_norm([tc.asarray([3.0]), tc.asarray([4.0])], 2.5)
    >>> [g.tolist() for g in clipped], norm.item()
    ([[1.5], [2.0]], 5.0)
    """
    tensors = [None if g is None else _tensor(g) for g in gradients]
    total = norm(tc, [g for g in tensors if g is not None])
    by = clip_factor(tc, total, check_positive("clip_norm", clip_norm))
    return [None if g is None else _scale(g, by) for g in tensors], total


def norm(xp: Namespace, arrays: Sequence[Raw | tc.Tensor]) -> Raw | tc.Tensor:
    """Return the norm of arrays together: of Tensors if `xp` is `tape_core`, of raw arrays if it is a backend's."""
    if not arrays:
        raise ValueError("the norm of no gradients: all are None, or there are none")
    total = None
    for g in arrays:
        wide = xp.abs(g) if xp.isdtype(g.dtype, "complex floating") else g
        if xp.finfo(wide.dtype).bits < 32:  # float16 overflows at 65504: the square of 256 is infinite
            wide = xp.astype(wide, xp.float32)
        part = xp.sum(wide * wide)
        total = part if total is None else total + part
    return xp.sqrt(total)


def clip_factor(xp: Namespace, norm: Raw | tc.Tensor, limit: float) -> Raw | tc.Tensor:
    """Return the factor that brings gradients of this norm to at most `limit`; NaN where the norm is not finite."""
    # min(1, limit / norm), written without a division by a norm of 0.
    clipped = limit / xp.maximum(norm, xp.full_like(norm, limit))
    return xp.where(xp.isfinite(norm), clipped, xp.full_like(norm, math.nan))


def check_positive(name: str, value: object) -> float:
    """Return a number above 0 as a float.

    Raises:
        TypeError: `value` is no real number.
        ValueError: it is not above 0.
    """
    found = real("", name, value)
    # Not `found <= 0`, which is False for NaN.
    if not found > 0:
        raise ValueError(f"{name} must be above 0; got {value}")
    return found


def _scale(g: tc.Tensor, by: tc.Tensor) -> tc.Tensor:
    # The norm of half-precision gradients is in float32 and would promote them.
    return g * (by if by.dtype is g.dtype else tc.astype(by, g.dtype))


def _tensor(gradient: Gradient) -> tc.Tensor:
    if isinstance(gradient, IndexedSlices):
        # As a whole: rows that are named twice add up before the norm is taken.
        return gradient.densify()
    return gradient if isinstance(gradient, tc.Tensor) else tc.asarray(gradient)
