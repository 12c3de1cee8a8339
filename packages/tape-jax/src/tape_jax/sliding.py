"""Sliding windows and their sums by slices and paddings, which XLA fuses with what is around them.

The default kernels gather and scatter, which XLA on the CPU does element by element.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from tape_core.backends import Axes, Ints, Windows, normal_axes, windows

from tape_jax.thresholds import MAX_SLICES_OF_WINDOWS


def _few(geometry: Windows) -> bool:
    """Return whether each axis takes few slices: one for each place in a window, or for each window."""
    return all(
        [
            (s == k and d == 1) or min(m, k) <= MAX_SLICES_OF_WINDOWS
            for m, k, s, d in zip(geometry.counts, geometry.window, geometry.stride, geometry.dilation, strict=True)
        ]
    )


@partial(jax.jit, static_argnums=(1, 2))
def _windows(x: jax.Array, axes: tuple[int, ...], geometry: Windows) -> Any:
    # From the last axis to the first, so that those before it keep their numbers.
    for a, j in sorted(zip(axes, range(len(axes)), strict=True), reverse=True):
        m, k, s, d = geometry.counts[j], geometry.window[j], geometry.stride[j], geometry.dilation[j]
        if s == k and d == 1:  # they lie side by side
            x = jax.lax.slice_in_dim(x, 0, m * k, axis=a).reshape((*x.shape[:a], m, k, *x.shape[a + 1 :]))
        elif k <= m:
            places = [jax.lax.slice_in_dim(x, i * d, i * d + (m - 1) * s + 1, s, axis=a) for i in range(k)]
            x = jnp.stack(places, axis=a + 1)
        else:
            each = [jax.lax.slice_in_dim(x, i * s, i * s + (k - 1) * d + 1, d, axis=a) for i in range(m)]
            x = jnp.stack(each, axis=a)
    # Each windowed axis is now (number of the window, place in it); the places go to the end, in the order of `axes`.
    ndim = x.ndim - len(axes)
    outer = [a + sum([other < a for other in axes]) for a in range(ndim)]
    return jnp.transpose(x, (*outer, *[outer[a] + 1 for a in axes]))


def _padded(part: jax.Array, low: int = 0, step: int = 1, *, axis: int, length: int) -> jax.Array:
    """Return an array of zeros with elements of a part from a place on, at distances of a step."""
    high = length - low - (part.shape[axis] - 1) * step - 1
    config = [(low, high, step - 1) if a == axis else (0, 0, 0) for a in range(part.ndim)]
    return jax.lax.pad(part, jnp.zeros((), part.dtype), config)


@partial(jax.jit, static_argnums=(1, 2))
def _sums(parts: jax.Array, axes: tuple[int, ...], geometry: Windows) -> Any:
    for j in reversed(range(len(axes))):  # the last axis has the places in the windows of this one
        a, n = axes[j], geometry.sizes[j]
        m, k, s, d = geometry.counts[j], geometry.window[j], geometry.stride[j], geometry.dilation[j]
        padded = partial(_padded, axis=a, length=n)
        if s == k and d == 1:
            side_by_side = jnp.moveaxis(parts, -1, a + 1)
            side_by_side = side_by_side.reshape((*parts.shape[:a], m * k, *parts.shape[a + 1 : -1]))
            parts = padded(side_by_side)
            continue
        if k <= m:
            pieces = [padded(parts[..., i], i * d, s) for i in range(k)]
        else:
            each = jnp.moveaxis(parts, -1, a + 1)
            pieces = [padded(jax.lax.index_in_dim(each, i, a, False), i * s, d) for i in range(m)]
        parts = functools.reduce(operator.add, pieces)
    return parts


def sliding_kernels(jitted: Callable[[str], Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """Return the kernels by op name; `jitted` gives the default kernel, which takes many long windows, and refuses."""

    def sliding_windows(x: jax.Array, window: Ints, *, axis: Axes = None, stride: Ints = 1, dilation: Ints = 1) -> Any:
        axes = normal_axes(axis, x.ndim)
        geometry = windows([x.shape[a] for a in axes], window, stride, "valid", dilation)
        if not _few(geometry):
            return jitted("sliding_windows")(x, window, axis=axis, stride=stride, dilation=dilation)
        return _windows(x, axes, geometry)

    def add_windows(
        parts: jax.Array, shape: tuple[int, ...], *, axis: Axes = None, stride: Ints = 1, dilation: Ints = 1
    ) -> Any:
        axes = normal_axes(axis, len(shape))
        if parts.ndim == len(shape) + len(axes):
            geometry = windows([shape[a] for a in axes], parts.shape[len(shape) :], stride, "valid", dilation)
            expected = list(shape)
            for a, m in zip(axes, geometry.counts, strict=True):
                expected[a] = m
            if parts.shape[: len(shape)] == tuple(expected) and _few(geometry):
                return _sums(parts, axes, geometry)
        return jitted("add_windows")(parts, shape, axis=axis, stride=stride, dilation=dilation)

    return {"add_windows": add_windows, "sliding_windows": sliding_windows}
