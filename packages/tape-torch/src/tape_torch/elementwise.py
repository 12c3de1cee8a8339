"""Elementwise functions of the standard.

The fast path of two operands is PyTorch's function, for tensors of one dtype or a float tensor and a Python number. The
slow path promotes the operands, and computes with unsigned integers of more than 8 bits, which PyTorch can only hold,
through signed ones (see `promotion.bits` and `promotion.ordered`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tape_core.extend import REFUSED
from torch import Tensor

from tape_torch.promotion import (
    FLOATING,
    SIGNED,
    Operand,
    bits,
    cast,
    common,
    ordered,
    promote,
    unbits,
    unordered,
)

Kernel = Callable[..., Any]
_REAL = frozenset({bool, int, float})


# -- two operands


def _binary(function: Kernel, unsigned: Kernel | None = None, *, scalars: bool = True) -> Kernel:
    """Return a kernel that calls a function of PyTorch with the standard's promotion.

    Args:
        unsigned: the function for unsigned integers of more than 8 bits; None if `function` takes them.
        scalars: True if `function` takes a Python scalar on either side.
    """

    def kernel(x1: Operand, x2: Operand) -> Any:
        # Tried, not looked up: nearly all calls succeed, and to look for the few dtypes without a kernel would slow
        # them down.
        if type(x1) is Tensor:
            if type(x2) is Tensor:
                if x1.dtype is x2.dtype:
                    try:
                        return function(x1, x2)
                    except NotImplementedError:
                        return promoted(x1, x2)
            # A number leaves a floating dtype as it is; integers beside 0.5 become floats, by `promote`.
            elif scalars and type(x2) in _REAL and x1.is_floating_point():
                return function(x1, x2)
        elif scalars and type(x1) in _REAL and x2.is_floating_point():
            return function(x1, x2)
        return promoted(x1, x2)

    def promoted(x1: Operand, x2: Operand) -> Any:
        if scalars and _has_floating_and_number(x1, x2):  # of another class than Tensor, as a DTensor
            return function(x1, x2)
        a, b = promote(x1, x2)
        if unsigned is not None and a.dtype in SIGNED:
            return unsigned(a, b)
        return function(a, b)

    return kernel


def _has_floating_and_number(x1: Operand, x2: Operand) -> bool:
    """Return whether one operand is a floating-point array and the other a number, which leaves its dtype as it is."""
    x, number = (x1, x2) if isinstance(x1, Tensor) else (x2, x1)
    return type(number) in _REAL and bool(x.is_floating_point())


def _ring(function: Kernel) -> Kernel:
    """Return a kernel of a ring operation: on unsigned integers it works on their bits, modulo 2**n."""
    return _binary(function, lambda a, b: unbits(function(bits(a), bits(b)), a.dtype))


def _comparison(function: Kernel, reflected: Kernel) -> Kernel:
    def order(a: Tensor, b: Tensor) -> Any:
        return function(ordered(a), ordered(b))

    kernel = _binary(function, order, scalars=False)

    def compare(x1: Operand, x2: Operand) -> Any:
        # PyTorch compares with a Python scalar on the right only.
        if type(x2) in _REAL:
            if x1.is_floating_point():
                return function(x1, x2)
        elif type(x1) in _REAL and x2.is_floating_point():
            return reflected(x2, x1)
        return kernel(x1, x2)

    return compare


def _extremum(function: Kernel, clamp: Kernel) -> Kernel:
    def order(a: Tensor, b: Tensor) -> Any:
        return unordered(function(ordered(a), ordered(b)), a.dtype)

    kernel = _binary(function, order, scalars=False)

    def choose(x1: Operand, x2: Operand) -> Any:
        # clamp ignores a bound of NaN, but the result must be NaN.
        if type(x2) in _REAL:
            if x1.is_floating_point() and x2 == x2:
                return clamp(x1, x2)
        elif type(x1) in _REAL and x2.is_floating_point() and x1 == x1:
            return clamp(x2, x1)
        return kernel(x1, x2)

    return choose


def _divide(x1: Operand, x2: Operand) -> Any:
    if type(x1) is Tensor:
        # Not tried, as others are: of integers PyTorch makes its own default dtype.
        same = x1.dtype is x2.dtype if type(x2) is Tensor else type(x2) in _REAL
        if same and x1.is_floating_point():
            return torch.divide(x1, x2)
    if _has_floating_and_number(x1, x2):
        return torch.divide(x1, x2)
    dtype = FLOATING[common((x1, x2))]
    beside = x1 if isinstance(x1, Tensor) else x2
    return torch.divide(cast(x1, dtype, beside), cast(x2, dtype, beside))


def _unsigned_floor_divide(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is not torch.uint64:
        return torch.floor_divide(a.to(torch.int64), b.to(torch.int64)).to(a.dtype)
    # As Hacker's Delight (9-3) does: divide half of x, which fits into a signed integer, and double the quotient. It is
    # then too small by at most 1, which the remainder shows. Divisors above 2**63 go into x at most once.
    x, y = bits(a), bits(b)
    large = y < 0
    divisor = torch.where(large, 1, y)
    q = torch.floor_divide((x >> 1) & torch.iinfo(torch.int64).max, divisor) << 1
    rest = unbits(x - q * divisor, a.dtype)
    q = q + (ordered(rest) >= ordered(unbits(divisor, a.dtype)))
    return unbits(torch.where(large, (ordered(a) >= ordered(b)).to(torch.int64), q), a.dtype)


def _unsigned_remainder(a: Tensor, b: Tensor) -> Tensor:
    return unbits(bits(a) - bits(b) * bits(_unsigned_floor_divide(a, b)), a.dtype)


def _unsigned_right_shift(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is not torch.uint64:
        return torch.bitwise_right_shift(a.to(torch.int64), b.to(torch.int64)).to(a.dtype)
    n = bits(b)
    kept = torch.where(n == 0, -1, torch.bitwise_left_shift(1, 64 - n) - 1)  # a signed shift copies the sign bit in
    kept = torch.where((n < 0) | (n > 63), 0, kept)  # below 0: a number from 2**63 on
    return unbits((bits(a) >> n) & kept, a.dtype)


def _pow(x1: Operand, x2: Operand) -> Any:
    out = torch.pow(x1, x2)
    # PyTorch makes 0 of what is no integer.
    if not (out.is_floating_point() or out.is_complex()) and bool((x2 < 0).any() if type(x2) not in _REAL else x2 < 0):
        raise ValueError("Integers to negative integer powers are not allowed; make the base one of floats")
    return out


def _unsigned_pow(a: Tensor, b: Tensor) -> Tensor:
    # In int64, which overflows as uint64 does: products are the same modulo 2**64.
    power = torch.pow(a.to(torch.int64), b.to(torch.int64))
    return power.to(a.dtype)


def _remainder(x1: Operand, x2: Operand) -> Any:
    out = torch.remainder(x1, x2)
    if not out.is_floating_point():
        return out
    # The result has the sign of the divisor, also where it is 0; PyTorch's 0 has that of the dividend.
    return torch.where(out == 0, torch.copysign(out, x2), out)


def _logical(function: Kernel) -> Kernel:
    def kernel(x1: Operand, x2: Operand) -> Any:
        beside = x1 if isinstance(x1, Tensor) else x2
        a, b = (cast(x, torch.bool, beside) for x in (x1, x2))
        return function(a, b)

    return kernel


def _floating(function: Kernel) -> Kernel:
    """Return a kernel of two real floating operands; integers are converted to floats."""

    def convert(x1: Operand, x2: Operand) -> Any:
        if type(x1) is Tensor and type(x2) is Tensor and x1.dtype is x2.dtype and x1.is_floating_point():
            return function(x1, x2)
        a, b = promote(x1, x2)
        dtype = FLOATING[a.dtype]
        if dtype.is_complex:
            REFUSED(None, a)
        return function(cast(a, dtype, a), cast(b, dtype, b))

    return convert


# -- one operand


def _real(function: Kernel) -> Kernel:
    """Return a kernel of real or complex numbers; integers are converted to the default dtype."""

    def kernel(x: Tensor) -> Any:
        if x.is_floating_point():
            return function(x)
        return function(x.to(FLOATING[x.dtype]))

    return kernel


def _on_bits(function: Kernel) -> Kernel:
    def kernel(x: Tensor, *args: Any) -> Any:
        try:
            return function(x, *args)
        except NotImplementedError:
            if x.dtype not in SIGNED:
                raise
            return unbits(function(bits(x), *args), x.dtype)

    return kernel


def _abs(x: Tensor) -> Tensor:
    # A result of its own, as every op has that is no view; PyTorch has no abs of wide unsigned integers.
    return x.clone() if x.dtype in SIGNED else torch.abs(x)


def _sign(x: Tensor) -> Tensor:
    if x.is_floating_point():
        # torch.sign of NaN is 0.
        return torch.where(torch.isnan(x), x, torch.sign(x))
    if x.dtype in SIGNED:
        return (x != 0).to(x.dtype)
    return torch.sgn(x)


def _round(x: Tensor) -> Tensor:
    if x.is_complex():
        return torch.complex(torch.round(x.real), torch.round(x.imag))
    return torch.round(x)


def _rounding(function: Kernel) -> Kernel:
    def kernel(x: Tensor) -> Tensor:
        if x.is_complex():
            REFUSED(None, x)
        return function(x) if x.is_floating_point() else x.clone()

    return kernel


def _imag(x: Tensor) -> Tensor:
    return torch.imag(x) if x.is_complex() else torch.zeros_like(x)


def _clip(x: Tensor, min: Operand | None = None, max: Operand | None = None) -> Tensor:
    bounds = [b for b in (min, max) if b is not None]
    if not bounds:
        return x.clone()
    scalars = all([type(b) in _REAL for b in bounds])
    if scalars and x.is_floating_point() and all([b == b for b in bounds]):
        return torch.clamp(x, min, max)
    if not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool:
        # A bound outside of the dtype's range bounds nothing, and would not convert to it.
        info = torch.iinfo(x.dtype)
        min = None if type(min) is int and min <= info.min else min
        max = None if type(max) is int and max >= info.max else max
        if min is None and max is None:
            return x.clone()
    values = [x, *(b for b in (min, max) if b is not None)]
    dtype = common(values)
    low, high = (None if b is None else cast(b, dtype, x) for b in (min, max))
    x = cast(x, dtype, x)
    if dtype in SIGNED:
        low, high = (None if b is None else ordered(b) for b in (low, high))
        return unordered(torch.clamp(ordered(x), low, high), dtype)
    return torch.clamp(x, low, high)


def _where(condition: Tensor | bool, x1: Operand, x2: Operand) -> Tensor:
    if not isinstance(condition, Tensor):
        beside = x1 if isinstance(x1, Tensor) else x2
        condition = cast(bool(condition), torch.bool, beside)
    elif condition.dtype is not torch.bool:
        condition = condition != 0
    if type(x1) is Tensor:
        if type(x2) is Tensor:
            if x1.dtype is x2.dtype:
                return torch.where(condition, x1, x2)
        elif x1.is_floating_point() and type(x2) in _REAL:
            return torch.where(condition, x1, x2)
    elif type(x2) is Tensor and x2.is_floating_point() and type(x1) in _REAL:
        return torch.where(condition, x1, x2)
    dtype = common((x1, x2))
    return torch.where(condition, cast(x1, dtype, condition), cast(x2, dtype, condition))


def _invert(x: Tensor) -> Tensor:
    return unbits(torch.bitwise_not(bits(x)), x.dtype) if x.dtype in SIGNED else torch.bitwise_not(x)


KERNELS: dict[str, Kernel] = {
    "add": _ring(torch.add),
    "subtract": _ring(torch.subtract),
    "multiply": _ring(torch.multiply),
    "divide": _divide,
    "floor_divide": _binary(torch.floor_divide, _unsigned_floor_divide),
    "remainder": _binary(_remainder, _unsigned_remainder),
    "pow": _binary(_pow, _unsigned_pow),
    "equal": _comparison(torch.eq, torch.eq),
    "not_equal": _comparison(torch.ne, torch.ne),
    "less": _comparison(torch.lt, torch.gt),
    "less_equal": _comparison(torch.le, torch.ge),
    "greater": _comparison(torch.gt, torch.lt),
    "greater_equal": _comparison(torch.ge, torch.le),
    "maximum": _extremum(torch.maximum, torch.clamp_min),
    "minimum": _extremum(torch.minimum, torch.clamp_max),
    "atan2": _floating(torch.atan2),
    "copysign": _floating(torch.copysign),
    "hypot": _floating(torch.hypot),
    "logaddexp": _floating(torch.logaddexp),
    "nextafter": _floating(torch.nextafter),
    "logical_and": _logical(torch.logical_and),
    "logical_or": _logical(torch.logical_or),
    "logical_xor": _logical(torch.logical_xor),
    "logical_not": lambda x: torch.logical_not(x if x.dtype is torch.bool else x != 0),
    "bitwise_and": _binary(torch.bitwise_and, scalars=False),
    "bitwise_or": _binary(torch.bitwise_or, scalars=False),
    "bitwise_xor": _binary(torch.bitwise_xor, scalars=False),
    "bitwise_left_shift": _ring(torch.bitwise_left_shift),
    "bitwise_right_shift": _binary(torch.bitwise_right_shift, _unsigned_right_shift),
    "bitwise_invert": _invert,
    **{
        name: _real(getattr(torch, name))
        for name in (
            "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos",
            "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
        )
    },
    **{name: _rounding(getattr(torch, name)) for name in ("ceil", "floor", "trunc")},
    "round": _round,
    "negative": _on_bits(torch.negative),
    "square": _on_bits(torch.square),
    "positive": torch.clone,  # torch.positive returns its argument itself
    "abs": _abs,
    "sign": _sign,
    # torch.conj only sets a bit, and leaves the work to whoever reads the tensor.
    "conj": torch.conj_physical,
    "real": torch.real,
    "imag": _imag,
    "clip": _clip,
    "where": _where,
}  # fmt: skip
