"""Attention by PyTorch's fused kernels, which never store the matrix of weights; PyTorch chooses the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from tape_core.extend import fused
from tape_core.typing import Namespace, Residuals
from torch.nn import functional

from tape_torch.divided import is_divided
from tape_torch.fallback import declared_rule, default_kernel

_attention: Any = functional.scaled_dot_product_attention


def _has_fused_kernel(arrays: Sequence[Any]) -> bool:
    """Return whether a fused kernel takes query, key and value: of one floating dtype, without a mask."""
    if not all(isinstance(x, torch.Tensor) and x.ndim >= 2 for x in arrays[:3]):
        return False
    query, key, value = arrays[:3]
    lead = query.shape[:-2]
    return bool(
        query.is_floating_point()
        and key.dtype is query.dtype
        and value.dtype is query.dtype
        and key.shape[:-2] == lead
        and value.shape[:-2] == lead
        and query.shape[-1] == key.shape[-1] == value.shape[-1]
        and key.shape[-2] == value.shape[-2]
        and query.numel()
        and key.numel()
        # With a mask, a query may attend to no key; PyTorch's kernels differ in what such a query gets.
        and len(arrays) == 3
        # PyTorch cannot divide the derivative of its kernel for the CPU among processes.
        and not (query.device.type == "cpu" and any(map(is_divided, arrays)))
    )


def _as_4d(x: torch.Tensor) -> Any:
    """Return a view of shape (batch, heads, queries, features)."""
    if x.ndim > 4:
        return x.flatten(0, -4)
    return x[(None,) * (4 - x.ndim)]


def _attend_with_residuals(arrays: Sequence[Any], *, is_causal: bool = False, scale: float | None = None) -> Any:
    """Return the result and the residuals: PyTorch's autograd graph, or those of the default kernel."""
    if not _has_fused_kernel(arrays):
        return default_kernel("attend_with_residuals", arrays, is_causal=is_causal, scale=scale)
    # The kernel's backward pass needs random state and logsumexp, in a layout that each kernel chooses for itself. So
    # torch.autograd keeps them: the graph of this one call is the residual.
    leaves = [_as_4d(x).detach().requires_grad_() for x in arrays[:3]]
    with torch.enable_grad():
        out = _attention(*leaves, is_causal=is_causal, scale=scale)
    if "ScaledDotProduct" not in type(out.grad_fn).__name__:
        # PyTorch composed it of matrix products: its graph keeps the weights, and Tape's own kernel is no worse.
        return default_kernel("attend_with_residuals", arrays, is_causal=is_causal, scale=scale)
    return out.detach().reshape(arrays[0].shape), (leaves, out)


def _attend(arrays: Sequence[Any], *, is_causal: bool = False, scale: float | None = None) -> Any:
    if not _has_fused_kernel(arrays):
        return default_kernel("attend", arrays, is_causal=is_causal, scale=scale)
    query = arrays[0]
    out = _attention(*map(_as_4d, arrays[:3]), is_causal=is_causal, scale=scale)
    return out.reshape(query.shape)


def _attend_rule(
    xp: Namespace,
    g: torch.Tensor,
    arrays: Sequence[torch.Tensor],
    arrays_watched: Sequence[bool],
    out: torch.Tensor,
    residuals: Residuals,
    is_causal: bool,
    scale: float | None,
) -> Any:
    if len(residuals) != 2:
        return declared_rule("attend", "arrays")(xp, g, arrays, out, residuals, is_causal, scale)
    leaves, attached = residuals
    wanted = [leaf for leaf, watched in zip(leaves, arrays_watched, strict=True) if watched]
    # The graph is kept, since a persistent tape may be asked again; it is freed with the tape's record.
    found = iter(torch.autograd.grad(attached, wanted, g.reshape(attached.shape), retain_graph=True))
    return [
        next(found).reshape(x.shape) if watched else None for x, watched in zip(arrays, arrays_watched, strict=True)
    ]


KERNELS: dict[str, Callable[..., Any]] = {"attend": _attend, "attend_with_residuals": _attend_with_residuals}

RULES: dict[str, dict[str, Any]] = {"attend": {"arrays": fused(_attend_rule)}}
