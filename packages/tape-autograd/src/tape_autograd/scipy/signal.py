"""Convolution along chosen axes, with sums over others: `convolve`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import scipy.signal as _raw
import tape_core as tc
from tape_core.typing import ArrayLike

from tape_autograd.boxes import boxed, holds_box
from tape_autograd.numpy.composed import tensor

Axes = Sequence[Sequence[int]]


def convolve(
    A: ArrayLike, B: ArrayLike, axes: Axes | None = None, dot_axes: Axes = ((), ()), mode: str = "full"
) -> Any:
    """Convolve two arrays along axes; it can be differentiated with respect to both.

    >>> import tape_autograd.numpy as np
    >>> print(convolve(np.array([1.0, 2.0]), np.array([1.0, 1.0, 1.0])))
    [1. 3. 3. 2.]

    Args:
        A, B: real or complex arrays.
        axes: two lists: the axes of A, and those of B, along which they are convolved; by default all.
        dot_axes: two lists: the axes of A, and those of B, over whose products is summed.
        mode: `"full"`; `"valid"`, only where one lies inside the other; or `"same"`, the middle, as long as A.

    Returns:
        An array whose axes are the other ones of A, the other ones of B, and those of the convolution.

    Raises:
        ValueError: `mode` is none of these, or for `"valid"` neither array is the longer one along all axes.
    """
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"convolve: mode must be 'full', 'valid' or 'same', got {mode!r}")
    if not holds_box([A, B]):
        with tc.use_backend("numpy"):
            return boxed(_convolve(tensor(A), tensor(B), axes, dot_axes, mode))
    return boxed(_convolve(tensor(A), tensor(B), axes, dot_axes, mode))


def _convolve(a: tc.Tensor, b: tc.Tensor, axes: Axes | None, dot_axes: Axes, mode: str) -> tc.Tensor:
    conv = [[k % t.ndim for k in ks] for t, ks in zip((a, b), axes or [range(a.ndim), range(b.ndim)], strict=True)]
    dots = [[k % t.ndim for k in ks] for t, ks in zip((a, b), dot_axes, strict=True)]
    lengths = [(a.shape[i], b.shape[j]) for i, j in zip(*conv, strict=True)]
    others = [
        [k for k in range(t.ndim) if k not in c and k not in d] for t, c, d in zip((a, b), conv, dots, strict=True)
    ]
    a, b = (tc.permute_dims(t, (*o, *d, *c)) for t, o, d, c in zip((a, b), others, dots, conv, strict=True))
    n, m = len(others[0]), len(others[1])
    if mode == "valid" and any([x < y for x, y in lengths]):
        if any([x > y for x, y in lengths]):
            raise ValueError("convolve: one array must be larger than the other along all convolved dimensions")
        found = _slide(b, a, m, n, len(dots[0]))  # the other way round: its axes come in that order
        return tc.permute_dims(found, (*range(m, m + n), *range(m), *range(m + n, found.ndim)))
    if mode != "valid" and lengths:
        pads = [(y - 1, y - 1) if mode == "full" else (y - 1 - (y - 1) // 2, (y - 1) // 2) for _, y in lengths]
        a = tc.pad(a, [(0, 0)] * (a.ndim - len(pads)) + pads)
    return _slide(a, b, n, m, len(dots[0]))


def _slide(a: tc.Tensor, b: tc.Tensor, n: int, m: int, dots: int) -> tc.Tensor:
    """Slide b, reversed, over a: axes are first n, or m, that stay, then those of the sums, then the convolved ones."""
    conv = a.ndim - n - dots
    if conv:
        axis = tuple(range(a.ndim - conv, a.ndim))
        a = tc.sliding_windows(a, b.shape[b.ndim - conv :], axis=axis)
        b = tc.flip(b, axis=tuple(range(b.ndim - conv, b.ndim)))
    label = count()
    stay_a, stay_b, summed, places, inside = (
        [next(label) for _ in range(length)] for length in (n, m, dots, conv, conv)
    )
    spelled = [_letters(stay_a + summed + places + inside), _letters(stay_b + summed + inside)]
    return tc.einsum(f"{','.join(spelled)}->{_letters(stay_a + stay_b + places)}", a, b)


def _letters(numbers: list[int]) -> str:
    return "".join(["abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[k] for k in numbers])


def __getattr__(name: str) -> Any:
    return getattr(_raw, name)
