"""Dtype promotion: the standard's, and NumPy's where the standard leaves it open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch

Operand: TypeAlias = Any
"""A tensor or a Python number. At least one operand of a kernel is a tensor, which no union can say."""

SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
"""The unsigned dtypes that PyTorch can hold but hardly compute with -> the signed dtype of the same size."""

_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (torch.bool, *_UNSIGNED, *_INTEGERS, *_FLOATS, *_COMPLEX)


def _as_float(dtype: torch.dtype) -> torch.dtype:
    """Return the smallest floating dtype that NumPy casts an integer dtype to."""
    return {1: torch.float16, 2: torch.float32}.get(dtype.itemsize, torch.float64)


def _promote(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    # The standard has no promotion of bool with numbers; this is NumPy's and PyTorch's.
    if a is b or b is torch.bool:
        return a
    if a is torch.bool:
        return b
    if a in _COMPLEX or b in _COMPLEX:
        # float64, and integers that only float64 holds, need complex128.
        wide = any(d in (torch.float64, torch.complex128) or (d in _WHOLE and d.itemsize > 2) for d in (a, b))
        return torch.complex128 if wide else torch.complex64
    if a in _FLOATS or b in _FLOATS:
        # NumPy has no bfloat16: with integers it stays, as in PyTorch; with float16 it becomes float32.
        if torch.bfloat16 in (a, b) and (a in _WHOLE or b in _WHOLE):
            return torch.bfloat16
        a, b = (d if d in _FLOATS else _as_float(d) for d in (a, b))
        if a is b:
            return a
        return torch.float32 if a.itemsize == b.itemsize else max(a, b, key=_itemsize)
    if (a in _UNSIGNED) == (b in _UNSIGNED):
        return max(a, b, key=_itemsize)
    # Signed and unsigned: the smallest signed dtype that holds both; for uint64 there is none, and NumPy takes float64.
    unsigned, signed = (a, b) if a in _UNSIGNED else (b, a)
    if signed.itemsize > unsigned.itemsize:
        return signed
    return {1: torch.int16, 2: torch.int32, 4: torch.int64}.get(unsigned.itemsize, torch.float64)


def _itemsize(dtype: torch.dtype) -> int:
    return dtype.itemsize


_WHOLE = frozenset((*_UNSIGNED, *_INTEGERS))

PROMOTED: dict[tuple[torch.dtype, torch.dtype], torch.dtype] = {(a, b): _promote(a, b) for a in DTYPES for b in DTYPES}
"""Two dtypes -> that of an operation on them. PyTorch's own promotion would treat a 0-d tensor as a scalar."""

FLOATING: dict[torch.dtype, torch.dtype] = {
    d: d if d in _FLOATS or d in _COMPLEX else torch.float16 if d is torch.bool else _as_float(d) for d in DTYPES
}
"""A dtype -> that of a function of real numbers such as `exp`, as in NumPy. PyTorch's is float32 for all integers."""

_RANKS: dict[torch.dtype, int] = {
    d: 0 if d is torch.bool else 1 if d in _WHOLE else 2 if d in _FLOATS else 3 for d in DTYPES
}
_SCALAR_RANKS = {bool: 0, int: 1, float: 2, complex: 3}
_SCALAR_DTYPES = (torch.bool, torch.int64, torch.float64, torch.complex128)


def with_scalar(dtype: torch.dtype, scalar: object) -> torch.dtype:
    """Return the dtype of an operation on an array and a Python scalar: the array's, unless of a lower kind."""
    rank = _SCALAR_RANKS.get(type(scalar))
    if rank is None:
        raise TypeError(f"an array or a Python number is needed, got {scalar!r} of type {type(scalar).__name__!r}")
    if rank <= _RANKS[dtype]:
        return dtype
    if rank == 3 and dtype in _FLOATS:
        return torch.complex128 if dtype is torch.float64 else torch.complex64
    return _SCALAR_DTYPES[rank]


def common(values: Sequence[Operand]) -> torch.dtype:
    """Return the dtype of an operation on arrays and Python scalars."""
    found: Any = None
    for x in values:
        if isinstance(x, torch.Tensor):
            found = x.dtype if found is None else PROMOTED[found, x.dtype]
    scalars = [x for x in values if not isinstance(x, torch.Tensor)]
    if found is None:
        return _SCALAR_DTYPES[max(_SCALAR_RANKS[type(x)] for x in scalars)]
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
