"""NumPy's promotion, where the standard leaves it open: integers with floats, and Python's numbers with integers.

PyTorch makes of an integer array and a float one the float one's dtype, and of integers alone its default dtype. So
the same program would compute in another precision.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

_WIDE = {torch.bool: 0, torch.int8: 8, torch.uint8: 8, torch.int16: 16, torch.uint16: 16}


@lru_cache(maxsize=1024)
def promoted(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """The dtype of what two arrays of these dtypes make."""
    if _inexact(a) == _inexact(b):
        return torch.promote_types(a, b)
    whole, other = (b, a) if _inexact(a) else (a, b)
    return torch.promote_types(other, as_float(whole))


def as_float(whole: torch.dtype) -> torch.dtype:
    """The smallest floating dtype that has all numbers of an integer one (float64 for int64, which has not)."""
    bits = _WIDE.get(whole, 64)
    return torch.float16 if bits <= 8 else torch.float32 if bits <= 16 else torch.float64


def _inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def binary(function: Callable[..., Any], *, inexact: bool = False) -> Callable[..., Any]:
    """A function of two arrays, or of one and a number; the result of an `inexact` one is never an integer."""

    def kernel(x1: Any, x2: Any) -> Any:
        a: Any = getattr(x1, "dtype", None)
        b: Any = getattr(x2, "dtype", None)
        if a is not b or (inexact and not _inexact(a)):
            x1, x2 = _brought_together(x1, x2, a, b, inexact)
        return function(x1, x2)

    return kernel


def _brought_together(x1: Any, x2: Any, a: Any, b: Any, inexact: bool) -> tuple[Any, Any]:
    if a is None or b is None:
        dtype, number = (b, x1) if a is None else (a, x2)
        wanted = with_number(dtype, number)
    else:
        wanted = promoted(a, b)
    if inexact and not _inexact(wanted):
        wanted = torch.float64
    # A 0-d array counts as any other, where for PyTorch it does not; a number stays one.
    return tuple(x if not isinstance(x, torch.Tensor) or x.dtype is wanted else x.to(wanted) for x in (x1, x2))  # type: ignore[return-value]


def with_number(dtype: torch.dtype, number: Any) -> torch.dtype:
    """The dtype of what an array and a Python number make."""
    if isinstance(number, complex):
        if dtype.is_complex:
            return dtype
        return torch.complex64 if dtype in (torch.float16, torch.bfloat16, torch.float32) else torch.complex128
    if isinstance(number, float) and not _inexact(dtype):
        return torch.float64
    if dtype is torch.bool and not isinstance(number, bool):
        return torch.int64
    return dtype


def unary(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose results are floating, of an array of integers, too."""

    def kernel(x: Any, **parameters: Any) -> Any:
        return function(x if _inexact(x.dtype) else x.to(as_float(x.dtype)), **parameters)

    return kernel
