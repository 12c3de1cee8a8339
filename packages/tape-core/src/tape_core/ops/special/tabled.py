"""A table of special functions that SciPy computes: for each its derivative, by other functions of the table.

A row is a function of `scipy.special`, or one of the results of such a function, with its derivatives by a formula of
NIST's Digital Library of Mathematical Functions (DLMF). A parameter for which no such formula is known has `TODO`: its
gradient is an error that says so. `several` puts results together again under SciPy's names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tape_core.engine.op import NONDIFF, REFUSED, TODO, elementwise
from tape_core.engine.samples import Draw, Refused, Sample, Samples
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import (
    FADDEEVA_SERIES_FROM,
    even_series,
    faddeeva_series,
    in_double,
    is_array,
    polynomial,
    series_near_0,
    sine_over,
)
from tape_core.ops.special.by_scipy import by_scipy
from tape_core.ops.special.incomplete import as_array
from tape_core.typing import Array, ArrayLike, Namespace

Declared = Callable[..., Any]


class Bounds(NamedTuple):
    """How large the parameters of a function of SciPy and its last argument may be."""

    parameters: float
    argument: float = math.inf


SCIPY_BOUNDS = {"hyp1f1": Bounds(1e3, 1e8), "hyp2f1": Bounds(1e3), "pbdv": Bounds(1e3), "pbvv": Bounds(1e3)}
"""Bounds beyond which SciPy runs on for minutes or for ever, or out of memory: it is not called there, and NaN is
the result."""


def row(scipy_name: str, part: int | None, samples: Samples, /, **rules: Any) -> Declared:
    """Declare an op that is a function of `scipy.special`, or its result number `part`, of real numbers."""
    bounds = SCIPY_BOUNDS.get(scipy_name)

    def kernel(xp: Namespace, *values: Array) -> Array:
        if bounds is not None:
            *parameters, argument = values
            parameters = [_bounded(xp, v, bounds.parameters) for v in parameters]
            values = (*parameters, _bounded(xp, argument, bounds.argument))
        return by_scipy(scipy_name, xp, *values, part=part)

    return elementwise(kernel=in_double(kernel), samples=samples, complex_kernel=REFUSED, **rules)


def _bounded(xp: Namespace, v: Array, largest: float) -> Array:
    if largest == math.inf:
        return v
    if not is_array(v):
        return v if abs(v) <= largest else math.nan
    return xp.where(xp.abs(v) <= largest, v, math.nan)


def complex_row(scipy_name: str, samples: Samples, /, **rules: Any) -> Declared:
    """Declare an op that is a function of `scipy.special` of complex numbers."""

    def kernel(xp: Namespace, z: Array, **parameters: Any) -> Array:
        if not is_array(z) or not xp.isdtype(z.dtype, "complex floating"):
            raise TypeError("it takes arrays of complex numbers")
        return by_scipy(scipy_name, xp, z, **parameters)

    return elementwise(kernel=kernel, samples=samples, **rules)


def _complex_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw.complex(2, 3))
    yield Refused(TypeError, "complex numbers", draw(2))


def sampled(*ranges: tuple[float, float]) -> Samples:
    """One sample, with an input from each range: all rows share one kernel, and other ops check it at length."""

    def samples(draw: Draw) -> Iterator[Sample]:
        shapes = [(2, 3), *[(3,)] * (len(ranges) - 1)]
        yield Sample(*[draw(*shape, low=a, high=b) for shape, (a, b) in zip(shapes, ranges, strict=True)])

    return samples


# -- integrals: the derivative is the integrand


@row("fresnel", 0, sampled((-3, 3)), x=lambda xp, x: xp.sin(0.5 * math.pi * x * x))
def fresnel_s(x: ArrayLike, /) -> Tensor:
    """Fresnel's integral S, DLMF 7.2.8."""


@row("fresnel", 1, sampled((-3, 3)), x=lambda xp, x: xp.cos(0.5 * math.pi * x * x))
def fresnel_c(x: ArrayLike, /) -> Tensor:
    """Fresnel's integral C, DLMF 7.2.7."""


@row("sici", 0, sampled((-6, 6)), x=lambda xp, x: sine_over(xp, x))
def sine_integral(x: ArrayLike, /) -> Tensor:
    """The sine integral Si, DLMF 6.2.9."""


@row("sici", 1, sampled((0.3, 6)), x=lambda xp, x: xp.cos(x) / x)
def cosine_integral(x: ArrayLike, /) -> Tensor:
    """The cosine integral Ci, DLMF 6.2.11."""


_SINH_RATIO = tuple(1 / math.factorial(2 * k + 1) for k in range(12))


def _shi_partial(xp: Namespace, x: Array) -> Array:
    return even_series(xp, x, 1.0, _SINH_RATIO, lambda x: xp.sinh(x) / x)


@row("shichi", 0, sampled((-4, 4)), x=_shi_partial)
def sinh_integral(x: ArrayLike, /) -> Tensor:
    """The hyperbolic sine integral Shi, DLMF 6.2.15."""


@row("shichi", 1, sampled((0.3, 4)), x=lambda xp, x: xp.cosh(x) / x)
def cosh_integral(x: ArrayLike, /) -> Tensor:
    """The hyperbolic cosine integral Chi, DLMF 6.2.16."""


@row("itj0y0", 0, sampled((0.3, 6)), x=lambda xp, x: xp.j0(x))
def integral_j0(x: ArrayLike, /) -> Tensor:
    """The integral of `j0` from 0 to `x`."""


@row("itj0y0", 1, sampled((0.3, 6)), x=lambda xp, x: xp.y0(x))
def integral_y0(x: ArrayLike, /) -> Tensor:
    """The integral of `y0` from 0 to `x`."""


_ONE_LESS_J0 = tuple(-((-1.0) ** k) / (4**k * math.factorial(k) ** 2) for k in range(1, 13))
_I0_LESS_ONE = tuple(1 / (4**k * math.factorial(k) ** 2) for k in range(1, 13))


def _j0_over_partial(xp: Namespace, x: Array) -> Array:
    return x * even_series(xp, x, 2.0, _ONE_LESS_J0, lambda x: (1 - xp.j0(x)) / (x * x))


@row("it2j0y0", 0, sampled((0.3, 6)), x=_j0_over_partial)
def integral_j0_over(x: ArrayLike, /) -> Tensor:
    """The integral of `(1 - j0(t)) / t` from 0 to `x`."""


@row("it2j0y0", 1, sampled((0.3, 6)), x=lambda xp, x: -xp.y0(x) / x)
def integral_y0_over(x: ArrayLike, /) -> Tensor:
    """The integral of `y0(t) / t` from `x` to infinity."""


@row("iti0k0", 0, sampled((0.3, 6)), x=lambda xp, x: xp.i0(x))
def integral_i0(x: ArrayLike, /) -> Tensor:
    """The integral of `i0` from 0 to `x`."""


@row("iti0k0", 1, sampled((0.3, 6)), x=lambda xp, x: xp.k0(x))
def integral_k0(x: ArrayLike, /) -> Tensor:
    """The integral of `k0` from 0 to `x`."""


def _i0_over_partial(xp: Namespace, x: Array) -> Array:
    return x * even_series(xp, x, 2.0, _I0_LESS_ONE, lambda x: (xp.i0(x) - 1) / (x * x))


@row("it2i0k0", 0, sampled((0.3, 6)), x=_i0_over_partial)
def integral_i0_over(x: ArrayLike, /) -> Tensor:
    """The integral of `(i0(t) - 1) / t` from 0 to `x`."""


@row("it2i0k0", 1, sampled((0.3, 6)), x=lambda xp, x: -xp.k0(x) / x)
def integral_k0_over(x: ArrayLike, /) -> Tensor:
    """The integral of `k0(t) / t` from `x` to infinity."""


@row("itstruve0", None, sampled((0.3, 6)), x=lambda xp, x: xp.struve(0.0, x))
def itstruve0(x: ArrayLike, /) -> Tensor:
    """The integral of Struve's function of order 0 from 0 to `x`."""


_STRUVE_RATIO = tuple(-2 / math.pi * (-1.0) ** k / math.prod(range(1, 2 * k + 2, 2)) ** 2 for k in range(12))


def _struve_over_partial(xp: Namespace, x: Array) -> Array:
    return even_series(xp, x, 1.0, _STRUVE_RATIO, lambda x: -xp.struve(0.0, x) / x)


@row("it2struve0", None, sampled((0.3, 6)), x=_struve_over_partial)
def it2struve0(x: ArrayLike, /) -> Tensor:
    """The integral of `struve(0, t) / t` from `x` to infinity."""


@row("itmodstruve0", None, sampled((0.3, 5)), x=lambda xp, x: xp.modstruve(0.0, x))
def itmodstruve0(x: ArrayLike, /) -> Tensor:
    """The integral of the modified Struve function of order 0 from 0 to `x`."""


def _expn_samples(draw: Draw) -> Iterator[Sample]:
    for n in (0, 2):
        yield Sample(n, draw(2, 3, low=0.3, high=5))


def _expn_partial(xp: Namespace, n: Array, x: Array) -> Array:
    # DLMF 8.19.13; E_0 is exp(-x) / x.
    first = n == 0
    if not is_array(n):
        return -xp.exp(-x) / x * (1 + 1 / x) if first else -xp.expn(n - 1, x)
    return xp.where(first, -xp.exp(-x) / x * (1 + 1 / x), -xp.expn(xp.where(first, 0, n - 1), x))


@row("expn", None, _expn_samples, n=NONDIFF, x=_expn_partial)
def expn(n: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The generalized exponential integral of whole order: the integral of `exp(-x * t) / t**n` from 1 to infinity."""


# -- Airy functions: w'' = x w, DLMF 9.2.1. The scaled ones are times exp(±2 / 3 x**1.5), whose derivative is ±sqrt(x).


@row("airy", 0, sampled((-4, 3)), x=lambda xp, x: xp.airy_ai_slope(x))
def airy_ai(x: ArrayLike, /) -> Tensor:
    """The Airy function Ai."""


@row("airy", 1, sampled((-4, 3)), x=lambda xp, x: x * xp.airy_ai(x))
def airy_ai_slope(x: ArrayLike, /) -> Tensor:
    """The derivative of the Airy function Ai."""


@row("airy", 2, sampled((-4, 3)), x=lambda xp, x: xp.airy_bi_slope(x))
def airy_bi(x: ArrayLike, /) -> Tensor:
    """The Airy function Bi."""


@row("airy", 3, sampled((-4, 3)), x=lambda xp, x: x * xp.airy_bi(x))
def airy_bi_slope(x: ArrayLike, /) -> Tensor:
    """The derivative of the Airy function Bi."""


def _root(xp: Namespace, x: Array) -> Array:
    """The square root, and 0 below 0: there the scaled Bi is Bi."""
    return xp.where(x >= 0, xp.sqrt(xp.where(x >= 0, x, 1)), 0)


@row("airye", 0, sampled((0.3, 5)), x=lambda xp, x, out: xp.airye_ai_slope(x) + xp.sqrt(x) * out)
def airye_ai(x: ArrayLike, /) -> Tensor:
    """The scaled Airy function Ai, NaN below 0."""


@row("airye", 1, sampled((0.3, 5)), x=lambda xp, x, out: x * xp.airye_ai(x) + xp.sqrt(x) * out)
def airye_ai_slope(x: ArrayLike, /) -> Tensor:
    """The scaled derivative of the Airy function Ai, NaN below 0."""


@row("airye", 2, sampled((0.3, 5)), x=lambda xp, x, out: xp.airye_bi_slope(x) - _root(xp, x) * out)
def airye_bi(x: ArrayLike, /) -> Tensor:
    """The scaled Airy function Bi."""


@row("airye", 3, sampled((0.3, 5)), x=lambda xp, x, out: x * xp.airye_bi(x) - _root(xp, x) * out)
def airye_bi_slope(x: ArrayLike, /) -> Tensor:
    """The scaled derivative of the Airy function Bi."""


@row("itairy", 0, sampled((0.3, 1.5)), x=lambda xp, x: xp.airy_ai(x))
def integral_ai(x: ArrayLike, /) -> Tensor:
    """The integral of Ai from 0 to `x`."""


@row("itairy", 1, sampled((0.3, 1.5)), x=lambda xp, x: xp.airy_bi(x))
def integral_bi(x: ArrayLike, /) -> Tensor:
    """The integral of Bi from 0 to `x`."""


@row("itairy", 2, sampled((0.3, 1.5)), x=lambda xp, x: xp.airy_ai(-x))
def integral_ai_below(x: ArrayLike, /) -> Tensor:
    """The integral of Ai from `-x` to 0."""


@row("itairy", 3, sampled((0.3, 1.5)), x=lambda xp, x: xp.airy_bi(-x))
def integral_bi_below(x: ArrayLike, /) -> Tensor:
    """The integral of Bi from `-x` to 0."""


# -- Kelvin functions: w'' + w' / x = 1j * w for ber + 1j * bei and ker + 1j * kei, DLMF 10.61.3


@row("ber", None, sampled((0.3, 5)), x=lambda xp, x: xp.berp(x))
def ber(x: ArrayLike, /) -> Tensor:
    """Kelvin's function ber."""


@row("bei", None, sampled((0.3, 5)), x=lambda xp, x: xp.beip(x))
def bei(x: ArrayLike, /) -> Tensor:
    """Kelvin's function bei."""


@row("ker", None, sampled((0.3, 5)), x=lambda xp, x: xp.kerp(x))
def ker(x: ArrayLike, /) -> Tensor:
    """Kelvin's function ker."""


@row("kei", None, sampled((0.3, 5)), x=lambda xp, x: xp.keip(x))
def kei(x: ArrayLike, /) -> Tensor:
    """Kelvin's function kei."""


# berp(x) / x**3 and beip(x) / x as series in x**4, exact in float64 up to 2
_BERP_RATIO = tuple((-1.0) ** k * k / (4 * 16 ** (k - 1) * math.factorial(2 * k) ** 2) for k in range(1, 10))
_BEIP_RATIO = tuple((-1.0) ** k * (k + 0.5) / (16**k * math.factorial(2 * k + 1) ** 2) for k in range(9))


def _berp_partial(xp: Namespace, x: Array, out: Array) -> Array:
    def series(x: Array) -> Array:
        square = x * x
        return square * polynomial(_BERP_RATIO, square * square)

    return -xp.bei(x) - series_near_0(xp, x, 2.0, series, lambda x: out / x)


def _beip_partial(xp: Namespace, x: Array, out: Array) -> Array:
    def series(x: Array) -> Array:
        square = x * x
        return polynomial(_BEIP_RATIO, square * square)

    return xp.ber(x) - series_near_0(xp, x, 2.0, series, lambda x: out / x)


@row("berp", None, sampled((0.3, 5)), x=_berp_partial)
def berp(x: ArrayLike, /) -> Tensor:
    """The derivative of `ber`."""


@row("beip", None, sampled((0.3, 5)), x=_beip_partial)
def beip(x: ArrayLike, /) -> Tensor:
    """The derivative of `bei`."""


@row("kerp", None, sampled((0.3, 5)), x=lambda xp, x, out: -xp.kei(x) - out / x)
def kerp(x: ArrayLike, /) -> Tensor:
    """The derivative of `ker`."""


@row("keip", None, sampled((0.3, 5)), x=lambda xp, x, out: xp.ker(x) - out / x)
def keip(x: ArrayLike, /) -> Tensor:
    """The derivative of `kei`."""


# -- Struve functions, DLMF 11.4.23 to 11.4.26; parabolic cylinder functions, whose equations are DLMF 12.2.2 and 12.2.3


def _struve_partial(xp: Namespace, v: Array, x: Array, name: str, sign: float) -> Array:
    # The formula without a quotient by x, which holds at 0. Of order 0 and -1 its terms would be infinite there: these
    # functions differ by constants from one of order 1 and from that of order 0's derivative.
    struve, v = getattr(xp, name), as_array(xp, v, x)
    first, turned = v == 0, v == -1
    v = xp.where(turned, 1, v)
    pole = (v + 1.5 <= 0) & (v + 1.5 == xp.floor(v + 1.5))
    source = xp.where(pole, 0, xp.pow(0.5 * x, v) / (math.sqrt(math.pi) * xp.gamma(xp.where(pole, 1, v + 1.5))))
    below, above = struve(xp.where(first, v, v - 1), x), sign * struve(v + 1, x)
    whole = below - above + source
    return xp.where(first, source - above, 0.5 * xp.where(turned, -sign * whole, whole))


@row(
    "struve",
    None,
    sampled((0.2, 3), (0.5, 6)),
    v=TODO,
    x=lambda xp, v, x: _struve_partial(xp, v, x, "struve", 1.0),
)
def struve(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """Struve's function of real order `v`; it has a derivative with respect to `x` alone."""


@row(
    "modstruve",
    None,
    sampled((0.2, 3), (0.5, 6)),
    v=TODO,
    x=lambda xp, v, x: _struve_partial(xp, v, x, "modstruve", -1.0),
)
def modstruve(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Struve function of real order `v`; it has a derivative with respect to `x` alone."""


@row("pbdv", 0, sampled((0.2, 3), (0.3, 3)), v=TODO, x=lambda xp, v, x: xp.cylinder_d_slope(v, x))
def cylinder_d(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The parabolic cylinder function D; it has a derivative with respect to `x` alone."""


@row("pbdv", 1, sampled((0.2, 3), (0.3, 3)), v=TODO, x=lambda xp, v, x: (0.25 * x * x - v - 0.5) * xp.cylinder_d(v, x))
def cylinder_d_slope(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The derivative of the parabolic cylinder function D by `x`."""


@row("pbvv", 0, sampled((0.2, 3), (0.3, 3)), v=TODO, x=lambda xp, v, x: xp.cylinder_v_slope(v, x))
def cylinder_v(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The parabolic cylinder function V; it has a derivative with respect to `x` alone."""


@row("pbvv", 1, sampled((0.2, 3), (0.3, 3)), v=TODO, x=lambda xp, v, x: (0.25 * x * x - v - 0.5) * xp.cylinder_v(v, x))
def cylinder_v_slope(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The derivative of the parabolic cylinder function V by `x`."""


@row("pbwa", 0, sampled((0.2, 3), (0.3, 3)), a=TODO, x=lambda xp, a, x: xp.cylinder_w_slope(a, x))
def cylinder_w(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The parabolic cylinder function W; it has a derivative with respect to `x` alone."""


@row("pbwa", 1, sampled((0.2, 3), (0.3, 3)), a=TODO, x=lambda xp, a, x: (a - 0.25 * x * x) * xp.cylinder_w(a, x))
def cylinder_w_slope(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The derivative of the parabolic cylinder function W by `x`."""


# -- hypergeometric functions: DLMF 13.3.15, 13.3.22 and 15.5.1


@row(
    "hyp1f1",
    None,
    sampled((0.5, 3), (0.5, 3), (-2, 2)),
    a=TODO,
    b=TODO,
    x=lambda xp, a, b, x: a / b * xp.hyp1f1(a + 1, b + 1, x),
)
def hyp1f1(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """Kummer's confluent hypergeometric function; it has a derivative with respect to `x` alone.

    It is NaN where `a` or `b` is beyond 1,000, or `x` beyond 1e8: SciPy, which computes it, would not come back.
    """


@row(
    "hyperu",
    None,
    sampled((0.5, 3), (0.5, 3), (0.5, 3)),
    a=TODO,
    b=TODO,
    x=lambda xp, a, b, x: -a * xp.hyperu(a + 1, b + 1, x),
)
def hyperu(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """Tricomi's confluent hypergeometric function; it has a derivative with respect to `x` alone."""


@row(
    "hyp2f1",
    None,
    sampled((0.5, 3), (0.5, 3), (0.5, 3), (-0.8, 0.8)),
    a=TODO,
    b=TODO,
    c=TODO,
    x=lambda xp, a, b, c, x: a * b / c * xp.hyp2f1(a + 1, b + 1, c + 1, x),
)
def hyp2f1(a: ArrayLike, b: ArrayLike, c: ArrayLike, x: ArrayLike, /) -> Tensor:
    """Gauss's hypergeometric function; it has a derivative with respect to `x` alone."""


# -- others of several parameters


@row(
    "wright_bessel",
    None,
    sampled((0.5, 2), (0.5, 2), (0.2, 3)),
    a=TODO,
    b=TODO,
    x=lambda xp, a, b, x: xp.wright_bessel(a, a + b, x),
)
def wright_bessel(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """Wright's generalized Bessel function, DLMF 10.46.1; it has a derivative with respect to `x` alone."""


def _log_wright_partial(xp: Namespace, a: Array, b: Array, x: Array, out: Array) -> Array:
    return xp.exp(xp.log_wright_bessel(a, a + b, x) - out)


@row(
    "log_wright_bessel",
    None,
    sampled((0.5, 2), (0.5, 2), (0.2, 3)),
    a=TODO,
    b=TODO,
    x=_log_wright_partial,
)
def log_wright_bessel(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The logarithm of `wright_bessel`; it has a derivative with respect to `x` alone."""


def _lpmv_samples(draw: Draw) -> Iterator[Sample]:
    for m, v in ((1, 2.0), (0, 1.5)):
        yield Sample(m, v, draw(2, 3, low=-0.8, high=0.8))


def _lpmv_partial(xp: Namespace, m: Array, v: Array, x: Array, out: Array) -> Array:
    return ((m + v) * xp.lpmv(m, v - 1, x) - v * x * out) / (1 - x * x)  # DLMF 14.10.5


@row("lpmv", None, _lpmv_samples, m=NONDIFF, v=TODO, x=_lpmv_partial)
def lpmv(m: ArrayLike, v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The associated Legendre function of whole order `m` and real degree `v`, for `x` inside (-1, 1)."""


def _owens_by_h(xp: Namespace, h: Array, a: Array) -> Array:
    h, a = (as_array(xp, v, h if is_array(h) else a) for v in (h, a))
    return -xp.exp(-0.5 * h * h) * xp.erf(a * h * math.sqrt(0.5)) / (2 * math.sqrt(2 * math.pi))


def _owens_by_a(xp: Namespace, h: Array, a: Array) -> Array:
    square = 1 + a * a
    return xp.exp(-0.5 * h * h * square) / (2 * math.pi * square)


@row("owens_t", None, sampled((-2, 2), (-2, 2)), h=_owens_by_h, a=_owens_by_a)
def owens_t(h: ArrayLike, a: ArrayLike, /) -> Tensor:
    """Owen's T function (Owen, 1956)."""


# -- functions of complex numbers, and inverses of elementary ones


def _faddeeva_partial(xp: Namespace, z: Array, out: Array) -> Array:
    # Far out in the upper half of the plane, where there is no exponential part, the terms cancel.
    near = (xp.abs(z) < FADDEEVA_SERIES_FROM) | (xp.imag(z) < 0)
    series = faddeeva_series(xp.where(near, FADDEEVA_SERIES_FROM, z))
    return xp.where(near, -2 * z * out + 2j / math.sqrt(math.pi), series * (2j / math.sqrt(math.pi)))


@complex_row("wofz", _complex_samples, z=_faddeeva_partial)
def faddeeva(z: ArrayLike, /) -> Tensor:
    """Faddeeva's function of complex numbers, DLMF 7.10.3."""


def _lambert_samples(draw: Draw) -> Iterator[Sample]:
    for k in (0, -1):
        yield Sample(draw.complex(2, 3) + 1, k=k)
    yield Refused(TypeError, "complex numbers", draw(2))


@complex_row("lambertw", _lambert_samples, z=lambda xp, z, out: xp.exp(-out) / (1 + out))
def lambert(z: ArrayLike, /, *, k: int = 0) -> Tensor:
    """A branch of Lambert's function of complex numbers, DLMF 4.13.4."""


@row("wrightomega", None, sampled((-3, 4)), x=lambda xp, x, out: out / (1 + out))
def wrightomega(x: ArrayLike, /) -> Tensor:
    """Wright's omega function of real numbers: the w with `w + log(w) == x`."""
