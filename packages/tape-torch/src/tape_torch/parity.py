"""Where PyTorch, or array-api-compat for it, differs from the standard, or from NumPy where that is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat.torch as compat
import torch


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    # Array-api-compat knows integer corrections only.
    def kernel(x: Any, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        if axis == ():
            return function(x[..., None], -1, correction=correction)
        return function(x, tuple(range(x.ndim)) if axis is None else axis, correction=correction, keepdim=keepdims)

    return kernel


def _take_along_axis(x: Any, indices: Any, *, axis: int = -1) -> Any:
    return torch.take_along_dim(x, indices.to(torch.int64), axis)


def _vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    if ord == 0 and x.is_complex():
        x = x.abs()  # array-api-compat counts in complex numbers, and warns of making real ones of them
    return compat.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=ord)


KERNELS: dict[str, Callable[..., Any]] = {
    "std": _spread(torch.std),
    "var": _spread(torch.var),
    "take_along_axis": _take_along_axis,
    "vector_norm": _vector_norm,
}
