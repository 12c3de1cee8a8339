"""cdist by PyTorch's kernel, which does not store the differences of all pairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tape_core.extend import fused, registry
from tape_core.typing import Namespace, Raw

from tape_torch.fallback import aten, declared_rule, default_kernel

_cdist_backward = aten("_cdist_backward")


def _has_kernel(x1: Raw, x2: Raw, p: float) -> bool:
    """Return whether PyTorch's kernel takes these arguments and is as exact as the op.

    For `p` above 2 its powers overflow or underflow; for infinity it loses NaN, and its gradient counts all of several
    equal maxima; for 0 it takes two infinities for different.
    """
    if not (isinstance(x1, torch.Tensor) and isinstance(x2, torch.Tensor) and x1.dtype is x2.dtype):
        return False
    if x1.dtype not in (torch.float32, torch.float64) or x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        return False
    if any(n != m and 1 not in (n, m) for n, m in zip(x1.shape[-3::-1], x2.shape[-3::-1], strict=False)):
        return False
    return type(p) in (int, float) and bool(0 < p <= 2)


def _cdist(x1: Raw, x2: Raw, *, p: float = 2.0) -> Any:
    if not _has_kernel(x1, x2, p):
        return default_kernel("cdist", x1, x2, p=p)
    # Not by matrix products, |x|² - 2xy + |y|²: the difference of close rows would lose half of its digits.
    return torch.cdist(x1, x2, p=float(p), compute_mode="donot_use_mm_for_euclid_dist")


def _backward(g: torch.Tensor, x1: Raw, x2: Raw, out: torch.Tensor, p: float) -> Any:
    # x1 may have been broadcast against more matrices of x2: the sum is over those.
    found = _cdist_backward(g.contiguous(), x1.contiguous(), x2.contiguous(), float(p), out.contiguous())
    return found.sum_to_size(x1.shape)


def _cdist_vjp(
    xp: Namespace, g: torch.Tensor, x1: Raw, x2: Raw, x1_watched: bool, x2_watched: bool, out: torch.Tensor, p: float
) -> tuple[Any, Any]:
    """Return the cotangents of both inputs."""
    if _has_kernel(x1, x2, p):
        # The distance is symmetric: the second cotangent is the first one of cdist(x2, x1), whose result is the
        # transpose.
        return (
            _backward(g, x1, x2, out, p) if x1_watched else None,
            _backward(g.mT, x2, x1, out.mT, p) if x2_watched else None,
        )
    common = registry["cdist"].parameters.common
    assert common is not None
    d = common(xp, g, x1, x2, out, p)
    return (
        declared_rule("cdist", "x1")(xp, g, x1, d) if x1_watched else None,
        declared_rule("cdist", "x2")(xp, g, x2, d) if x2_watched else None,
    )


KERNELS: dict[str, Callable[..., Any]] = {"cdist": _cdist}

RULES: dict[str, dict[str, Any]] = {
    "cdist": {
        "x1": fused(lambda xp, g, common: common[0], common=_cdist_vjp),
        "x2": fused(lambda xp, g, common: common[1], common=_cdist_vjp),
    },
}
