"""More functions under the names of `scipy.special` that are made of other ops: factorials, Box-Cox, degrees, means."""

from __future__ import annotations

import math

from tape_core.engine.tensor import Tensor
from tape_core.ops import elementwise as ew
from tape_core.ops.elementwise import where
from tape_core.ops.special.approximation import LOG_RATIO, polynomial, series_near_0
from tape_core.ops.special.by_scipy import jv, kv, yv
from tape_core.ops.special.composed import beta, boxcox_of_log, is_pole, reflection, sign_of_gamma, to_float_tensors
from tape_core.ops.special.gamma import gammaln
from tape_core.typing import ArrayLike

# -- factorials


def poch(z: ArrayLike, m: ArrayLike, /) -> Tensor:
    """The rising factorial, `gamma(z + m) / gamma(z)`."""
    z, m = to_float_tensors(z, m)
    above = z + m
    # Where both are infinite, the quotient is that of the reflected arguments. Where only the second one is, it is 0,
    # and has the derivatives of the reflection formula.
    poles = is_pole(z) & is_pole(above)
    turned = (z < 0.5) & ~poles
    first, last = where(poles, 1.0 - above, where(turned, 1.0 - z, z)), where(poles, 1.0 - z, above)
    whole = ew.floor(m)
    sign = where(poles, 1.0 - 2.0 * ew.remainder(whole, 2.0), sign_of_gamma(first) * sign_of_gamma(last))
    size = ew.exp(gammaln(last) + where(turned, 1.0, -1.0) * gammaln(first))
    # Where both are infinite it is 0 for all other m, so that a derivative by m is to be infinite: that of this root.
    jump = where(poles, 1.0 + ew.sqrt(where(poles, m - whole, 1.0)), 1.0)
    return sign * where(turned, reflection(where(turned, z, 0.0)), 1.0) * size * jump


def binom(n: ArrayLike, k: ArrayLike, /) -> Tensor:
    """The binomial coefficient of real numbers, `1 / ((n + 1) * beta(n - k + 1, k + 1))`.

    It is NaN for negative integers `n`.
    """
    n, k = to_float_tensors(n, k)
    undefined = (n < 0) & (n == ew.floor(n))
    n = where(undefined, 0.0, n)
    first = n - k < k
    low, high = where(first, n - k, k) + 1.0, where(first, k, n - k) + 1.0
    # 1 / beta(low, high), by the reflection formula where gamma(low) may have a pole: it is 0 there, with derivatives.
    turned = low < 0.5
    inner = where(turned, low, 0.0)
    reflected = reflection(inner) * high * beta(1.0 - inner, where(turned, n + 2.0, 1.0))
    direct = 1.0 / beta(where(turned, 1.0, low), where(turned, 1.0, high))
    return where(undefined, math.nan, where(turned, reflected, direct) / (n + 1.0))


# -- transformations


def boxcox1p(x: ArrayLike, lmbda: ArrayLike, /) -> Tensor:
    """`boxcox(1 + x, lmbda)`, accurate where `x` is small."""
    x, lmbda = to_float_tensors(x, lmbda)
    return boxcox_of_log(ew.log1p(where(x == -1, 0.0, x)), 1.0 + x, lmbda)


def inv_boxcox(y: ArrayLike, lmbda: ArrayLike, /) -> Tensor:
    """The `x` of which `boxcox(x, lmbda)` is `y`."""
    y, lmbda = to_float_tensors(y, lmbda)
    return ew.exp(_log1p_ratio(y, lmbda))


def inv_boxcox1p(y: ArrayLike, lmbda: ArrayLike, /) -> Tensor:
    """The `x` of which `boxcox1p(x, lmbda)` is `y`."""
    y, lmbda = to_float_tensors(y, lmbda)
    return ew.expm1(_log1p_ratio(y, lmbda))


def _log1p_ratio(y: Tensor, lmbda: Tensor) -> Tensor:
    """`log(1 + lmbda * y) / lmbda`, which is `y` where `lmbda` is 0."""
    ratio: Tensor = series_near_0(ew, lmbda * y, 0.05, lambda t: polynomial(LOG_RATIO, t), lambda t: ew.log1p(t) / t)
    return y * ratio


def powm1(x: ArrayLike, y: ArrayLike, /) -> Tensor:
    """`x**y - 1`, accurate where `x` is near 1 or `y` near 0."""
    x, y = to_float_tensors(x, y)
    near = (x > 0.5) & (x < 2)
    return where(near, ew.expm1(y * ew.log(where(near, x, 1.0))), ew.pow(where(near, 2.0, x), y) - 1.0)


def cosm1(x: ArrayLike, /) -> Tensor:
    """`cos(x) - 1`, accurate where `x` is small."""
    (x,) = to_float_tensors(x)
    sine = ew.sin(0.5 * x)
    return -2.0 * sine * sine


# -- degrees


def radian(d: ArrayLike, m: ArrayLike, s: ArrayLike, /) -> Tensor:
    """An angle of degrees, minutes and seconds in radians."""
    d, m, s = to_float_tensors(d, m, s)
    result: Tensor = ((d * 60.0 + m) * 60.0 + s) * (math.pi / 648000)
    return result


def sindg(x: ArrayLike, /) -> Tensor:
    """The sine of an angle in degrees, exact at multiples of 90."""
    (x,) = to_float_tensors(x)
    quarter = ew.round(x / 90.0)
    turned = (x - 90.0 * quarter) * (math.pi / 180)
    which = ew.remainder(quarter, 4.0)
    sine, cosine = ew.sin(turned), ew.cos(turned)
    return where(which == 0, sine, where(which == 1, cosine, where(which == 2, -sine, -cosine)))


def cosdg(x: ArrayLike, /) -> Tensor:
    """The cosine of an angle in degrees, exact at multiples of 90."""
    (x,) = to_float_tensors(x)
    return sindg(x + 90.0)


def tandg(x: ArrayLike, /) -> Tensor:
    """The tangent of an angle in degrees, inf at odd multiples of 90."""
    (x,) = to_float_tensors(x)
    sine, cosine = sindg(x), cosdg(x)
    return where(cosine == 0, math.inf, sine / where(cosine == 0, 1.0, cosine))


def cotdg(x: ArrayLike, /) -> Tensor:
    """The cotangent of an angle in degrees, inf at multiples of 180."""
    (x,) = to_float_tensors(x)
    sine, cosine = sindg(x), cosdg(x)
    return where(sine == 0, math.inf, cosine / where(sine == 0, 1.0, sine))


# -- Bessel functions of real numbers


def kn(n: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and integer order `n`; see :func:`jv` for its derivatives."""
    n, x = to_float_tensors(n, x)
    result: Tensor = kv(ew.trunc(n), x)
    return result


def jve(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(-abs(imag(x))) * jv(v, x)`, which is `jv(v, x)` for real `x`."""
    result: Tensor = jv(v, x)
    return result


def yve(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(-abs(imag(x))) * yv(v, x)`, which is `yv(v, x)` for real `x`."""
    result: Tensor = yv(v, x)
    return result


def hankel1(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Hankel function of the first kind, `jv(v, x) + 1j * yv(v, x)`, of real numbers `x`; see :func:`jv`."""
    j, y = _bessel(v, x)
    return j + 1j * y


def hankel2(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Hankel function of the second kind, `jv(v, x) - 1j * yv(v, x)`, of real numbers `x`; see :func:`jv`."""
    j, y = _bessel(v, x)
    return j - 1j * y


def _bessel(v: ArrayLike, x: ArrayLike) -> tuple[Tensor, Tensor]:
    """The Bessel functions of both kinds, continued above the real axis to negative numbers, where they are complex."""
    v, x = to_float_tensors(v, x)
    size = ew.abs(x)
    j, y = jv(v, size), yv(v, size)
    turn, negative = ew.exp(1j * math.pi * v), x < 0
    j = where(negative, turn * j, 1.0 * j)
    back = ew.conj(turn) * y + 2j * ew.cos(math.pi * v) * jv(v, size)
    return j, where(negative, back, 1.0 * y)


def hankel1e(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(-1j * x) * hankel1(v, x)`, of real numbers `x`."""
    v, x = to_float_tensors(v, x)
    return ew.exp(-1j * x) * hankel1(v, x)


def hankel2e(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(1j * x) * hankel2(v, x)`, of real numbers `x`."""
    v, x = to_float_tensors(v, x)
    return ew.exp(1j * x) * hankel2(v, x)


# -- means


def agm(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The arithmetic-geometric mean of two numbers of the same sign; NaN for others."""
    a, b = to_float_tensors(a, b)
    inside = a * b > 0
    one, other = where(inside, ew.abs(a), 1.0), where(inside, ew.abs(b), 1.0)
    for _ in range(12):  # the number of right digits doubles: from 1e-300 to 1 it takes 11 steps
        one, other = 0.5 * (one + other), ew.sqrt(one) * ew.sqrt(other)
    return where(inside, ew.sign(a) * one, where((a == 0) | (b == 0), 0.0 * a * b, math.nan))


def ellipkm1(p: ArrayLike, /) -> Tensor:
    """The complete elliptic integral of the first kind near 1, `ellipk(1 - p)`; NaN for negative `p`."""
    (p,) = to_float_tensors(p)
    return 0.5 * math.pi / agm(1.0, ew.sqrt(p))
