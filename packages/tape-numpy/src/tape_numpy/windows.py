"""Sliding windows as strided views, and the derivatives of max pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import as_strided
from tape_core.backends import (
    Ints,
    Layout,
    Padding,
    Windows,
    check_convolve,
    normal_axes,
    pool_windows,
    spatial_axes,
    windows,
)
from tape_core.typing import Axis, IndexKey, Kernel, Raw


def _sliding_windows(x: Raw, window: Ints, *, axis: Axis = None, stride: Ints = 1, dilation: Ints = 1) -> Raw:
    # A view with two axes for each windowed one: from window to window, and inside a window.
    axes = normal_axes(axis, x.ndim)
    seen = windows([x.shape[a] for a in axes], window, stride, "valid", dilation)
    shape, strides = list(x.shape), list(x.strides)
    for a, m, s in zip(axes, seen.counts, seen.stride, strict=True):
        shape[a] = m
        strides[a] *= s
    inside = [x.strides[a] * d for a, d in zip(axes, seen.dilation, strict=True)]
    # Windows overlap in memory: who wrote to one would write to its neighbours.
    return as_strided(x, (*shape, *seen.window), (*strides, *inside), writeable=False)


def _convolve(a: Raw, v: Raw, mode: Literal["full", "same", "valid"] = "full") -> Raw:
    check_convolve(a, v, mode)
    return np.convolve(a, v, mode)


class _Pooling:
    """The windows of a max pooling of `x`.

    A window is small, and the image large: so the loops go over the places in a window, `k_h * k_w` of them, and each
    step handles that place in all windows at once.
    """

    def __init__(self, x: Raw, window: Ints, stride: Ints | None, padding: Padding, layout: Layout) -> None:
        self.x = x
        self.axes = spatial_axes(x, layout)
        self.seen: Windows = pool_windows(x, window, stride, padding, layout)
        shape = list(x.shape)
        for a, n in zip(self.axes, self.seen.padded, strict=True):
            shape[a] = n
        self.padded_shape = tuple(shape)
        self.inside = self._key(self.seen.inside())

    def _key(self, slices: tuple[slice, ...]) -> tuple[slice, ...]:
        return (*(slice(None),) * self.axes[0], *slices)  # the spatial axes are next to each other

    def pad(self, x: Raw, value: float = 0) -> Raw:
        """Return `x` with the padding added around it."""
        if self.padded_shape == x.shape:
            return x
        out = np.full(self.padded_shape, value, dtype=x.dtype)
        out[self.inside] = x
        return out

    def maxima(self) -> Iterator[tuple[IndexKey, Raw]]:
        """Yield for each place in a window its key, and a mask of the windows whose maximum it is.

        The first of several equal elements is the maximum, as in TensorFlow and PyTorch. A NaN is greater than all.
        """
        x = self.pad(self.x, -np.inf if self.x.dtype.kind == "f" else np.iinfo(self.x.dtype).min)
        keys = [self._key(slices) for _, slices in self.seen.offsets()]
        greatest = x[keys[0]]
        for key in keys[1:]:
            greatest = np.maximum(greatest, x[key])
        # np.maximum passes NaN on, but NaN equals nothing, so a window with one would have no maximum.
        has_nan = bool(np.isnan(greatest).any())
        unpadded: Raw = None  # a mask of what is no padding: with integers, padding may equal the maximum
        if x is not self.x:
            shape = [n if a in self.axes else 1 for a, n in enumerate(x.shape)]
            unpadded = np.zeros(shape, dtype=np.bool)
            unpadded[self.inside] = True
        taken: Raw = None  # the windows whose maximum was found at an earlier place
        for key in keys:
            hit = x[key] == greatest
            if has_nan:
                hit |= np.isnan(x[key])
            if unpadded is not None:
                hit &= unpadded[key]
            if taken is None:
                taken = hit.copy()
            else:
                np.greater(hit, taken, out=hit)  # hit and not taken
                taken |= hit
            yield key, hit


def _max_pool_vjp(
    cotangent: Raw,
    x: Raw,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Raw:
    pooling = _Pooling(x, window, stride, padding, layout)
    out = np.zeros(pooling.padded_shape, dtype=cotangent.dtype)
    finite = bool(np.isfinite(cotangent).all())
    for key, hit in pooling.maxima():
        # A product with the mask is faster than np.where, but infinity times 0 is NaN.
        out[key] += cotangent * hit if finite else np.where(hit, cotangent, 0)
    return out[pooling.inside]


def _max_pool_jvp(
    tangent: Raw,
    x: Raw,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Raw:
    pooling = _Pooling(x, window, stride, padding, layout)
    tangent = pooling.pad(tangent)
    out: Raw = None
    for key, hit in pooling.maxima():
        part = np.where(hit, tangent[key], 0)
        out = part if out is None else np.add(out, part, out=out)
    return out


KERNELS: dict[str, Kernel] = {
    "convolve": _convolve,
    "max_pool_jvp": _max_pool_jvp,
    "max_pool_vjp": _max_pool_vjp,
    "sliding_windows": _sliding_windows,
}
