"""Windows that slide: as views; and pooling, with a pass for each place in a window."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from tape_core.backends import Windows, check_convolve, normal_axes, pool_windows, spatial_axes, windows


def _sliding_windows(x: Any, window: Any, *, axis: Any = None, stride: Any = 1, dilation: Any = 1) -> Any:
    axes = normal_axes(axis, x.ndim)
    seen = windows([x.shape[a] for a in axes], window, stride, "valid", dilation)
    shape, strides = list(x.shape), list(x.strides)
    for a, m, s in zip(axes, seen.counts, seen.stride, strict=True):
        shape[a] = m
        strides[a] *= s
    inside = [x.strides[a] * d for a, d in zip(axes, seen.dilation, strict=True)]
    return as_strided(x, (*shape, *seen.window), (*strides, *inside), writeable=False)


def _convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    check_convolve(a, v, mode)
    return np.convolve(a, v, mode)


class _Pooling:
    """The windows of a pooling of x, and for each place in a window where the first of the greatest elements is."""

    def __init__(self, x: Any, window: Any, stride: Any, padding: Any, layout: Any) -> None:
        self.x = x
        self.axes = spatial_axes(x, layout)
        self.seen: Windows = pool_windows(x, window, stride, padding, layout)
        shape = list(x.shape)
        for a, n in zip(self.axes, self.seen.padded, strict=True):
            shape[a] = n
        self.padded_shape = tuple(shape)
        self.inside = self._key(self.seen.inside())

    def _key(self, slices: tuple[slice, ...]) -> tuple[Any, ...]:
        return (*(slice(None),) * self.axes[0], *slices)  # the axes are next to each other

    def pad(self, x: Any, value: Any = 0) -> Any:
        if self.padded_shape == x.shape:
            return x
        out = np.full(self.padded_shape, value, dtype=x.dtype)
        out[self.inside] = x
        return out

    def firsts(self) -> Iterator[tuple[Any, Any]]:
        """For each place in a window, in order, its key and whether it has the first of the greatest elements."""
        x = self.pad(self.x, -np.inf if self.x.dtype.kind == "f" else np.iinfo(self.x.dtype).min)
        keys = [self._key(slices) for _, slices in self.seen.offsets()]
        greatest = x[keys[0]]
        for key in keys[1:]:
            greatest = np.maximum(greatest, x[key])
        has_nan = bool(np.isnan(greatest).any())
        real: Any = None
        if x is not self.x:
            shape = [n if a in self.axes else 1 for a, n in enumerate(x.shape)]
            real = np.zeros(shape, dtype=np.bool)
            real[self.inside] = True
        taken: Any = None
        for key in keys:
            hit = x[key] == greatest
            if has_nan:
                hit |= np.isnan(x[key])
            if real is not None:
                hit &= real[key]
            if taken is None:
                taken = hit.copy()
            else:
                np.greater(hit, taken, out=hit)
                taken |= hit
            yield key, hit


def _max_pool_vjp(
    cotangent: Any, x: Any, window: Any, *, stride: Any = None, padding: Any = "valid", layout: Any = "channels_last"
) -> Any:
    pooling = _Pooling(x, window, stride, padding, layout)
    out = np.zeros(pooling.padded_shape, dtype=cotangent.dtype)
    finite = bool(np.isfinite(cotangent).all())
    for key, hit in pooling.firsts():
        # A product with a mask is faster than a choice, but infinity times 0 is NaN.
        out[key] += cotangent * hit if finite else np.where(hit, cotangent, 0)
    return out[pooling.inside]


def _max_pool_jvp(
    tangent: Any, x: Any, window: Any, *, stride: Any = None, padding: Any = "valid", layout: Any = "channels_last"
) -> Any:
    pooling = _Pooling(x, window, stride, padding, layout)
    tangent = pooling.pad(tangent)
    out: Any = None
    for key, hit in pooling.firsts():
        part = np.where(hit, tangent[key], 0)
        out = part if out is None else np.add(out, part, out=out)
    return out


KERNELS: dict[str, Callable[..., Any]] = {
    "convolve": _convolve,
    "max_pool_jvp": _max_pool_jvp,
    "max_pool_vjp": _max_pool_vjp,
    "sliding_windows": _sliding_windows,
}
