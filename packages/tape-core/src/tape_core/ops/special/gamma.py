"""The gamma and beta functions: `gammaln`, `gamma`, `digamma`, `polygamma` and `betaln`.

They are beyond the standard; their kernels are composed of its functions. Each has an approximation for positive
arguments, by intervals, and the reflection formula (DLMF 5.5.3 and its derivatives) for negative ones.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache, partial

from tape_core.base import dtypes
from tape_core.engine.op import NONDIFF, REFUSED, elementwise
from tape_core.engine.samples import Draw, Refused, Sample, binary, unary
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import (
    as_floats,
    by_interval,
    check_real,
    in_double,
    is_array,
    polynomial,
    sin_pi,
)
from tape_core.typing import Array, ArrayLike, Namespace

# The coefficients of fdlibm's e_lgamma_r.c (Sun Microsystems, 1993), under their names there.
_A = (
    7.72156649015328655494e-02, 3.22467033424113591611e-01, 6.73523010531292681824e-02, 2.05808084325167332806e-02,
    7.38555086081402883957e-03, 2.89051383673415629091e-03, 1.19270763183362067845e-03, 5.10069792153511336608e-04,
    2.20862790713908385557e-04, 1.08011567247583939954e-04, 2.52144565451257326939e-05, 4.48640949618915160150e-05,
)  # fmt: skip
_T = (
    4.83836122723810047042e-01, -1.47587722994593911752e-01, 6.46249402391333854778e-02, -3.27885410759859649565e-02,
    1.79706750811820387126e-02, -1.03142241298341437450e-02, 6.10053870246291332635e-03, -3.68452016781138256760e-03,
    2.25964780900612472250e-03, -1.40346469989232843813e-03, 8.81081882437654011382e-04, -5.38595305356740546715e-04,
    3.15632070903625950361e-04, -3.12754168375120860518e-04, 3.35529192635519073543e-04,
)  # fmt: skip
_MINIMUM_AT = 1.46163214496836224576e00  # the gamma function has its minimum for positive numbers there
_MINIMUM = -1.21486290535849611461e-01  # its logarithm there, to be corrected by _MINIMUM_LOW_BITS
_MINIMUM_LOW_BITS = -3.63867699703950536541e-18
_U = (
    -7.72156649015328655494e-02, 6.32827064025093366517e-01, 1.45492250137234768737e00, 9.77717527963372745603e-01,
    2.28963728064692451092e-01, 1.33810918536787660377e-02,
)  # fmt: skip
_V = (
    1.0, 2.45597793713041134822e00, 2.12848976379893395361e00, 7.69285150456672783825e-01, 1.04222645593369134254e-01,
    3.21709242282423911810e-03,
)  # fmt: skip
_S = (
    -7.72156649015328655494e-02, 2.14982415960608852501e-01, 3.25778796408930981787e-01, 1.46350472652464452805e-01,
    2.66422703033638609560e-02, 1.84028451407337715652e-03, 3.19475326584100867617e-05,
)  # fmt: skip
_R = (
    1.0, 1.39200533467621045958e00, 7.21935547567138069525e-01, 1.71933865632803078993e-01, 1.86459191715652901344e-02,
    7.77942496381893596434e-04, 7.32668430744625636189e-06,
)  # fmt: skip
_W = (
    8.33333333333329678849e-02, -2.77777777728775536470e-03, 7.93650558643019558500e-04, -5.95187557450339963135e-04,
    8.36339918996282139126e-04, -1.63092934096575273989e-03,
)  # fmt: skip

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)

# From these arguments on, the two asymptotic series are as accurate as float64.
STIRLING_FROM = 8.0  # `stirling_correction`
DIGAMMA_SERIES_FROM = 10.0  # `digamma_series`

# Limits of float64.
_TINY = 5e-324  # the smallest positive number
_MAX = 1.7976931348623157e308  # the largest finite number
_HALF_MAX = 8.9e307  # the sum of two such numbers is still finite
_RECIPROCAL_OVERFLOWS_BELOW = 5.6e-309  # 1 / x is infinite for smaller x
_ALL_INTEGERS_FROM = 1e17  # larger numbers have no fraction; arguments of sines are cut off there

# For 0 > x > -1e-20 the reflection formula adds less than the last bit: the functions are those of abs(x), but for
# signs.
_NO_REFLECTION_BELOW = 1e-20


def stirling_correction(x: Array) -> Array:
    """`gammaln(x) - ((x - 0.5) * log(x) - x + log(2 * pi) / 2)` for x >= `STIRLING_FROM`."""
    z = 1 / x
    return z * polynomial(_W, z * z)


def _gammaln_near_1(xp: Namespace, m: Array) -> Array:
    """`gammaln(1 + m)` for m between -0.1 and 1."""

    # gammaln(1 + m) has zeros at m = 0 and m = 1. The formulas there have them as factors, for full relative precision.
    def around_minimum(m: Array) -> Array:
        y = m - (_MINIMUM_AT - 1)
        return _MINIMUM + (y * y * polynomial(_T, y) - _MINIMUM_LOW_BITS)

    def near_1(m: Array) -> Array:
        y = 1 - m
        return y * (polynomial(_A, y) - 0.5)

    return by_interval(
        xp,
        m,
        (0.23164, 0.7316, 1.0),
        lambda y: y * (polynomial(_U, y) / polynomial(_V, y) - 0.5),
        around_minimum,
        near_1,
    )


def _gammaln_nonnegative(xp: Namespace, a: Array) -> Array:
    """`gammaln(a)` for a >= 0."""
    low = xp.clip(a, _TINY, 2.0)
    small = low <= 0.9
    below = _gammaln_near_1(xp, xp.where(small, low, low - 1)) - xp.log(xp.where(small, low, 1))

    def to_eight(x: Array) -> Array:
        # gamma(x + 1) = x * gamma(x) leads back to the interval from 2 to 3.
        whole = xp.minimum(xp.floor(x), 7.0)
        y = x - whole
        product = 1 + 0 * y
        for k in range(2, 7):
            product = product * xp.where(whole > k, y + k, 1)
        return 0.5 * y + y * (polynomial(_S, y) / polynomial(_R, y)) + xp.log(product)

    def beyond(x: Array) -> Array:
        return (x - 0.5) * (xp.log(x) - 1) + (_HALF_LOG_2PI - 0.5 + stirling_correction(x))

    return by_interval(xp, a, (2.0, STIRLING_FROM, _GAMMALN_OVERFLOWS_FROM), lambda _: below, to_eight, beyond)


_GAMMALN_OVERFLOWS_FROM = 2.556348e305  # gammaln overflows float64 beyond


@in_double
def _gammaln_kernel(xp: Namespace, x: Array) -> Array:
    a = xp.abs(x)
    size = _gammaln_nonnegative(xp, a)
    # Below 0 by the reflection formula; near 0 the function is -log(a) on both sides.
    inner = xp.clip(a, _NO_REFLECTION_BELOW, _ALL_INTEGERS_FROM)
    sine = xp.abs(sin_pi(xp, inner))
    pole = xp.logical_or(a == 0, xp.logical_and(x < 0, sine == 0))
    reflected = xp.log(math.pi / (inner * xp.where(sine == 0, 1, sine))) - size
    size = xp.where(xp.logical_and(x < 0, a > _NO_REFLECTION_BELOW), reflected, size)
    size = xp.where(xp.logical_or(pole, a > _GAMMALN_OVERFLOWS_FROM), math.inf, size)
    return xp.where(x == -math.inf, x, size)


@elementwise(x=lambda xp, x: xp.digamma(x), kernel=_gammaln_kernel, samples=unary(0.2, 9), complex_kernel=REFUSED)
def gammaln(x: ArrayLike, /) -> Tensor:
    """The logarithm of the absolute value of the gamma function. At its poles 0, -1, -2, ... it is inf.

    >>> import tape_core as tc
    >>> print(f"{tc.gammaln(101.0):.4f}")
    363.7394

    Near its zeros at 1 and 2 it has full relative precision; near its zeros between the negative integers it has an
    absolute error of about 1e-15. Source: fdlibm's e_lgamma_r.c (Sun Microsystems, 1993).
    """


# The coefficients of Cephes' gamma.c (Moshier, 1989), under their names there: gamma(2 + m) for m between 0 and 1.
_P = (
    9.99999999999999996796e-1, 4.94214826801497100753e-1, 2.07448227648435975150e-1, 4.76367800457137231464e-2,
    1.04213797561761569935e-2, 1.19135147006586384913e-3, 1.60119522476751861407e-4,
)  # fmt: skip
_Q = (
    1.00000000000000000320e0, 7.14304917030273074085e-2, -2.34591795718243348568e-1, 3.58236398605498653373e-2,
    1.18139785222060435552e-2, -4.45641913851797240494e-3, 5.39605580493303397842e-4, -2.31581873324120129819e-5,
)  # fmt: skip
_OVERFLOWS_FROM = 171.62437695630272  # gamma overflows float64 beyond


def _gamma_positive(xp: Namespace, a: Array) -> Array:
    """`gamma(a)` for a > 0, inf where it overflows."""

    def to_ten(a: Array) -> Array:
        # gamma(x + 1) = x * gamma(x) leads to the interval from 2 to 3: products from above, quotients from below.
        a = xp.maximum(a, _RECIPROCAL_OVERFLOWS_BELOW)
        whole = xp.floor(a)
        m = a - whole
        product = 1 + 0 * a
        for k in range(2, 10):
            product = product * xp.where(whole > k, m + k, 1)
        divisor = xp.where(a < 1, a * (a + 1), xp.where(a < 2, a, 1))
        return product * (polynomial(_P, m) / polynomial(_Q, m)) / divisor

    def beyond(a: Array) -> Array:
        # Stirling's series; a**(a - 0.5) itself may overflow, so its root is multiplied twice.
        root = xp.pow(a, 0.5 * a - 0.25)
        return root * xp.exp(-a) * (math.sqrt(2 * math.pi) * xp.exp(stirling_correction(a))) * root

    size = by_interval(xp, a, (10.0, _OVERFLOWS_FROM), to_ten, beyond)
    return xp.where(xp.logical_or(a < _RECIPROCAL_OVERFLOWS_BELOW, a > _OVERFLOWS_FROM), math.inf, size)


@in_double
def _gamma_kernel(xp: Namespace, x: Array) -> Array:
    a = xp.abs(x)
    size = _gamma_positive(xp, a)
    inner = xp.clip(a, _NO_REFLECTION_BELOW, _ALL_INTEGERS_FROM)
    sine = sin_pi(xp, inner)
    negative = xp.logical_and(x < 0, a > _NO_REFLECTION_BELOW)
    whole = xp.logical_and(negative, sine == 0)
    reflected = (-math.pi / (inner * xp.where(sine == 0, 1, sine))) / size
    return xp.where(negative, xp.where(whole, math.nan, reflected), xp.copysign(size, x))


@elementwise(
    x=lambda xp, x, out: out * xp.digamma(x), kernel=_gamma_kernel, samples=unary(0.2, 9), complex_kernel=REFUSED
)
def gamma(x: ArrayLike, /) -> Tensor:
    """The gamma function, the factorial of `x - 1`. It is NaN at the negative integers, inf at 0 and -inf at -0.

    >>> import tape_core as tc
    >>> tc.gamma(5.0).item()
    24.0

    Source: Cephes' gamma.c (Moshier, 1989), and Stirling's series.
    """


# The coefficients of Boost's digamma (Maddock, 2006) between 1 and 2, around its zero, which is the sum of three
# numbers.
_DIGAMMA_ZERO = (1569415565.0 / 2**30, 381566830.0 / 2**60, 0.9016312093258695918615325266959189453125e-19)
_Y = 0.99558162689208984375
_DP = (
    0.254798510611315515235, -0.314628554532916496608, -0.665836341559876230295, -0.314767657147375752913,
    -0.0541156266153505273939, -0.00289268368333918761452,
)  # fmt: skip
_DQ = (
    1.0, 2.1195759927055347547, 1.54350554664961128724, 0.486986018231042975162, 0.0660481487173569812846,
    0.00298999662592323990972, -0.165079794012604905639e-5, 0.317940243105952177571e-7,
)  # fmt: skip

# The Bernoulli numbers B2, B4, ...
_BERNOULLI = [Fraction(*pair) for pair in (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798), (-174611, 330),
    (854513, 138), (-236364091, 2730),
)]  # fmt: skip
# DLMF 5.11.2
_DIGAMMA_SERIES = tuple(float(-b / (2 * k)) for k, b in enumerate(_BERNOULLI[:8], 1))


def digamma_series(x: Array) -> Array:
    """`digamma(x) - log(x) + 1 / (2 * x)` for x >= `DIGAMMA_SERIES_FROM`."""
    z = 1 / x
    z = z * z
    return z * polynomial(_DIGAMMA_SERIES, z)


def _digamma_from_1(xp: Namespace, m: Array) -> Array:
    """`digamma(1 + m)` for m >= 0."""

    def to_nine(m: Array) -> Array:
        # digamma(x + 1) = digamma(x) + 1 / x leads back to the interval from 1 to 2.
        total = 0 * m
        for _ in range(8):
            high = m > 1
            total = xp.where(high, total + 1 / xp.where(high, m, 1), total)
            m = xp.where(high, m - 1, m)
        from_zero = ((m - (_DIGAMMA_ZERO[0] - 1)) - _DIGAMMA_ZERO[1]) - _DIGAMMA_ZERO[2]
        return total + from_zero * (_Y + polynomial(_DP, m) / polynomial(_DQ, m))

    def beyond(m: Array) -> Array:
        x = 1 + m
        return xp.log(x) - 0.5 / x + digamma_series(x)

    return by_interval(xp, m, (9.0, _MAX), to_nine, beyond)


@in_double
def _digamma_kernel(xp: Namespace, x: Array) -> Array:
    a = xp.abs(x)
    value = _digamma_from_1(xp, xp.where(x >= 1, x - 1, a))
    positive = value - xp.where(a < 1, 1 / xp.clip(a, _RECIPROCAL_OVERFLOWS_BELOW, 1.0), 0)
    # digamma(-a) = digamma(1 + a) + pi * cot(pi * a), DLMF 5.5.4
    inner = xp.clip(a, _RECIPROCAL_OVERFLOWS_BELOW, _ALL_INTEGERS_FROM)
    part = inner - xp.round(inner)
    whole = part == 0
    pi_cot = math.pi / xp.tan(math.pi * xp.where(whole, 0.25, part))
    negative = xp.where(xp.logical_or(whole, a == math.inf), math.nan, value + pi_cot)
    result = xp.where(x < 0, negative, xp.where(a == math.inf, math.inf, positive))
    tiny = a < _RECIPROCAL_OVERFLOWS_BELOW
    return xp.where(tiny, xp.copysign(xp.where(tiny, math.inf, a), -x), result)


@elementwise(x=lambda xp, x: xp.polygamma(1, x), kernel=_digamma_kernel, samples=unary(0.2, 12), complex_kernel=REFUSED)
def digamma(x: ArrayLike, /) -> Tensor:
    """The derivative of :func:`gammaln`. It is NaN at the negative integers, -inf at 0 and inf at -0.

    >>> import tape_core as tc
    >>> print(f"{tc.digamma(1.0):.4f}")
    -0.5772

    Near its zero at 1.46 it has full relative precision; near its zeros between the negative integers it has an
    absolute error of about 1e-15. Source: Boost's digamma.hpp (Maddock, 2006).
    """


# The coefficients of the Euler-Maclaurin formula, B_2k / (2k)!.
_EULER_MACLAURIN = tuple(float(b / math.factorial(2 * k)) for k, b in enumerate(_BERNOULLI, 1))
_TERMS_SUMMED = 10  # terms of the sum itself, before the formula takes over
_MAX_ORDER = 100  # of polygamma


def _hurwitz(xp: Namespace, s: int, q: Array, unit: float) -> Array:
    """The sum of `((q + k) / unit) ** -s` over k = 0, 1, ..., for q > 0: `unit**s` times Hurwitz' zeta function.

    It is computed by the Euler-Maclaurin formula, DLMF 25.11.5.
    """
    total = xp.pow(q / unit, -float(s))
    for k in range(1, _TERMS_SUMMED):
        total = total + xp.pow((q + k) / unit, -float(s))
    # The rest of the sum: the integral from w on, half of the term at w, and corrections by the derivatives at w, whose
    # factors are the rising factorials of s.
    w = q + _TERMS_SUMMED
    z = 1 / w
    rising = [float(s)]
    for j in range(1, len(_EULER_MACLAURIN)):
        rising.append(rising[-1] * (s + 2 * j - 1) * (s + 2 * j))
    series = polynomial([c * r for c, r in zip(_EULER_MACLAURIN, rising, strict=True)], z * z)
    return total + unit * xp.pow(w / unit, 1 - float(s)) * (1 / (s - 1) + z * (0.5 + z * series))


@lru_cache
def _cot_derivative(n: int) -> tuple[int, ...]:
    """The coefficients of the p with (-1)**n * p(cos(t)) / sin(t)**(n + 1) for the n-th derivative of cot."""
    p = [0, 1]
    for k in range(n):  # differentiate once more; sin(t)**2 is replaced by 1 - cos(t)**2
        following = [0] * (len(p) + 1)
        for power, c in enumerate(p):
            if power:
                following[power - 1] += power * c
            following[power + 1] += (k + 1 - power) * c
        p = following
    return tuple(p)


def _check_order(n: object) -> int:
    try:
        order = operator.index(n)  # type: ignore[arg-type] # refuses whatever has no `__index__`
    except TypeError as error:
        if type(error) is not TypeError:  # of a library that has no value now, and will be asked again
            raise
        raise TypeError("n must be one integer") from None
    if not 0 <= order <= _MAX_ORDER:
        raise ValueError(f"n must be between 0 and {_MAX_ORDER}, got {order}")
    return order


def _polygamma_kernel(xp: Namespace, n: Array, x: Array) -> Array:
    order = _check_order(n)
    if not is_array(x):
        check_real(xp, x)
        x = xp.zeros_beside(n, (), dtype=getattr(xp, dtypes.get_default_dtype().name)) + x
    return in_double(partial(_polygamma, order))(xp, x) if order else xp.digamma(x)


def _polygamma(n: int, xp: Namespace, x: Array) -> Array:
    s, sign = n + 1, (-1.0) ** (n + 1)
    factorial = math.factorial(n)
    # DLMF 25.11.12: polygamma(n, x) = (-1)**(n + 1) * n! * zeta(n + 1, x). The powers may underflow where their product
    # with n! does not, so n! is split into rest * (2**bits)**s, and the powers take the second factor.
    bits = (factorial.bit_length() - 1) // s
    rest = factorial / 2 ** (bits * s)
    least = math.exp((math.lgamma(s) - 709.78) / s)  # for smaller x, n! / x**s overflows: exp(709.78) is about _MAX
    a = xp.abs(x)
    q = xp.where(x > 0, xp.maximum(x, least), 1 + a)
    tail = rest * _hurwitz(xp, s, xp.minimum(q, _MAX), 2.0**bits)
    positive = sign * xp.where(x < least, math.inf, xp.where(x == math.inf, 0, tail))
    # Below 0 by the reflection formula with the n-th derivative of cot, DLMF 5.15.6.
    inner = xp.clip(a, 0.0, _ALL_INTEGERS_FROM)
    part = -(inner - xp.round(inner))
    near = xp.abs(part)
    r = xp.maximum(near, least)
    p = [c / 2 ** (bits * s) for c in _cot_derivative(n)]
    pole = polynomial(p, xp.cos(math.pi * r)) * xp.pow(2.0**bits * math.pi / xp.sin(math.pi * r), float(s))
    pole = xp.where(near < least, math.inf, pole)
    pole = xp.where(part < 0, sign * pole, pole)
    reflected = xp.where(a == math.inf, sign * math.inf, sign * pole - tail)
    return xp.where(x > 0, positive, xp.where(x <= 0, reflected, x))


def _polygamma_samples(draw: Draw) -> Iterator[Sample]:
    for n in (0, 1, 2, 5):
        yield Sample(n, draw(2, 3, low=0.6, high=9))
    yield Sample(1, draw(2, 2, low=-2.8, high=-2.2))
    yield Sample(2, draw(low=-0.8, high=-0.2))
    yield Sample(3, draw(0, 2))
    yield Refused(ValueError, "n must be between 0 and 100, got -1", -1, draw(2))
    yield Refused(TypeError, "n must be one integer", 0.5, draw(2))


@elementwise(
    n=NONDIFF,
    x=lambda xp, n, x: xp.polygamma(n + 1, x),
    kernel=_polygamma_kernel,
    samples=_polygamma_samples,
    complex_kernel=REFUSED,
)
def polygamma(n: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The n-th derivative of :func:`digamma`, for a single integer `n` from 0 to 100. It is infinite at 0, -1, -2, ...

    >>> import tape_core as tc
    >>> print(f"{tc.polygamma(1, 1.0):.4f}")
    1.6449

    Source: the Euler-Maclaurin formula and the reflection formula, as in NIST's Digital Library of Mathematical
    Functions, 25.11.5 and 5.15.6.

    Raises:
        TypeError: `n` is not a single integer.
        ValueError: `n` is negative or above 100.
    """


@in_double
def _betaln_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    low, high = xp.minimum(a, b), xp.maximum(a, b)
    # Where one argument is large, the values of gammaln would cancel. Stirling's series of them are combined instead,
    # as in TOMS 708, with the large terms collected.
    far = xp.logical_and(high >= STIRLING_FROM, high + low >= STIRLING_FROM)
    x, y = xp.where(far, low, 1), xp.clip(xp.where(far, high, STIRLING_FROM), STIRLING_FROM, _HALF_MAX)
    log_low = xp.gammaln(xp.clip(low, -_ALL_INTEGERS_FROM, _ALL_INTEGERS_FROM))
    both = xp.clip(x, STIRLING_FROM, _HALF_MAX)
    ratio = both / y
    size = by_interval(
        xp,
        x,
        (STIRLING_FROM,),
        lambda x: xp.where(xp.isinf(log_low), 0, log_low) - x * (xp.log(y) - 1) - (x + y - 0.5) * xp.log1p(x / y),
        lambda _: (
            (both - 0.5) * xp.log(ratio / (1 + ratio))
            - y * xp.log1p(ratio)
            - 0.5 * xp.log(y)
            + (_HALF_LOG_2PI + stirling_correction(both))
        ),
    )
    size = size + (stirling_correction(y) - stirling_correction(xp.maximum(x + y, STIRLING_FROM)))
    x, y = xp.where(far, 1, low), xp.where(far, 1, high)
    x, y = xp.clip(x, -_ALL_INTEGERS_FROM, STIRLING_FROM), xp.clip(y, -_ALL_INTEGERS_FROM, _ALL_INTEGERS_FROM)
    log_high, log_both = xp.gammaln(y), xp.gammaln(x + y)
    pole = xp.logical_or(xp.isinf(log_low), xp.isinf(log_high))
    near = xp.where(pole, 0, log_low) + xp.where(pole, 0, log_high) - xp.where(pole, 0, log_both)
    size = xp.where(pole, math.inf, xp.where(far, size, near))
    return xp.where(high == math.inf, xp.where(low > 0, -math.inf, xp.where(low <= 0, math.inf, low)), size)


def digamma_difference(xp: Namespace, a: Array, b: Array) -> Array:
    """`digamma(a) - digamma(a + b)`, without cancellation where a is large."""
    a, b = as_floats(xp, a, b)
    total = a + b
    far = xp.logical_and(a >= DIGAMMA_SERIES_FROM, total >= DIGAMMA_SERIES_FROM)
    x, y = xp.where(far, a + xp.zeros_like(total), DIGAMMA_SERIES_FROM), xp.where(far, b + xp.zeros_like(total), 1)
    difference = digamma_series(x) - digamma_series(x + y) - y / x / (2 * (x + y)) - xp.log1p(y / x)
    return xp.where(far, difference, xp.digamma(a) - xp.digamma(total))


@elementwise(
    a=lambda xp, a, b: digamma_difference(xp, a, b),
    b=lambda xp, a, b: digamma_difference(xp, b, a),
    kernel=_betaln_kernel,
    samples=binary(0.3, 12),
    complex_kernel=REFUSED,
)
def betaln(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The logarithm of the beta function, `gammaln(a) + gammaln(b) - gammaln(a + b)`, without cancellation.

    >>> import tape_core as tc
    >>> print(f"{tc.betaln(2.0, 3.0):.4f}")
    -2.4849

    Source: DiDonato and Morris, Algorithm 708, ACM Transactions on Mathematical Software 18 (1992).
    """
