"""Windows that slide, as views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from tape_core.backends import check_convolve, normal_axes, windows


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


KERNELS: dict[str, Callable[..., Any]] = {
    "convolve": _convolve,
    "sliding_windows": _sliding_windows,
}
