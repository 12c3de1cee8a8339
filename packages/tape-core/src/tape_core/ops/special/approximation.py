"""What the kernels of special functions share: dtypes, polynomials, and a formula for each interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tape_core.base import dtypes
from tape_core.engine.tensor import SCALARS
from tape_core.typing import Array, Namespace

Kernel = Callable[..., Any]


def is_array(x: Any) -> bool:
    """Whether a raw operand is an array, not a Python scalar."""
    return type(x) not in SCALARS


_FLOATING = ("real floating", "complex floating")


def floats(xp: Namespace, *values: Any) -> list[Any]:
    """The operands with integers as floats: of the dtype of the first that has one, else of the default dtype."""
    mixed = [k for k, v in enumerate(values) if is_array(v) and not xp.isdtype(v.dtype, _FLOATING)]
    if not mixed:
        return list(values)
    dtype = next((v.dtype for k, v in enumerate(values) if is_array(v) and k not in mixed), None)
    if dtype is None:
        dtype = getattr(xp, dtypes.get_default_dtype().name)
    elif xp.isdtype(dtype, "complex floating"):
        dtype = xp.float64 if dtype == xp.complex128 else xp.float32
    return [xp.astype(v, dtype) if k in mixed else v for k, v in enumerate(values)]


def check_real(xp: Namespace, *values: Any) -> None:
    """Refuse complex operands of a function that is here for real ones only."""
    for v in values:
        if type(v) is complex or (is_array(v) and xp.isdtype(v.dtype, "complex floating")):
            raise TypeError("it takes real numbers, not complex ones")


def in_double(kernel: Kernel) -> Kernel:
    """A kernel of real numbers, computed in float64 and rounded once: as SciPy computes its own for float32.

    Where the library has no float64, or the device does not, it is computed in what there is.
    """

    def computed(xp: Namespace, *values: Any) -> Array:
        check_real(xp, *values)
        values = tuple(floats(xp, *values))
        dtype = xp.result_type(*[v.dtype for v in values if is_array(v)])
        if dtype == xp.float64:
            return kernel(xp, *values)
        try:
            wide = [xp.astype(v, xp.float64) if is_array(v) else v for v in values]
        except (AttributeError, TypeError, RuntimeError):
            return kernel(xp, *values)
        out = kernel(xp, *wide)
        # What is beyond the narrow dtype becomes infinite here, since a cast would warn of it.
        limits = xp.finfo(dtype)
        top = float(limits.max) * (1 + float(limits.eps) / 4)
        out = xp.where(out >= top, math.inf, xp.where(out <= -top, -math.inf, out))
        return xp.astype(out, dtype)

    return computed


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """By Horner's rule, the constant first; at least two coefficients."""
    result = coefficients[-1] * x + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        result = result * x + c
    return result


def by_interval(xp: Namespace, x: Array, cuts: Sequence[float], *functions: Callable[[Any], Any]) -> Array:
    """`functions[k](x)` where `cuts[k-1] <= x < cuts[k]`; the last one for NaN.

    Each sees only arguments of its own interval, so that none overflows where it is not wanted. One more cut limits
    the arguments of the last function.
    """
    result = functions[0](xp.minimum(x, cuts[0]))
    for k, function in enumerate(functions[1:]):
        low = cuts[k]
        inside = xp.maximum(x, low)
        if k + 1 < len(cuts):
            inside = xp.minimum(inside, cuts[k + 1])
        result = xp.where(x < low, result, function(inside))
    return result


def sin_pi(xp: Namespace, x: Array) -> Array:
    """`sin(pi * x)` for finite x, exact at multiples of 1/2."""
    nearest = xp.round(x)
    odd = nearest - 2 * xp.floor(nearest / 2)
    return (1 - 2 * odd) * xp.sin(math.pi * (x - nearest))
