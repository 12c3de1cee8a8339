"""Special functions that are made of other ops, which give their derivatives."""

from __future__ import annotations

import math

from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.ops import elementwise as ew
from tape_core.ops.creation import arange, asarray, asarray_beside
from tape_core.ops.data_types import result_type
from tape_core.ops.elementwise import where
from tape_core.ops.logic import logical_and
from tape_core.ops.manipulation import expand_dims
from tape_core.ops.special.approximation import polynomial, series_near_0, sin_pi, sine_over
from tape_core.ops.special.gamma import betaln, gamma, gammaln
from tape_core.ops.special.logarithms import rel_entr
from tape_core.ops.statistical import sum as sum_of
from tape_core.typing import ArrayLike


def _floating(x: ArrayLike) -> Tensor:
    return to_float_tensors(x)[0]


def to_float_tensors(*values: ArrayLike) -> list[Tensor]:
    """Convert operands to Tensors of floats. Python scalars take the dtype, backend and device of the other operands.

    Raises:
        TypeError: a value is neither a number nor an array.
    """
    # `v * 1.0` turns integers into floats of the default dtype, and is recorded as a product.
    beside = next((v for v in values if isinstance(v, Tensor)), None)
    tensors = [v if isinstance(v, Tensor) or type(v) in SCALARS else asarray_beside(v, beside) for v in values]
    given = [v if v.dtype.inexact else v * 1.0 for v in tensors if isinstance(v, Tensor)]
    known = next((v for v in given), None)
    dtype = result_type(*given) if given else None
    rest = iter(given)
    return [
        next(rest)
        if isinstance(v, Tensor)
        else asarray(v) * 1.0
        if known is None
        else asarray(v, dtype=dtype, backend=known.backend.root, device=known.device)
        for v in tensors
    ]


def sign_of_gamma(x: Tensor) -> Tensor:
    """The sign of the gamma function, 1 or -1: below 0 it changes at each pole."""
    return where(x < 0, 1.0 - 2.0 * ew.remainder(ew.floor(x), 2.0), 1.0)


def beta(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The beta function, `gamma(a) * gamma(b) / gamma(a + b)`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.beta(2.0, 3.0):.4f}")
    0.0833
    """
    a, b = to_float_tensors(a, b)
    sign, total = sign_of_gamma(a) * sign_of_gamma(b), a + b
    # At poles of gamma(a + b) it is 0, and has derivatives; those of the logarithm fail.
    turned = (total < 0.5) & ~(is_pole(a) | is_pole(b))
    inner = where(turned, total, 0.0)
    numerator = gammaln(where(turned, a, 1.0)) + gammaln(where(turned, b, 1.0))
    reflected = sign * reflection(inner) * ew.exp(numerator + gammaln(1.0 - inner))
    direct = sign * sign_of_gamma(total) * ew.exp(betaln(where(turned, 1.0, a), where(turned, 1.0, b)))
    return where(turned, reflected, direct)


def is_pole(x: Tensor) -> Tensor:
    """Whether the gamma function has a pole at x: 0, -1, -2, ..."""
    return (x <= 0) & (x == ew.floor(x))


def reflection(x: Tensor) -> Tensor:
    """`sin(pi * x) / pi`, which is `1 / (gamma(x) * gamma(1 - x))`: 0 at the poles, with all derivatives."""
    value: Tensor = sin_pi(ew, x) * (1 / math.pi)
    return value


def rgamma(x: ArrayLike, /) -> Tensor:
    """`1 / gamma(x)`, which is 0 at 0, -1, -2, ..."""
    x = _floating(x)
    turned = (x < 0.5) & (x > -170)  # further below, gamma(1 - x) overflows
    inner, other = where(turned, x, 0.0), where(turned, 1.0, x)
    return where(turned, reflection(inner) * gamma(1.0 - inner), sign_of_gamma(other) * ew.exp(-gammaln(other)))


def loggamma(x: ArrayLike, /) -> Tensor:
    """The logarithm of the gamma function for real numbers; NaN below 0, where the function may be negative."""
    x = _floating(x)
    return where(x < 0, math.nan, gammaln(where(x < 0, 1.0, x)))


def multigammaln(a: ArrayLike, d: int) -> Tensor:
    """The logarithm of the multivariate gamma function of `d` dimensions.

    Raises:
        ValueError: `d` is not a positive integer.
    """
    if type(d) is not int or d < 1:
        raise ValueError(f"multigammaln: d must be a positive integer; got {d!r}")
    a = _floating(a)
    steps = arange(d, dtype=a.dtype, backend=a.backend.root, device=a.device)
    total = sum_of(gammaln(expand_dims(a, axis=-1) - 0.5 * steps), axis=-1)
    result: Tensor = total + d * (d - 1) / 4 * math.log(math.pi)
    return result


def kl_div(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x * log(x / y) - x + y` for positive numbers, `y` where `x` is 0, and inf for negative ones."""
    x, y = to_float_tensors(x, y)
    result: Tensor = rel_entr(x, y) - x + y
    return result


def huber(delta: ArrayLike, r: ArrayLike, /) -> Tensor:
    """The Huber loss (1964): `r**2 / 2` for `abs(r)` up to `delta`, and linear beyond. inf for negative `delta`."""
    delta, r = to_float_tensors(delta, r)
    size = ew.abs(r)
    return where(delta < 0, math.inf, where(size <= delta, 0.5 * r * r, delta * (size - 0.5 * delta)))


def pseudo_huber(delta: ArrayLike, r: ArrayLike, /) -> Tensor:
    """`delta**2 * (sqrt(1 + (r / delta)**2) - 1)`, without cancellation. inf for negative `delta`, 0 for 0."""
    delta, r = to_float_tensors(delta, r)
    possible = delta > 0
    ratio = r / where(possible, delta, 1.0)
    value = where(possible, r * r / (1.0 + ew.sqrt(1.0 + ratio * ratio)), 0.0)
    return where(delta < 0, math.inf, value)


_EXPREL = tuple(1 / math.factorial(k + 1) for k in range(18))  # the series of (exp(x) - 1) / x
_EXPREL_UP_TO = 0.5  # where it is exact in float64


def exprel(x: ArrayLike, /) -> Tensor:
    """`(exp(x) - 1) / x`, and 1 at 0."""
    x = _floating(x)

    def quotient(x: Tensor) -> Tensor:
        end = x == math.inf
        inner = where(end, 1.0, x)
        return where(end, x, ew.expm1(inner) / inner)

    value: Tensor = series_near_0(ew, x, _EXPREL_UP_TO, lambda x: polynomial(_EXPREL, x), quotient)
    return value


def boxcox(x: ArrayLike, lmbda: ArrayLike, /) -> Tensor:
    """The transformation of Box and Cox (1964): `(x**lmbda - 1) / lmbda`, and `log(x)` where `lmbda` is 0."""
    x, lmbda = to_float_tensors(x, lmbda)
    return boxcox_of_log(ew.log(where(x == 0, 1.0, x)), x, lmbda)


def boxcox_of_log(log: Tensor, x: Tensor, lmbda: Tensor) -> Tensor:
    """The transformation of Box and Cox of `x`, given its logarithm where that is finite."""
    power = lmbda * log
    near = ew.abs(power) < _EXPREL_UP_TO
    series = log * polynomial(_EXPREL, where(near, power, 0.0))
    value = where(near, series, (ew.exp(where(near, 1.0, power)) - 1.0) / where(near, 1.0, lmbda))
    # At 0 a power has derivatives that those of the logarithm do not give.
    zero, positive = x == 0, lmbda > 0
    exponent = where(positive, lmbda, 1.0)
    at_zero = where(positive, (ew.pow(where(zero, x, 1.0), exponent) - 1.0) / exponent, -math.inf)
    return where(zero, at_zero, value)


def cbrt(x: ArrayLike, /) -> Tensor:
    """The real cube root; at 0 its derivative is inf."""
    x = _floating(x)
    size = ew.abs(x)
    inside = logical_and(size > 0, size < math.inf)
    inner = where(inside, size, 1)
    root = ew.exp(ew.log(inner) / 3)
    root = root - (root - inner / (root * root)) / 3  # one step of Newton's method, for the last digits
    edge = ew.pow(where(x == 0, x, 0), 1 / 3)  # the value 0, with an infinite derivative
    return where(inside, ew.copysign(root, x), where(x == 0, edge, x))


def exp2(x: ArrayLike, /) -> Tensor:
    """`2**x`."""
    return ew.pow(2.0, _floating(x))


def exp10(x: ArrayLike, /) -> Tensor:
    """`10**x`."""
    return ew.pow(10.0, _floating(x))


def log_expit(x: ArrayLike, /) -> Tensor:
    """The logarithm of :func:`expit`, accurate where that is small."""
    return -ew.logaddexp(0.0, -_floating(x))


def sinc(x: ArrayLike, /) -> Tensor:
    """`sin(pi * x) / (pi * x)`, and 1 at 0."""
    value: Tensor = sine_over(ew, math.pi * _floating(x))
    return value
