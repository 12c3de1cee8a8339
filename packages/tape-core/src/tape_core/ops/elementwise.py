"""Elementwise functions of the Array API standard.

Each op stands with its derivative. The engine takes care of broadcasting, dtypes and conjugation. A formula without a
source is textbook calculus. Elementwise functions beyond the standard, such as `cbrt` and `erf`, are in `special/`,
those of neural networks in `nn/`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator

from tape_core.base.lookup import ops
from tape_core.engine.op import NONDIFF, REFUSED, elementwise, refuses, vjp
from tape_core.engine.samples import Draw, Sample, binary, unary, with_complex
from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

REASON_STEP = "piecewise constant: the derivative is zero wherever it exists"


# -- arithmetic


@elementwise(x1=1, x2=1, samples=with_complex(binary()))
def add(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 + x2`."""


@elementwise(x1=1, x2=-1, samples=with_complex(binary()))
def subtract(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 - x2`."""


@elementwise(x1=lambda xp, x2: x2, x2=lambda xp, x1: x1, samples=with_complex(binary()))
def multiply(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 * x2`."""


@elementwise(x1=vjp(lambda xp, g, x2: g / x2), x2=lambda xp, x2, out: -out / x2, samples=with_complex(binary(0.5, 2)))
def divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 / x2`."""


def _power_base(xp: Namespace, x1: Array, x2: Array) -> Array:
    if type(x2) in SCALARS:
        if x2 == 2:
            return 2 * x1
        # The derivative of x ** 0 is 0. It is written as x ** 0 - 1 so that it still depends on x, and higher
        # derivatives are zeros, not None; and so that it is 0 also where x is NaN, as pow(NaN, 0) is 1.
        return xp.pow(x1, 0) - 1 if x2 == 0 else xp.pow(x1, x2 - 1) * x2
    # x ** 0 is 1 everywhere, so its derivative is 0 at 0 and NaN as well. Elsewhere x2 * x1 ** (x2 - 1) is 0 by itself,
    # and has a derivative by x2: a constant would not.
    # NumPy writes a product into the memory of a temporary, and makes that the first factor. It is the first here too,
    # so that compiled code has the same bits for complex numbers.
    zero = (x2 == 0) & ((x1 == 0) | (x1 != x1))
    return xp.where(zero, 0, xp.pow(x1, xp.where(zero, 1, x2 - 1)) * x2)


def _power_exponent(xp: Namespace, x1: Array, out: Array) -> Array:
    # For a base <= 0 the power is not a differentiable function of its exponent. The result is 0 there, as in
    # TensorFlow.
    if type(x1) in SCALARS:
        if isinstance(x1, complex):
            import cmath

            return out * (cmath.log(x1) if x1 else 0)
        return out * (math.log(x1) if x1 > 0 else 0)
    if xp.isdtype(x1.dtype, "complex floating"):
        return xp.log(xp.where(x1 == 0, 1, x1)) * out
    positive = x1 > 0
    return xp.where(positive, out * xp.log(xp.where(positive, x1, 1)), 0)


def _pow_samples(draw: Draw) -> Iterator[Sample]:
    yield from binary(0.5, 2, -2, 2)(draw)
    for exponent in (0, 1, 2, 3, -1, 0.5):
        yield Sample(draw(2, 3, low=0.5), exponent)
    yield Sample(2.0, draw(3))


@refuses("x2")
@elementwise(x1=_power_base, x2=_power_exponent, samples=with_complex(_pow_samples))
def pow(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 ** x2`.

    The derivative of `x ** 0` is 0, also at 0. The derivative with respect to the exponent is 0 where the base is <= 0.
    """


@refuses("x2")
@elementwise(x1=NONDIFF, x2=NONDIFF, samples=binary(0.5, 4), reason=REASON_STEP, complex_kernel=REFUSED)
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 // x2`."""


@refuses("x2")
@elementwise(x1=1, x2=lambda xp, x1, x2: -xp.floor(x1 / x2), samples=binary(2.1, 2.9, 0.5, 0.9), complex_kernel=REFUSED)
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1 % x2`, with the sign of `x2`."""


@elementwise(x=-1, samples=with_complex(unary()), keeps_integers=True)
def negative(x: ArrayLike, /) -> Tensor:
    """`-x`."""


@elementwise(x=1, samples=with_complex(unary()), keeps_integers=True)
def positive(x: ArrayLike, /) -> Tensor:
    """`+x`."""


def _abs_vjp(xp: Namespace, g: Cotangent, x: Array) -> Cotangent:
    s = xp.sign(x)
    return g * (xp.conj(s) if xp.isdtype(s.dtype, "complex floating") else s)


@elementwise(x=vjp(_abs_vjp), samples=with_complex(unary(0.1, 2)), keeps_integers=True)
def abs(x: ArrayLike, /) -> Tensor:
    """The absolute value. At 0 the derivative is 0; for complex z it is z / abs(z)."""


def _sign_vjp(xp: Namespace, g: Cotangent, x: Array) -> Cotangent:
    if not xp.isdtype(x.dtype, "complex floating"):
        return g * 0
    s, size = xp.sign(x), xp.abs(x)
    # sign(z) = z / |z| turns with z and ignores its length, so the part of g along sign(z) is lost.
    return (g - xp.conj(s) * xp.real(s * g)) / xp.where(size == 0, 1, size)


@elementwise(x=vjp(_sign_vjp), samples=with_complex(unary(0.1, 2)), keeps_integers=True)
def sign(x: ArrayLike, /) -> Tensor:
    """The sign: -1, 0 or 1; z / abs(z) for complex z."""


@elementwise(x=lambda xp, x: 2 * x, samples=with_complex(unary()), keeps_integers=True)
def square(x: ArrayLike, /) -> Tensor:
    """`x * x`."""


@elementwise(x=lambda xp, out: 0.5 / out, samples=with_complex(unary(0.2, 3)))
def sqrt(x: ArrayLike, /) -> Tensor:
    """The square root."""


@elementwise(x=lambda xp, out: -out * out, samples=with_complex(unary(0.5, 2)))
def reciprocal(x: ArrayLike, /) -> Tensor:
    """`1 / x`."""


def _hypot_partial(xp: Namespace, x: Array, out: Array) -> Array:
    # 0 at the origin: the subgradient of least norm.
    return x / xp.where(out == 0, 1, out)


@elementwise(
    x1=lambda xp, x1, out: _hypot_partial(xp, x1, out),
    x2=lambda xp, x2, out: _hypot_partial(xp, x2, out),
    samples=binary(0.2, 2),
    complex_kernel=REFUSED,
)
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`sqrt(x1**2 + x2**2)` without overflow. At the origin the derivatives are 0."""


@elementwise(
    x1=lambda xp, x1, out: xp.sign(x1) * xp.sign(out), x2=NONDIFF, samples=binary(0.2, 2), complex_kernel=REFUSED
)
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The magnitude of `x1` with the sign of `x2`."""


copysign.op.promoted = (0, 1)  # type: ignore[attr-defined]  # also `x2`, though nothing flows through it


@elementwise(
    x1=NONDIFF,
    x2=NONDIFF,
    samples=binary(),
    reason="a step of the number format, not of the reals",
    complex_kernel=REFUSED,
)
def nextafter(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The next floating-point number from `x1` towards `x2`."""


# -- exponentials and logarithms


@elementwise(x=lambda xp, out: out, samples=with_complex(unary()))
def exp(x: ArrayLike, /) -> Tensor:
    """The exponential."""


@elementwise(x=lambda xp, out: out + 1, samples=with_complex(unary()))
def expm1(x: ArrayLike, /) -> Tensor:
    """`exp(x) - 1`, accurate near 0."""


@elementwise(x=vjp(lambda xp, g, x: g / x), samples=with_complex(unary(0.2, 3)))
def log(x: ArrayLike, /) -> Tensor:
    """The natural logarithm."""


@elementwise(x=vjp(lambda xp, g, x: g / (1 + x)), samples=with_complex(unary(-0.5, 2)))
def log1p(x: ArrayLike, /) -> Tensor:
    """`log(1 + x)`, accurate near 0."""


@elementwise(x=vjp(lambda xp, g, x: g / (x * math.log(2))), samples=with_complex(unary(0.2, 3)))
def log2(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 2."""


@elementwise(x=vjp(lambda xp, g, x: g / (x * math.log(10))), samples=with_complex(unary(0.2, 3)))
def log10(x: ArrayLike, /) -> Tensor:
    """The logarithm to base 10."""


def _logaddexp_partial(xp: Namespace, x: Array, out: Array) -> Array:
    # Where both inputs are -inf, so is out, and x - out would be NaN.
    return xp.exp(x - xp.where(out == -math.inf, 0, out))


@elementwise(
    x1=lambda xp, x1, out: _logaddexp_partial(xp, x1, out),
    x2=lambda xp, x2, out: _logaddexp_partial(xp, x2, out),
    samples=binary(),
    complex_kernel=REFUSED,
)
def logaddexp(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`log(exp(x1) + exp(x2))` without overflow."""


# -- trigonometric and hyperbolic


@elementwise(x=lambda xp, x: xp.cos(x), samples=with_complex(unary()))
def sin(x: ArrayLike, /) -> Tensor:
    """The sine of an angle in radians."""


@elementwise(x=lambda xp, x: -xp.sin(x), samples=with_complex(unary()))
def cos(x: ArrayLike, /) -> Tensor:
    """The cosine of an angle in radians."""


@elementwise(x=lambda xp, out: 1 + out * out, samples=with_complex(unary(-1.2, 1.2)))
def tan(x: ArrayLike, /) -> Tensor:
    """The tangent of an angle in radians."""


@elementwise(x=lambda xp, x: 1 / xp.sqrt(1 - x * x), samples=with_complex(unary(-0.9, 0.9)))
def asin(x: ArrayLike, /) -> Tensor:
    """The inverse sine, in radians."""


@elementwise(x=lambda xp, x: -1 / xp.sqrt(1 - x * x), samples=with_complex(unary(-0.9, 0.9)))
def acos(x: ArrayLike, /) -> Tensor:
    """The inverse cosine, in radians."""


@elementwise(x=lambda xp, x: 1 / (1 + x * x), samples=with_complex(unary()))
def atan(x: ArrayLike, /) -> Tensor:
    """The inverse tangent, in radians."""


def _atan2_partial(xp: Namespace, x: Array, x1: Array, x2: Array) -> Array:
    """`x / (x1**2 + x2**2)`; the squares themselves might underflow or overflow, so it divides by the root twice."""
    distance = xp.hypot(x1, x2)
    distance = xp.where(distance == 0, 1, distance)
    return x / distance / distance


@elementwise(
    x1=lambda xp, x1, x2: _atan2_partial(xp, x2, x1, x2),
    x2=lambda xp, x1, x2: -_atan2_partial(xp, x1, x1, x2),
    samples=binary(0.2, 2),
    complex_kernel=REFUSED,
)
def atan2(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The angle of the point (x2, x1), in radians. At the origin, which has no angle, the derivatives are 0."""


@elementwise(x=lambda xp, x: xp.cosh(x), samples=with_complex(unary()))
def sinh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic sine."""


@elementwise(x=lambda xp, x: xp.sinh(x), samples=with_complex(unary()))
def cosh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic cosine."""


@elementwise(x=lambda xp, out: 1 - out * out, samples=with_complex(unary()))
def tanh(x: ArrayLike, /) -> Tensor:
    """The hyperbolic tangent."""


@elementwise(x=lambda xp, x: 1 / xp.sqrt(x * x + 1), samples=with_complex(unary()))
def asinh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic sine."""


@elementwise(x=lambda xp, x: 1 / (xp.sqrt(x - 1) * xp.sqrt(x + 1)), samples=with_complex(unary(1.2, 3)))
def acosh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic cosine."""


@elementwise(x=lambda xp, x: 1 / (1 - x * x), samples=with_complex(unary(-0.9, 0.9)))
def atanh(x: ArrayLike, /) -> Tensor:
    """The inverse hyperbolic tangent."""


# -- rounding


@elementwise(x=NONDIFF, samples=unary(0.1, 0.9), reason=REASON_STEP, keeps_integers=True, complex_kernel=REFUSED)
def ceil(x: ArrayLike, /) -> Tensor:
    """Round up: the smallest integer that is not less than `x`."""


@elementwise(x=NONDIFF, samples=unary(0.1, 0.9), reason=REASON_STEP, keeps_integers=True, complex_kernel=REFUSED)
def floor(x: ArrayLike, /) -> Tensor:
    """Round down: the greatest integer that is not greater than `x`."""


@elementwise(x=NONDIFF, samples=unary(0.1, 0.9), reason=REASON_STEP, keeps_integers=True, complex_kernel=REFUSED)
def trunc(x: ArrayLike, /) -> Tensor:
    """Round towards 0: drop the digits after the point."""


@elementwise(x=NONDIFF, samples=with_complex(unary(0.1, 0.4)), reason=REASON_STEP)
def round(x: ArrayLike, /) -> Tensor:
    """Round to the nearest integer; halves go to the even one."""


def round_to(x: Tensor, digits: int) -> Tensor:
    """Round to so many digits after the point, before it where the number is negative; halves go to the even one."""
    kind = x.dtype.kind
    if digits == 0 or kind == "bool" or (digits > 0 and not x.dtype.inexact):
        return round(x)
    unit = 10 ** builtins.abs(digits)
    if x.dtype.inexact:
        # By whole powers of ten: 0.1 is not exact.
        scale = float(unit)
        return divide(round(multiply(x, scale)), scale) if digits > 0 else multiply(round(divide(x, scale)), scale)
    largest = 1 << (8 * x.dtype.itemsize - (kind == "signed integer"))
    if unit > 2 * largest:
        return multiply(x, 0)
    if unit >= largest:
        raise OverflowError(f"round: a multiple of {unit} does not fit {x.dtype}; convert it with tape_core.astype")
    below = floor_divide(x, unit)
    rest = subtract(x, multiply(below, unit))
    odd = (rest == unit // 2) & (remainder(below, 2) == 1)
    return multiply(add(below, ops.astype((rest > unit // 2) | odd, x.dtype)), unit)


# -- choosing


@elementwise(
    # Where an input is NaN, so is the result. Neither comparison holds then, and both inputs get the cotangent.
    x1=vjp(lambda xp, g, x1, x2: xp.where(x1 < x2, 0, g)),
    x2=vjp(lambda xp, g, x1, x2: xp.where(x1 >= x2, 0, g)),
    samples=binary(),
    complex_kernel=REFUSED,
)
def maximum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The greater of two values. On a tie the gradient goes to `x1`, as in TensorFlow."""


@elementwise(
    x1=vjp(lambda xp, g, x1, x2: xp.where(x1 > x2, 0, g)),
    x2=vjp(lambda xp, g, x1, x2: xp.where(x1 <= x2, 0, g)),
    samples=binary(),
    complex_kernel=REFUSED,
)
def minimum(x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """The smaller of two values. On a tie the gradient goes to `x1`, as in TensorFlow."""


def _clip_x(xp: Namespace, g: Cotangent, x: Array, min: Array, max: Array) -> Cotangent:
    # A comparison with NaN fails, so where a bound is NaN, and so the result, `x` keeps its cotangent.
    if min is not None:
        g = xp.where(x < min, 0, g)
    return g if max is None else xp.where(x > max, 0, g)


def _clip_min(xp: Namespace, g: Cotangent, x: Array, min: Array, max: Array) -> Cotangent:
    inside = x >= min
    # Where the bounds cross, the result is the upper bound.
    return xp.where(inside if max is None else xp.logical_or(inside, min > max), 0, g)


def _clip_max(xp: Namespace, g: Cotangent, x: Array, min: Array, max: Array) -> Cotangent:
    inside = x <= max
    return xp.where(inside if min is None else xp.logical_and(inside, min <= max), 0, g)


def _clip_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(3, 4), -1.03, 1.02)
    yield Sample(draw(3, 4), max=0.51)
    yield Sample(draw(2, 3), draw(3, low=-1, high=0), draw(2, 1, low=0, high=1))
    yield Sample(draw(0), -1.0, 1.0)


@elementwise(
    x=vjp(_clip_x),
    min=vjp(_clip_min),
    max=vjp(_clip_max),
    samples=_clip_samples,
    complex_kernel=REFUSED,
)
def clip(x: ArrayLike, /, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Tensor:
    """Limit `x` to [min, max]; the result is `max` where that is less than `min`. At a bound `x` gets the gradient."""


def _where_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3) > 0, draw(2, 3), draw(2, 3))
    yield Sample(draw(3) > 0, draw(2, 1), 1.5)
    yield Sample(draw(2, 3) > 0, draw(), draw(3))
    yield Sample(draw(0, 2) > 0, draw(0, 2), 0.0)
    yield Sample(draw(2, 3) > 0, draw.complex(2, 3), draw.complex(3))


@elementwise(
    condition=NONDIFF,
    x1=vjp(lambda xp, g, condition: xp.where(condition, g, 0)),
    x2=vjp(lambda xp, g, condition: xp.where(condition, 0, g)),
    masks=True,
    samples=_where_samples,
)
def where(condition: ArrayLike, x1: ArrayLike, x2: ArrayLike, /) -> Tensor:
    """`x1` where the condition holds, `x2` elsewhere.

    No gradient flows through the branch not taken, not even NaN: the gradient of `where(x > 0, sqrt(x), 0)` at 0 is 0,
    whatever function stands in place of `sqrt`.

    >>> import tape_core as tc
    >>> x = tc.Variable([0.0, 4.0])
    >>> with tc.GradientTape() as tape:
    ...     y = tc.where(x > 0, tc.sqrt(x), 0)
    >>> tape.gradient(y, x).tolist()
    [0.0, 0.25]
    """


# -- complex parts


def _complex_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.complex(2, 3))
    yield Sample(draw.complex())
    yield Sample(draw.complex(0, 2))


@elementwise(x=1, samples=_complex_samples, keeps_integers=True)
def real(x: ArrayLike, /) -> Tensor:
    """The real part."""


@elementwise(x=vjp(lambda xp, g: g * -1j), samples=_complex_samples, keeps_integers=True)
def imag(x: ArrayLike, /) -> Tensor:
    """The imaginary part of complex values."""


@elementwise(x=vjp(lambda xp, g: xp.conj(g)), samples=with_complex(unary()), keeps_integers=True)
def conj(x: ArrayLike, /) -> Tensor:
    """The complex conjugate."""
