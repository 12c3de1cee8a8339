"""Pooling and sliding windows by PyTorch's kernels; the indices of maxima are kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tape_core.backends import Axes, Ints, Layout, Padding, Windows, normal_axes, pool_windows, windows
from tape_core.extend import fused
from tape_core.typing import Namespace, Raw, Residuals
from torch.nn import functional

from tape_torch.convolution import channels_first, from_channels_first, padding_of
from tape_torch.fallback import aten, complex_kernel, declared_rule, default_kernel
from tape_torch.thresholds import POOL_BY_ROW_MAX_WINDOW

# By the number of spatial axes.
_max_pool_backward = {n: aten(f"max_pool{n}d_with_indices_backward") for n in (2, 3)}
_avg_pool_backward = {n: aten(f"avg_pool{n}d_backward") for n in (2, 3)}


class _Pooling:
    """A pooling in PyTorch's terms: channels first, over 2 or 3 axes, with the same padding at both ends."""

    def __init__(self, x: torch.Tensor, seen: Windows, layout: Layout) -> None:
        self.layout = layout
        self.flat = len(seen.window) == 1  # computed over 2 axes, the first of length 1
        self.padding, self.rest = padding_of(seen)
        self.window, self.stride = list(seen.window), list(seen.stride)
        if self.flat:
            self.window, self.stride, self.padding = [1, *self.window], [1, *self.stride], [0, *self.padding]
        self.dilation = [1] * len(self.window)

    def enter(self, x: torch.Tensor, value: float | None = None) -> Any:
        """Return `x` in PyTorch's layout; with a `value`, padded with it where one end has more padding."""
        x = channels_first(x, self.layout)
        x = x.unsqueeze(2) if self.flat else x
        return functional.pad(x, self.rest, value=value) if self.rest and value is not None else x

    def leave(self, x: torch.Tensor) -> Any:
        """Undo the change of layout by `enter`, but not its padding."""
        return from_channels_first(x.squeeze(2) if self.flat else x, self.layout)

    def cut(self, x: torch.Tensor) -> Any:
        """Remove the padding that `enter` has added."""
        return functional.pad(x, [-r for r in self.rest]) if self.rest else x

    def greatest(self, x: torch.Tensor) -> tuple[Any, Any]:
        """Return the maxima, and their flat indices into each channel of what `enter` returns."""
        given = self.enter(x, -torch.inf)
        if given.device.type == "cpu" and (found := self._by_row(given)) is not None:
            return found
        pool = functional.max_pool2d if len(self.window) == 2 else functional.max_pool3d
        out, places = pool(given, self.window, self.stride, self.padding, self.dilation, False, True)
        return out, places

    def _by_row(self, x: torch.Tensor) -> tuple[Any, Any] | None:
        """Compute `greatest` along rows, then down columns, on the CPU: in half the time of PyTorch's kernel.

        Returns:
            None if the window is too large for that to pay, or there is a NaN, with which comparisons go wrong.
        """
        if len(self.window) != 2 or any(self.padding) or not x.is_contiguous():
            return None
        # Distances from a window's start are counted in int16, which is faster, so they must fit into it.
        (height, width), (down, right), length = self.window, self.stride, x.shape[3]
        if width == 1 or max(height, width) > POOL_BY_ROW_MAX_WINDOW or height * length > _INT16_MAX:
            return None
        out, places = _greatest_along(3, x, None, width, right, 1)
        out, places = _greatest_along(2, out, places, height, down, length)
        total = out.sum()
        if total != total:  # NaN
            return None
        rows, columns = torch.arange(out.shape[2]) * (down * length), torch.arange(out.shape[3]) * right
        return out, places.to(torch.int64).add_(rows[:, None] + columns)

    def spread(self, g: torch.Tensor, x: torch.Tensor, places: torch.Tensor) -> Any:
        """Return the cotangent of `x`, given that of the maxima."""
        d = _max_pool_backward[len(self.window)](
            self.enter(g),
            self.enter(x, -torch.inf),
            self.window,
            self.stride,
            self.padding,
            self.dilation,
            False,
            places,
        )
        return self.leave(self.cut(d))


_INT16_MAX = torch.iinfo(torch.int16).max


def _greatest_along(
    axis: int, x: torch.Tensor, places: torch.Tensor | None, k: int, stride: int, step: int
) -> tuple[Any, Any]:
    """Return the maxima of windows along one axis, the first of equals, and their distances from the windows' starts.

    Args:
        places: the distances for the elements of `x`, from an axis done before; None for the first axis.
        step: the distance between neighbours along the axis.
    """
    reach = x.shape[axis] - k + 1
    out: Any = None
    found: Any = None
    for i in range(k):
        key = (*[slice(None)] * axis, slice(i, i + reach, stride))
        part = x[key]
        there = i * step if places is None else places[key] + i * step
        if out is None:
            out, found = part, there
        else:
            # found = where(part > out, there, found), as arithmetic in int16.
            greater = (part > out).to(torch.int16)
            out = torch.maximum(out, part)
            found = found + greater.mul_(there - found)
    return out, found


def _max_pooling(
    x: torch.Tensor, window: Ints, stride: Ints | None, padding: Padding, layout: Layout
) -> _Pooling | None:
    """Return the pooling in PyTorch's terms; None if it has no such: it pads at most half a window, both ends alike.

    More padding at the end is added here, as -inf: no window begins there, so the first of its maxima is in `x`.
    """
    if not x.is_floating_point():
        return None
    seen = pool_windows(x, window, stride, padding, layout)
    if not x.numel() or any(lo > hi or 2 * lo > k for (lo, hi), k in zip(seen.pads, seen.window, strict=True)):
        return None
    return _Pooling(x, seen, layout)


def _max_pool_with_residuals(
    x: torch.Tensor,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> tuple[Any, tuple[Any, ...]]:
    pooling = _max_pooling(x, window, stride, padding, layout)
    if pooling is None:
        return default_kernel("max_pool", x, window, stride=stride, padding=padding, layout=layout), ()
    out, places = pooling.greatest(x)
    return pooling.leave(out), (pooling, places)


def _max_pool_rule(
    xp: Namespace,
    g: torch.Tensor,
    x: torch.Tensor,
    residuals: Residuals,
    window: Ints,
    stride: Ints,
    padding: Padding,
    layout: Layout,
) -> Any:
    if residuals:
        return residuals[0].spread(g, x, residuals[1])
    return xp.max_pool_vjp(g, x, window, stride=stride, padding=padding, layout=layout)


def _max_pool_vjp(
    cotangent: torch.Tensor,
    x: torch.Tensor,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Any:
    if cotangent.is_complex():
        return complex_kernel("max_pool_vjp", cotangent, x, window)
    pooling = _max_pooling(x, window, stride, padding, layout)
    if pooling is None or cotangent.dtype is not x.dtype:
        return default_kernel("max_pool_vjp", cotangent, x, window, stride=stride, padding=padding, layout=layout)
    return pooling.spread(cotangent, x, pooling.greatest(x)[1])


def _max_pool_jvp(
    tangent: torch.Tensor,
    x: torch.Tensor,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    layout: Layout = "channels_last",
) -> Any:
    if tangent.is_complex():
        return complex_kernel("max_pool_jvp", tangent, x, window)
    pooling = _max_pooling(x, window, stride, padding, layout)
    if pooling is None:
        return default_kernel("max_pool_jvp", tangent, x, window, stride=stride, padding=padding, layout=layout)
    _, places = pooling.greatest(x)
    # The tangent of a maximum is that of the element that it is, which `places` numbers within a channel.
    found = pooling.enter(tangent, 0.0).flatten(2).gather(2, places.flatten(2)).reshape(places.shape)
    return pooling.leave(found)


def _avg_pooling(x: Raw, window: Ints, stride: Ints | None, padding: Padding, layout: Layout) -> _Pooling | None:
    """Return the pooling in PyTorch's terms; None if PyTorch has no such."""
    if x.dtype not in _FLOATS:
        return None
    seen = pool_windows(x, window, stride, padding, layout)
    if 0 in x.shape or any(lo != hi or 2 * lo > k for (lo, hi), k in zip(seen.pads, seen.window, strict=True)):
        return None
    return _Pooling(x, seen, layout)


_FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})


def _avg_pool(
    x: torch.Tensor,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    count_include_pad: bool = False,
    layout: Layout = "channels_last",
) -> Any:
    pooling = _avg_pooling(x, window, stride, padding, layout)
    if pooling is None:
        return default_kernel(
            "avg_pool",
            x,
            window,
            stride=stride,
            padding=padding,
            count_include_pad=count_include_pad,
            layout=layout,
        )
    pool: Any = functional.avg_pool2d if len(pooling.window) == 2 else functional.avg_pool3d
    given = pooling.enter(x)
    return pooling.leave(pool(given, pooling.window, pooling.stride, pooling.padding, False, count_include_pad))


def _avg_pool_rule(
    xp: Namespace,
    g: torch.Tensor,
    x_spec: Raw,
    window: Ints,
    stride: Ints,
    padding: Padding,
    count_include_pad: bool,
    layout: Layout,
) -> Any:
    pooling = _avg_pooling(x_spec, window, stride, padding, layout)
    if pooling is None or g.dtype is not x_spec.dtype:
        return declared_rule("avg_pool", "x")(xp, g, x_spec, window, stride, padding, count_include_pad, layout)
    # The kernel uses only the shape and the layout of x.
    like = pooling.enter(torch.empty(x_spec.shape, dtype=g.dtype, device=g.device))
    d = _avg_pool_backward[len(pooling.window)](
        pooling.enter(g), like, pooling.window, pooling.stride, pooling.padding, False, count_include_pad, None
    )
    return pooling.leave(d)


# -- windows


def _sliding_windows(
    x: torch.Tensor, window: Ints, *, axis: Axes | None = None, stride: Ints = 1, dilation: Ints = 1
) -> Any:
    axes = normal_axes(axis, x.ndim)
    seen = windows([x.shape[a] for a in axes], window, stride, "valid", dilation)
    shape, strides = list(x.shape), list(x.stride())
    for a, m, s in zip(axes, seen.counts, seen.stride, strict=True):
        shape[a] = m
        strides[a] *= s
    inside = [x.stride(a) * d for a, d in zip(axes, seen.dilation, strict=True)]
    # A view with two axes for each windowed one: from window to window, and inside a window. Nothing is copied.
    return x.as_strided((*shape, *seen.window), (*strides, *inside))


KERNELS: dict[str, Callable[..., Any]] = {
    "max_pool": lambda x, window, **parameters: _max_pool_with_residuals(x, window, **parameters)[0],
    "max_pool_with_residuals": _max_pool_with_residuals,
    "max_pool_vjp": _max_pool_vjp,
    "max_pool_jvp": _max_pool_jvp,
    "avg_pool": _avg_pool,
    "sliding_windows": _sliding_windows,
}

RULES: dict[str, dict[str, Any]] = {
    "max_pool": {"x": fused(_max_pool_rule)},
    "avg_pool": {"x": fused(_avg_pool_rule)},
}
