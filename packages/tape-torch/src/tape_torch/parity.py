"""Where PyTorch, or array-api-compat for it, differs from the standard, or from NumPy where that is silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import array_api_compat.torch as namespace
import torch

from tape_torch.promotion import binary, unary

compat: Any = namespace


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    # Array-api-compat knows integer corrections only.
    def kernel(x: Any, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Any:
        if not (x.is_floating_point() or x.is_complex()):
            x = x.to(torch.float64)
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


def _getitem(x: Any, key: Any) -> Any:
    """PyTorch has no negative steps: the axis is turned round first. And for PyTorch, bytes are masks."""
    parts = key if type(key) is tuple else (key,)
    if any([isinstance(k, torch.Tensor) and k.dtype is not torch.int64 and k.dtype is not torch.bool for k in parts]):
        key = parts = tuple([_index(k) for k in parts])
    if not any([type(k) is slice and k.step is not None and k.step < 0 for k in parts]):
        return x[key]
    taken = sum([_axes(k) for k in parts])
    turned, found, axis = [], [], 0
    for k in parts:
        if k is Ellipsis:
            axis += x.ndim - taken
        elif type(k) is slice and k.step is not None and k.step < 0:
            n = x.shape[axis]
            start, stop, step = k.indices(n)
            turned.append(axis)
            k = slice(n - 1 - start, n - 1 - stop, -step)
            axis += 1
        else:
            axis += _axes(k)
        found.append(k)
    return x.flip(turned)[tuple(found)]


def _index(k: Any) -> Any:
    # An empty list has made an array of floats.
    if not isinstance(k, torch.Tensor) or k.dtype is torch.bool:
        return k
    return k.to(torch.int64) if k.dtype is torch.uint8 or not k.numel() else k


def _axes(k: Any) -> int:
    """How many axes a part of a key is for."""
    if k is None or k is Ellipsis or isinstance(k, bool):
        return 0
    return k.ndim if isinstance(k, torch.Tensor) and k.dtype is torch.bool else 1


def _mean(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(torch.float64)
    return compat.mean(x, axis=axis, keepdims=keepdims)


FLOATING = """
    exp expm1 log log1p log2 log10 sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh
"""

KERNELS: dict[str, Callable[..., Any]] = {
    "add": binary(torch.add),
    "subtract": binary(torch.sub),
    "multiply": binary(torch.mul),
    "divide": binary(torch.true_divide, inexact=True),
    **{name: binary(getattr(compat, name)) for name in ("pow", "remainder", "floor_divide", "maximum", "minimum")},
    "getitem": _getitem,
    "imag": lambda x: x.imag if x.is_complex() else torch.zeros_like(x),
    "mean": _mean,
    "std": _spread(torch.std),
    "var": _spread(torch.var),
    "take_along_axis": _take_along_axis,
    "vector_norm": _vector_norm,
    **{name: unary(getattr(torch, name)) for name in FLOATING.split()},
}
