"""Special functions of PyTorch's that are as accurate as the ops' default kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tape_core.backends import line_axis

from tape_torch.fallback import default_kernel

# Where PyTorch is wrong at infinities, they are put right here.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "digamma": torch.special.digamma,
    "entr": torch.special.entr,
    "erf": torch.special.erf,
    "erfc": torch.special.erfc,
    "erfcx": torch.special.erfcx,
    "erfinv": torch.special.erfinv,
    "gammaln": lambda x: torch.where(x == -math.inf, x, torch.special.gammaln(x)),
    # torch.special.i0 and i1 of infinity are NaN.
    "i0": lambda x: torch.where(torch.isinf(x), math.inf, torch.special.i0(x)),
    "i0e": torch.special.i0e,
    "i1": lambda x: torch.where(torch.isinf(x), x, torch.special.i1(x)),
    "i1e": torch.special.i1e,
    "log_ndtr": torch.special.log_ndtr,
    "ndtri": torch.special.ndtri,
}

_FLOATS = frozenset({torch.float32, torch.float64})


def _logcumsumexp(x: torch.Tensor, *, axis: int | None = None, include_initial: bool = False) -> Any:
    axis = line_axis(axis, x.ndim)
    out = torch.logcumsumexp(x, axis)
    if include_initial:
        shape = list(x.shape)
        shape[axis] = 1
        out = torch.cat([out.new_full(shape, -math.inf), out], axis)
    return out


def _only_floats(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that is `function` for float32 and float64, and the default kernel for other dtypes."""

    def kernel(x: torch.Tensor, **kwargs: Any) -> Any:
        return function(x, **kwargs) if x.dtype in _FLOATS else default_kernel(name, x, **kwargs)

    return kernel


KERNELS: dict[str, Callable[..., Any]] = {
    name: _only_floats(name, function) for name, function in (*_FUNCTIONS.items(), ("logcumsumexp", _logcumsumexp))
}
