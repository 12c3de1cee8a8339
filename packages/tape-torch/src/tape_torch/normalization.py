"""Normalization by PyTorch's kernels for layer, batch and group norms, where the op's axes match one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from tape_core.extend import fused
from tape_core.typing import Namespace, Raw, Residuals

from tape_torch.divided import is_divided
from tape_torch.fallback import aten, declared_rule, default_kernel

_native_batch_norm_backward = aten("native_batch_norm_backward")
_native_group_norm_backward = aten("native_group_norm_backward")
_native_layer_norm_backward = aten("native_layer_norm_backward")


class _Layer(NamedTuple):
    """Normalization over the last axes; scale and offset have their shape."""

    shape: tuple[int, ...]

    def forward(
        self, x: torch.Tensor, scale: torch.Tensor | None, offset: torch.Tensor | None, epsilon: float
    ) -> tuple[Any, Any, Any, tuple[Any, ...]]:
        out, mean, r = torch.native_layer_norm(x, self.shape, scale, offset, epsilon)
        axes = tuple(range(x.ndim - len(self.shape), x.ndim))
        # For inputs of half precision, PyTorch's moments are of half precision on the CPU, and of single on CUDA.
        variance = _variance_of_reciprocal_root(r.to(_moment_dtype(r.dtype)), epsilon).squeeze(axes)
        return out, mean.squeeze(axes).to(x.dtype), variance.to(x.dtype), (mean, r)

    def backward(
        self,
        g: torch.Tensor,
        x: torch.Tensor,
        scale: torch.Tensor | None,
        offset: torch.Tensor | None,
        residuals: Residuals,
        watched: list[bool],
    ) -> Any:
        return _native_layer_norm_backward(g, x, self.shape, *residuals, scale, offset, watched)


class _Batch(NamedTuple):
    """Normalization over all axes but that of the channels."""

    axis: int
    epsilon: float

    def forward(
        self, x: torch.Tensor, scale: torch.Tensor | None, offset: torch.Tensor | None, epsilon: float
    ) -> tuple[Any, Any, Any, tuple[Any, ...]]:
        x = x.movedim(self.axis, 1)
        # Running averages with momentum 1 are the moments of this batch, and more accurate for small variances than
        # anything computed from `r`.
        running = torch.zeros(2, x.shape[1], dtype=_moment_dtype(x.dtype), device=x.device)
        out, mean, r = torch.native_batch_norm(
            x, _flatten(scale), _flatten(offset), running[0], running[1], True, 1.0, epsilon
        )
        n = x.numel() // x.shape[1]
        # PyTorch's running variance is the unbiased one, the op's is divided by n.
        variance = (running[1] * ((n - 1) / n)).to(x.dtype)
        return out.movedim(1, self.axis), running[0].to(x.dtype), variance, (mean, r)

    def backward(
        self,
        g: torch.Tensor,
        x: torch.Tensor,
        scale: torch.Tensor | None,
        offset: torch.Tensor | None,
        residuals: Residuals,
        watched: list[bool],
    ) -> Any:
        x, g = x.movedim(self.axis, 1), g.movedim(self.axis, 1)
        # With training=True the kernel takes the moments that it is given, and needs no running ones.
        d_x, d_scale, d_offset = _native_batch_norm_backward(
            g, x, _flatten(scale), None, None, *residuals, True, self.epsilon, watched
        )
        d_x = d_x.movedim(1, self.axis) if watched[0] else None
        return d_x, _reshape_like(d_scale, scale), _reshape_like(d_offset, offset)


class _Group(NamedTuple):
    """Normalization over all axes but the first two; scale and offset have a number for each channel."""

    sizes: tuple[int, int, int, int]  # examples, channels, their elements, groups

    def forward(
        self, x: torch.Tensor, scale: torch.Tensor | None, offset: torch.Tensor | None, epsilon: float
    ) -> tuple[Any, Any, Any, tuple[Any, ...]]:
        out, mean, r = torch.native_group_norm(x.contiguous(), _flatten(scale), _flatten(offset), *self.sizes, epsilon)
        return out, mean, _variance_of_reciprocal_root(r, epsilon), (mean, r)

    def backward(
        self,
        g: torch.Tensor,
        x: torch.Tensor,
        scale: torch.Tensor | None,
        offset: torch.Tensor | None,
        residuals: Residuals,
        watched: list[bool],
    ) -> Any:
        d_x, d_scale, d_offset = _native_group_norm_backward(
            g.contiguous(), x.contiguous(), *residuals, _flatten(scale), *self.sizes, watched
        )
        return d_x, _reshape_like(d_scale, scale), _reshape_like(d_offset, offset)


_PyTorchNorm = _Layer | _Batch | _Group


def _flatten(parameter: torch.Tensor | None) -> Any:
    return None if parameter is None else parameter.reshape(-1)


def _reshape_like(cotangent: torch.Tensor | None, parameter: torch.Tensor | None) -> Any:
    return cotangent if cotangent is None or parameter is None else cotangent.reshape(parameter.shape)


def _moment_dtype(dtype: torch.dtype) -> Any:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _variance_of_reciprocal_root(r: torch.Tensor, epsilon: float) -> Any:
    """Return the variance, given `r = 1 / sqrt(variance + epsilon)`; exact to the rounding of that sum."""
    return r.pow(-2).sub_(epsilon).clamp_(min=0)


def _matching_norm(
    x: torch.Tensor, scale: Raw, offset: Raw, axis: tuple[int, ...], epsilon: float
) -> _PyTorchNorm | None:
    """Return the kernel of PyTorch that computes this normalization; None if there is none."""
    parameters = [p for p in (scale, offset) if p is not None]
    tensors = all(isinstance(p, torch.Tensor) and p.dtype is x.dtype for p in parameters)
    if not (x.is_floating_point() and x.numel() and tensors):
        return None
    ndim, shape = x.ndim, tuple(x.shape)
    axes = tuple(sorted(a % ndim for a in axis))
    if epsilon <= 0:
        return None
    # In the order of their cost. A layer norm takes scale and offset of the shape of the normalized axes.
    last = ndim - len(axes)
    trailing = axes == tuple(range(last, ndim))
    if trailing and all(tuple(p.shape) == shape[last:] for p in parameters):
        return _Layer(shape[last:])
    if is_divided(x):  # PyTorch's moments of the others are those of a process's part
        return None
    if _moment_dtype(x.dtype) is not x.dtype:  # in half precision, PyTorch's moments may be of half precision, too
        return None

    def aligned(own: tuple[int, ...], channels: tuple[int, ...]) -> bool:
        padded = (1,) * (ndim - len(own)) + own
        return all(n == (shape[a] if a in channels else 1) for a, n in enumerate(padded))

    # A batch norm: one axis is left, the channels; a single element per channel has no unbiased variance.
    if ndim >= 2 and len(axes) == ndim - 1 and math.prod(shape[a] for a in axes) > 1:
        (channel,) = set(range(ndim)) - set(axes)
        if channel in (1, ndim - 1) and all(aligned(tuple(p.shape), (channel,)) for p in parameters):
            return _Batch(channel, epsilon)
    # A group norm: (examples, groups, ...) with a parameter for each group, or for each channel (axis 2) of a group.
    if trailing and last == 2 and ndim >= 3:
        n, groups = shape[:2]
        if all(aligned(tuple(p.shape), (1,)) for p in parameters):
            return _Group((n, groups, math.prod(shape[2:]), groups))
        if ndim > 3 and all(aligned(tuple(p.shape), (1, 2)) for p in parameters):
            return _Group((n, groups * shape[2], math.prod(shape[3:]), groups))
    return None


def _normalize_with_residuals(
    x: torch.Tensor,
    scale: torch.Tensor | None = None,
    offset: torch.Tensor | None = None,
    *,
    axis: tuple[int, ...],
    epsilon: float,
) -> tuple[tuple[Any, Any, Any], tuple[Any, ...]]:
    kind = _matching_norm(x, scale, offset, axis, epsilon)
    if kind is None:
        return default_kernel("normalize", x, scale, offset, axis=axis, epsilon=epsilon), ()
    out, mean, variance, residuals = kind.forward(x, scale, offset, epsilon)
    return (out, mean, variance), (kind, *residuals)


def _normalize_vjp(
    xp: Namespace,
    g: Sequence[torch.Tensor | None],
    x: torch.Tensor,
    scale: torch.Tensor | None,
    offset: torch.Tensor | None,
    x_watched: bool,
    scale_watched: bool,
    offset_watched: bool,
    residuals: Residuals,
    axis: tuple[int, ...],
    epsilon: float,
) -> Any:
    """Return the cotangents of all three inputs, in one pass over the elements."""
    if residuals and g[0] is not None and g[1] is None and g[2] is None:
        kind, *moments = residuals
        return kind.backward(g[0], x, scale, offset, moments, [x_watched, scale_watched, offset_watched])
    return (
        declared_rule("normalize", "x")(xp, g, x, scale, x, (), axis, epsilon) if x_watched else None,
        declared_rule("normalize", "scale")(xp, g, x, x, scale, (), axis, epsilon) if scale_watched else None,
        declared_rule("normalize", "offset")(xp, g, offset) if offset_watched else None,
    )


KERNELS: dict[str, Callable[..., Any]] = {
    "normalize": lambda x, scale=None, offset=None, *, axis, epsilon: _normalize_with_residuals(
        x, scale, offset, axis=axis, epsilon=epsilon
    )[0],
    "normalize_with_residuals": _normalize_with_residuals,
}

RULES: dict[str, dict[str, Any]] = {
    "normalize": {
        "x": fused(lambda xp, g, common: common[0], common=_normalize_vjp),
        "scale": fused(lambda xp, g, common: common[1], common=_normalize_vjp),
        "offset": fused(lambda xp, g, common: common[2], common=_normalize_vjp),
    },
}
