"""Convolution and its two gradients by PyTorch's kernels.

PyTorch's shapes have the channels first. A view with the axes moved there has the memory format `channels_last`, for
which PyTorch has kernels of its own, so nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tape_core.backends import Ints, Layout, Padding, Windows, check_conv, spatial_axes, transposed_windows, windows
from tape_core.extend import fused
from tape_core.typing import Namespace
from torch.nn import functional

from tape_torch.fallback import aten, declared_rule, default_kernel

_convolution_backward = aten("convolution_backward")


def channels_first(x: torch.Tensor, layout: str) -> Any:
    """Return a view with the channels first."""
    return x if layout == "channels_first" else x.movedim(-1, 1)


def from_channels_first(x: torch.Tensor, layout: str) -> Any:
    """Undo `channels_first`."""
    return x if layout == "channels_first" else x.movedim(1, -1)


def _as_pytorch_weights(w: torch.Tensor, layout: str) -> Any:
    """Return a view of the shape (out, in / groups, *kernel)."""
    return w if layout == "channels_first" else w.movedim((-1, -2), (0, 1))


def _from_pytorch_weights(w: torch.Tensor, layout: str) -> Any:
    return w if layout == "channels_first" else w.movedim((0, 1), (-1, -2))


def _has_kernel(x: torch.Tensor, w: torch.Tensor) -> bool:
    """Return whether PyTorch convolves these: they have one real floating dtype, and are not empty."""
    return bool(x.is_floating_point() and w.dtype is x.dtype and x.numel() and w.numel())


def padding_of(seen: Windows) -> tuple[list[int], list[int]]:
    """Split paddings into what PyTorch's kernels add at both ends, and the rest at one end.

    Returns:
        The padding per axis, and the argument of `torch.nn.functional.pad` for the rest: the last axis first; empty if
        there is none.
    """
    # PyTorch's kernels pad both ends alike, so "same" padding of an odd total needs a pad of its own.
    both = [min(pair) for pair in seen.pads]
    rest: list[int] = []
    for (lo, hi), p in zip(reversed(seen.pads), reversed(both), strict=True):
        rest += [lo - p, hi - p]
    return both, rest if any(rest) else []


def _conv(
    x: torch.Tensor,
    w: torch.Tensor,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Any:
    if not _has_kernel(x, w):
        return default_kernel(
            "conv", x, w, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout
        )
    check_conv(x, w, groups, layout)
    x, w = channels_first(x, layout), _as_pytorch_weights(w, layout)
    seen = windows(x.shape[2:], tuple(w.shape[2:]), stride, padding, dilation, name="a kernel")
    both, rest = padding_of(seen)
    if rest:
        x = functional.pad(x, rest)
    zeros = [0] * len(both)
    return from_channels_first(
        torch.convolution(x, w, None, seen.stride, both, seen.dilation, False, zeros, groups), layout
    )


def _conv_vjp(
    xp: Namespace,
    g: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    x_watched: bool,
    w_watched: bool,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    groups: int,
    layout: Layout,
) -> tuple[Any, Any]:
    """Return the cotangents of both inputs, by one call of PyTorch's kernel."""
    if not (_has_kernel(x, w) and g.dtype is x.dtype):
        given = (stride, padding, dilation, groups, layout)
        return (
            declared_rule("conv", "x")(xp, g, w, x, *given) if x_watched else None,
            declared_rule("conv", "w")(xp, g, x, w, *given) if w_watched else None,
        )
    x, w, g = channels_first(x, layout), _as_pytorch_weights(w, layout), channels_first(g, layout)
    seen = windows(x.shape[2:], tuple(w.shape[2:]), stride, padding, dilation)
    both, rest = padding_of(seen)
    d_x, d_w = _backward(g, functional.pad(x, rest) if rest else x, w, seen, both, groups, (x_watched, w_watched))
    if rest and x_watched:
        # A negative width cuts off.
        d_x = functional.pad(d_x, [-r for r in rest])
    return (
        from_channels_first(d_x, layout) if x_watched else None,
        _from_pytorch_weights(d_w, layout) if w_watched else None,
    )


def _backward(
    g: torch.Tensor,
    x: torch.Tensor,
    w: torch.Tensor,
    seen: Windows,
    padding: list[int],
    groups: int,
    watched: tuple[bool, bool],
) -> tuple[Any, Any]:
    # PyTorch's names for the arguments: bias_sizes None, transposed False, output_padding; and the mask of the results
    # that are wanted, without the one for a bias.
    d_x, d_w, _ = _convolution_backward(
        g, x, w, None, seen.stride, padding, seen.dilation, False, [0] * len(padding), groups, [*watched, False]
    )
    return d_x, d_w


def _conv_transpose(
    x: torch.Tensor,
    w: torch.Tensor,
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    output_padding: Ints = 0,
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Any:
    if not _has_kernel(x, w):
        return default_kernel(
            "conv_transpose",
            x,
            w,
            stride=stride,
            padding=padding,
            output_padding=output_padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
        )
    check_conv(x, w, groups, layout, transposed=True)
    x, w = channels_first(x, layout), _as_pytorch_weights(w, layout)
    seen = transposed_windows(
        x.shape[2:], tuple(w.shape[2:]), stride, padding, dilation, output_padding, name="a kernel"
    )
    # Computed as the gradient of a convolution, which is faster than PyTorch's own transposed convolution. That kernel
    # wants the convolution's input, but only looks at its shape and layout.
    both, rest = padding_of(seen)
    # The result is computed with padding that is equal at both ends, and the rest is cut off afterwards.
    sizes = [n + lo + hi - 2 * p for n, (lo, hi), p in zip(seen.sizes, seen.pads, both, strict=True)]
    like = torch.empty(
        (x.shape[0], w.shape[1] * groups, *sizes), dtype=x.dtype, device=x.device, memory_format=_memory_format(x)
    )
    whole, _ = _backward(x, like, w, seen, both, groups, (True, False))
    return from_channels_first(functional.pad(whole, [-r for r in rest]) if rest else whole, layout)


def _memory_format(x: torch.Tensor) -> Any:
    """Return the memory format of a result laid out like `x`."""
    if x.ndim == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous():
        return torch.channels_last
    return torch.contiguous_format


def _conv_weight_vjp(
    x: torch.Tensor,
    cotangent: torch.Tensor,
    size: tuple[int, ...],
    *,
    stride: Ints = 1,
    padding: Padding = "valid",
    dilation: Ints = 1,
    groups: int = 1,
    layout: Layout = "channels_last",
) -> Any:
    if not _has_kernel(x, cotangent):
        return default_kernel(
            "conv_weight_vjp",
            x,
            cotangent,
            size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            layout=layout,
        )
    spatial_axes(x, layout)
    x, g = channels_first(x, layout), channels_first(cotangent, layout)
    seen = windows(x.shape[2:], tuple(size), stride, padding, dilation, name="a kernel")
    both, rest = padding_of(seen)
    # The cotangent of the weights does not depend on them: the kernel looks at their shape only.
    like = torch.empty((g.shape[1], x.shape[1] // groups, *size), dtype=x.dtype, device=x.device)
    _, d_w = _backward(g, functional.pad(x, rest) if rest else x, like, seen, both, groups, (False, True))
    return _from_pytorch_weights(d_w, layout)


KERNELS: dict[str, Callable[..., Any]] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_weight_vjp": _conv_weight_vjp,
}

RULES: dict[str, dict[str, Any]] = {
    "conv": {
        "x": fused(lambda xp, g, common: common[0], common=_conv_vjp),
        "w": fused(lambda xp, g, common: common[1], common=_conv_vjp),
    },
}
