"""Helpers of `autograd.numpy.numpy_vjps` that packages write their rules with, as `unbroadcast_f`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tape_core.typing import ArrayLike, Axis, DTypeLike, ShapeLike

import tape_autograd.numpy as np
from tape_autograd.boxes import axes_of

Function = Callable[..., Any]


def unbroadcast(x: ArrayLike, target: ArrayLike) -> Any:
    """Return a cotangent summed to the shape of a value that was broadcast; real if the value is.

    >>> print(unbroadcast(np.ones((2, 3)), np.ones(3)))
    [2. 2. 2.]
    """
    shape = np.shape(target)
    while np.ndim(x) > len(shape):
        x = np.sum(x, axis=0)
    axes = tuple([k for k, n in enumerate(shape) if n == 1 and np.shape(x)[k] != 1])
    if axes:
        x = np.sum(x, axis=axes, keepdims=True)
    return match_complex(target, x)


def unbroadcast_f(target: ArrayLike, f: Function) -> Function:
    """Return a VJP whose result is summed to the shape of `target`.

    >>> vjp = unbroadcast_f(1.0, lambda g: g * np.array([1.0, 2.0]))
    >>> print(vjp(2.0))
    6.0
    """
    return lambda g: unbroadcast(f(g), target)


def match_complex(target: ArrayLike, x: ArrayLike) -> Any:
    """Return the real part of a complex array where the target is real, and a complex array where it is complex."""
    if np.iscomplexobj(x) and not np.iscomplexobj(target):
        return np.real(x)
    return x + 0j if np.iscomplexobj(target) and not np.iscomplexobj(x) else x


def replace_zero(x: ArrayLike, val: ArrayLike) -> Any:
    """Return an array with another value in place of zeros."""
    return np.where(x, x, val)


def balanced_eq(x: ArrayLike, z: ArrayLike, y: ArrayLike) -> Any:
    """Return 1 where x is z, one half where y is, too, and 0 elsewhere."""
    return (x == z) / (1.0 + (x == y))


def repeat_to_match_shape(
    g: ArrayLike, shape: ShapeLike, dtype: DTypeLike, axis: Axis, keepdims: bool
) -> tuple[Any, int]:
    """Return the cotangent of a reduction in the shape of what was reduced, and how many elements each came from."""
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    if not lengths:
        return g, 1
    axes = axes_of(axis, len(lengths))
    kept = tuple([1 if k in axes else n for k, n in enumerate(lengths)])
    count = 1
    for k in axes:
        count *= lengths[k]
    return np.reshape(g, kept) + np.zeros(lengths, dtype=dtype), count
