"""Dtype promotion by Tape's rule, which is `tape_core.result_type`, in tables of PyTorch's dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from tape_core.support import dtypes

Operand: TypeAlias = Any
"""A tensor or a Python number. At least one operand of a kernel is a tensor, which no union can say."""

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""The unsigned dtypes that PyTorch can hold but hardly compute with -> the signed dtype of the same size."""

_RAW = {dtype: getattr(torch, name) for name, dtype in dtypes.DTYPES.items()}

PROMOTED: dict[tuple[torch.dtype, torch.dtype], torch.dtype] = {}
"""Two dtypes -> that of an operation on them. PyTorch's own promotion would treat a 0-d tensor as a scalar."""

FLOATING: dict[torch.dtype, torch.dtype] = {}
"""A dtype -> that of a function of real numbers such as `exp`: of integers the default dtype."""

WITH_NUMBER: dict[tuple[torch.dtype, type], torch.dtype] = {}
"""A dtype and a type of Python numbers -> the dtype of an operation on an array and a number."""

_OF_NUMBER: dict[type, torch.dtype] = {}


def _fill_tables() -> None:
    """Fill the tables; some entries are the default dtype, so this is done whenever it was set."""
    default = _RAW[dtypes.get_default_dtype()]
    for a, raw in _RAW.items():
        FLOATING[raw] = raw if a.inexact else default
        PROMOTED.update({(raw, other): _RAW[dtypes.promote(a, b)] for b, other in _RAW.items()})
        for kind in (bool, int, float, complex):
            WITH_NUMBER[raw, kind] = _RAW[dtypes.common_dtype([a], [kind])]
            _OF_NUMBER[kind] = _RAW[dtypes.default_for(kind)]


dtypes.DEFAULT_IS_SET.append(_fill_tables)
_fill_tables()


def with_scalar(dtype: torch.dtype, scalar: object) -> torch.dtype:
    """Return the dtype of an operation on an array and a Python scalar: the array's, unless of a lower kind."""
    try:
        return WITH_NUMBER[dtype, type(scalar)]
    except KeyError:
        kind = type(scalar).__name__
        raise TypeError(f"an array or a Python number is needed, got {scalar!r} of type {kind!r}") from None


def common(values: Sequence[Operand]) -> torch.dtype:
    """Return the dtype of an operation on arrays and Python scalars."""
    found: Any = None
    for x in values:
        if isinstance(x, torch.Tensor):
            found = x.dtype if found is None else PROMOTED[found, x.dtype]
    scalars = [x for x in values if not isinstance(x, torch.Tensor)]
    if found is None:
        return next(_OF_NUMBER[kind] for kind in (complex, float, int, bool) if kind in set(map(type, scalars)))
    for x in scalars:
        found = with_scalar(found, x)
    return found  # type: ignore[no-any-return]


def cast(x: Operand, dtype: torch.dtype, beside: torch.Tensor) -> torch.Tensor:
    """Convert an array to a dtype, or a Python scalar to a 0-d array on the device of `beside`."""
    if isinstance(x, torch.Tensor):
        return x if x.dtype is dtype else x.to(dtype)
    return torch.full((), x, dtype=dtype, device=beside.device)


def promote(*values: Any) -> list[torch.Tensor]:
    """Convert arrays and Python scalars to arrays of their common dtype."""
    beside = next(x for x in values if isinstance(x, torch.Tensor))
    dtype = common(values)
    return [cast(x, dtype, beside) for x in values]


# PyTorch neither adds, multiplies nor compares unsigned integers of more than 8 bits. Signed ones stand in for them:
# sums, products and bits are the same modulo 2**n, and so is the order once the first bit is flipped.


def bits(x: torch.Tensor) -> torch.Tensor:
    """Reinterpret unsigned integers as signed ones."""
    return x.view(SIGNED[x.dtype])


def unbits(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Undo `bits`."""
    return x.view(dtype)


def ordered(x: torch.Tensor) -> torch.Tensor:
    """Map unsigned integers to signed ones of the same order, by flipping the first bit."""
    signed = x.view(SIGNED[x.dtype])
    return signed ^ torch.iinfo(signed.dtype).min


def unordered(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Undo `ordered`."""
    return (x ^ torch.iinfo(x.dtype).min).view(dtype)


def flip(x: torch.Tensor, axes: list[int] | tuple[int, ...]) -> torch.Tensor:
    """Reverse the order along axes, for any dtype."""
    return unbits(torch.flip(bits(x), axes), x.dtype) if x.dtype in SIGNED else torch.flip(x, axes)
