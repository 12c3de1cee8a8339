"""Helpers for the kernels of special functions: dtypes, polynomials, and approximations by intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeGuard

from tape_core.base import dtypes
from tape_core.engine.tensor import SCALARS
from tape_core.typing import Array, Kernel, Namespace


def is_array(x: object) -> TypeGuard[Array]:
    """Return True if a raw operand is an array, False if it is a Python scalar."""
    return type(x) not in SCALARS


_FLOATING = ("real floating", "complex floating")


def as_floats(xp: Namespace, *values: Array) -> list[Array]:
    """The operands, with arrays of integers cast to the dtype of the first floating array, or to the default dtype."""
    mixed = [k for k, v in enumerate(values) if is_array(v) and not xp.isdtype(v.dtype, _FLOATING)]
    if not mixed:
        return list(values)
    dtype = next((v.dtype for k, v in enumerate(values) if is_array(v) and k not in mixed), None)
    if dtype is None:
        dtype = getattr(xp, dtypes.get_default_dtype().name)
    elif xp.isdtype(dtype, "complex floating"):
        dtype = xp.float64 if dtype == xp.complex128 else xp.float32
    return [xp.astype(v, dtype) if k in mixed else v for k, v in enumerate(values)]


def check_real(xp: Namespace, *values: Array) -> None:
    """Raise TypeError for complex operands of a function that is implemented for real numbers only."""
    for v in values:
        if type(v) is complex or (is_array(v) and xp.isdtype(v.dtype, "complex floating")):
            raise TypeError("it takes real numbers, not complex ones")


def in_double(kernel: Kernel) -> Kernel:
    """Wrap a kernel of real numbers: it computes in float64 and rounds once, as SciPy does for float32.

    Where the library or the device has no float64, the kernel computes in the dtype of its arguments.
    """

    def wide_kernel(xp: Namespace, *values: Array) -> Array:
        check_real(xp, *values)
        values = tuple(as_floats(xp, *values))
        dtype = xp.result_type(*[v.dtype for v in values if is_array(v)])
        if dtype == xp.float64:
            return kernel(xp, *values)
        try:
            wide = [xp.astype(v, xp.float64) if is_array(v) else v for v in values]
        except (AttributeError, TypeError, RuntimeError):
            return kernel(xp, *values)
        out = kernel(xp, *wide)
        # Values out of the range of the narrow dtype become infinite here, since a cast would warn. Up to a quarter of
        # eps above the largest number they still round to it.
        limits = xp.finfo(dtype)
        top = float(limits.max) * (1 + float(limits.eps) / 4)
        out = xp.where(out >= top, math.inf, xp.where(out <= -top, -math.inf, out))
        return xp.astype(out, dtype)

    return wide_kernel


def polynomial(coefficients: Sequence[float], x: Array) -> Array:
    """Evaluate a polynomial by Horner's rule; of its coefficients, at least two, the constant is the first."""
    result = coefficients[-1] * x + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        result = result * x + c
    return result


def series_near_0(
    xp: Namespace, x: Array, up_to: float, series: Callable[[Array], Array], far: Callable[[Array], Array]
) -> Array:
    """`series(x)` where `abs(x) < up_to`, and `far(x)` elsewhere and for NaN.

    It is for functions whose formula is 0 / 0 at 0, and a quotient of differences near 0. The power series has all
    derivatives there, which the limit alone, a constant, has not. Both functions run on all elements: `series` on 0 and
    `far` on `up_to` where their result is dropped.
    """
    near = xp.abs(x) < up_to
    return xp.where(near, series(xp.where(near, x, 0)), far(xp.where(near, up_to, x)))


def even_series(xp: Namespace, x: Array, up_to: float, series: Sequence[float], far: Callable[[Array], Array]) -> Array:
    """:func:`series_near_0` with the polynomial in `x * x` whose coefficients are `series`."""
    return series_near_0(xp, x, up_to, lambda x: polynomial(series, x * x), far)


_SINE = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(12))


def sine_over(xp: Namespace, x: Array) -> Array:
    """`sin(x) / x`, and 1 at 0."""
    return even_series(xp, x, 1.0, _SINE, lambda x: xp.sin(x) / x)


FADDEEVA_SERIES_FROM = 8
"""Where 17 terms of :func:`faddeeva_series` suffice for float64."""
_FADDEEVA_SERIES = tuple(-float(math.prod(range(1, 2 * k, 2))) for k in range(1, 18))


def faddeeva_series(z: Array) -> Array:
    """`1 - 2 * z * dawsn(z)` by its asymptotic series -t - 3 * t**2 - 15 * t**3 - ... in t = 1 / (2 * z**2).

    Times `2j / sqrt(pi)` it is the derivative of Faddeeva's function where that has no exponential part.
    """
    t = 0.5 / (z * z)
    return t * polynomial(_FADDEEVA_SERIES, t)


LOG_RATIO = tuple((-1.0) ** k / (k + 1) for k in range(14))
"""The Taylor series of `log(1 + u) / u`, which is exact in float64 up to 0.05."""


def by_interval(xp: Namespace, x: Array, cuts: Sequence[float], *functions: Callable[[Array], Array]) -> Array:
    """`functions[k](x)` where `cuts[k-1] <= x < cuts[k]`, and the last function for NaN.

    All functions run on all elements, since arrays know no branches. Arguments are limited to the interval of each
    function, so that none overflows or warns where its result is dropped. One more cut than functions need limits the
    arguments of the last one.
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
    """`sin(pi * x)` for finite x; exact at multiples of 1/2, since the argument is reduced before it is multiplied."""
    nearest = xp.round(x)
    odd = nearest - 2 * xp.floor(nearest / 2)
    return (1 - 2 * odd) * xp.sin(math.pi * (x - nearest))
