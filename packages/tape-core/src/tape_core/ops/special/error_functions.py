"""The error function and its relatives: complement, scaled complement, normal distribution, and inverses.

They are beyond the standard; their kernels are composed of its functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from tape_core.engine.op import REFUSED, elementwise
from tape_core.engine.samples import Draw, Refused, Sample, Samples, unary, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import as_floats, by_interval, in_double, polynomial
from tape_core.ops.special.by_scipy import by_scipy
from tape_core.typing import Array, ArrayLike, Namespace

# The coefficients of fdlibm's s_erf.c (Sun Microsystems, 1993), under their names there: rational approximations of erf
# and erfc on four intervals, each with an error below 1 ulp in double precision.
_EFX = 1.28379167095512586316e-01
_ERX = 8.45062911510467529297e-01
_PP = (
    1.28379167095512558561e-01, -3.25042107247001499370e-01, -2.84817495755985104766e-02,
    -5.77027029648944159157e-03, -2.37630166566501626084e-05,
)  # fmt: skip
_QQ = (
    1.0, 3.97917223959155352819e-01, 6.50222499887672944485e-02, 5.08130628187576562776e-03,
    1.32494738004321644526e-04, -3.96022827877536812320e-06,
)  # fmt: skip
_PA = (
    -2.36211856075265944077e-03, 4.14856118683748331666e-01, -3.72207876035701323847e-01,
    3.18346619901161753674e-01, -1.10894694282396677476e-01, 3.54783043256182359371e-02,
    -2.16637559486879084300e-03,
)  # fmt: skip
_QA = (
    1.0, 1.06420880400844228286e-01, 5.40397917702171048937e-01, 7.18286544141962662868e-02,
    1.26171219808761642112e-01, 1.36370839120290507362e-02, 1.19844998467991074170e-02,
)  # fmt: skip
_RA = (
    -9.86494403484714822705e-03, -6.93858572707181764372e-01, -1.05586262253232909814e01,
    -6.23753324503260060396e01, -1.62396669462573470355e02, -1.84605092906711035994e02,
    -8.12874355063065934246e01, -9.81432934416914548592e00,
)  # fmt: skip
_SA = (
    1.0, 1.96512716674392571292e01, 1.37657754143519042600e02, 4.34565877475229228821e02,
    6.45387271733267880336e02, 4.29008140027567833386e02, 1.08635005541779435134e02,
    6.57024977031928170135e00, -6.04244152148580987438e-02,
)  # fmt: skip
_RB = (
    -9.86494292470009928597e-03, -7.99283237680523006574e-01, -1.77579549177547519889e01,
    -1.60636384855821916062e02, -6.37566443368389627722e02, -1.02509513161107724954e03,
    -4.83519191608651397019e02,
)  # fmt: skip
_SB = (
    1.0, 3.03380607434824582924e01, 3.25792512996573918826e02, 1.53672958608443695994e03,
    3.19985821950859553908e03, 2.55305040643316442583e03, 4.74528541206955367215e02,
    -2.24409524465858183362e01,
)  # fmt: skip


# The coefficients of Wichura's algorithm AS 241 (PPND16), Applied Statistics 37 (1988), under their names there:
# rational approximations of the quantiles of the normal distribution, with a relative error of about 1e-16.
_A = (
    3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
    4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3,
)  # fmt: skip
_B = (
    1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
    3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3,
)  # fmt: skip
_C = (
    1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
    1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4,
)  # fmt: skip
_D = (
    1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
    1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9,
)  # fmt: skip
_E = (
    6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
    2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7,
)  # fmt: skip
_F = (
    1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
    1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15,
)  # fmt: skip

_ROOT_HALF = math.sqrt(0.5)
_SLOPE = 2 / math.sqrt(math.pi)  # the derivative of erf at 0
_DENSITY = 1 / math.sqrt(2 * math.pi)  # the density of the normal distribution at 0


def _with_refusal(samples: Samples) -> Samples:
    def more(draw: Draw) -> Iterator[Sample]:
        yield from samples(draw)
        yield Refused(TypeError, "real numbers", draw.complex(2))

    return more


# -- the error function and its complement


def _erf_near_0(x: Array) -> Array:
    """`erf(x) / x - 1` up to 0.84375."""
    z = x * x
    return polynomial(_PP, z) / polynomial(_QQ, z)


def _erf_middle(x: Array) -> Array:
    """`erf(x) - _ERX` from 0.84375 to 1.25."""
    s = x - 1
    return polynomial(_PA, s) / polynomial(_QA, s)


def _erfc_tail(xp: Namespace, x: Array) -> Array:
    """`log(x * exp(x**2) * erfc(x)) + 0.5625` from 1.25 on."""
    t = (1 / x) ** 2
    return xp.where(
        x < 1 / 0.35,
        polynomial(_RA, t) / polynomial(_SA, t),
        polynomial(_RB, t) / polynomial(_SB, t),
    )


def _is_complex(xp: Namespace, x: Array) -> bool:
    return bool(xp.isdtype(x.dtype, "complex floating"))


def _erf_kernel(xp: Namespace, x: Array) -> Array:
    if _is_complex(xp, x):
        return by_scipy("erf", xp, x)
    (x,) = as_floats(xp, x)
    size = by_interval(
        xp,
        xp.abs(x),
        (0.84375, 1.25, 6.0),
        lambda a: a + a * _erf_near_0(a),
        lambda a: _ERX + _erf_middle(a),
        lambda a: 1 - xp.exp(-a * a - 0.5625 + _erfc_tail(xp, a)) / a,
    )
    return xp.copysign(size, x)


@elementwise(x=lambda xp, x: _SLOPE * xp.exp(-x * x), kernel=_erf_kernel, samples=with_complex(unary(-3, 3)))
def erf(x: ArrayLike, /) -> Tensor:
    """The error function, 2 / sqrt(pi) times the integral of exp(-t**2) from 0 to x.

    Source: fdlibm's s_erf.c (Sun Microsystems, 1993); for complex numbers SciPy, on any backend.
    """


def _exp_square(xp: Namespace, x: Array, scale: float) -> Array:
    """`exp(scale * x**2)` for 0 <= x < 64, without the rounding error of the square, which the exponential enlarges.

    As in fdlibm: `head` has so few bits that its square is exact, and x**2 = head**2 + (x - head) * (x + head).
    """
    head = xp.floor(x * 2**20) / 2**20
    return xp.exp(scale * head * head) * xp.exp(scale * (x - head) * (x + head))


def _erfc_nonnegative(xp: Namespace, x: Array, gauss: Array) -> Array:
    """`erfc(x)` for x >= 0, given `exp(-x**2)` as `gauss`."""
    size = by_interval(
        xp,
        x,
        (0.84375, 1.25, 64.0),
        lambda a: 0.5 - (a * _erf_near_0(a) + (a - 0.5)),
        lambda a: (1 - _ERX) - _erf_middle(a),
        lambda a: xp.exp(_erfc_tail(xp, a) - 0.5625) / a,
    )
    return xp.where(x < 1.25, size, gauss * size)


def _erfc_kernel(xp: Namespace, x: Array) -> Array:
    return by_scipy("erfc", xp, x) if _is_complex(xp, x) else _erfc_of_real(xp, x)


@in_double
def _erfc_of_real(xp: Namespace, x: Array) -> Array:
    a = xp.abs(x)
    upper = _erfc_nonnegative(xp, a, _exp_square(xp, xp.minimum(a, 30.0), -1.0))
    return xp.where(x < 0, 2 - upper, upper)


@elementwise(x=lambda xp, x: -_SLOPE * xp.exp(-x * x), kernel=_erfc_kernel, samples=with_complex(unary(-3, 3)))
def erfc(x: ArrayLike, /) -> Tensor:
    """`1 - erf(x)`, accurate where it is small.

    >>> import tape_core as tc
    >>> print(f"{tc.erfc(5.0):.4e}")
    1.5375e-12

    Source: fdlibm's s_erf.c (Sun Microsystems, 1993); for complex numbers SciPy, on any backend.
    """


@in_double
def _erfcx_kernel(xp: Namespace, x: Array) -> Array:
    a = xp.abs(x)
    small = xp.minimum(a, 1.25)
    scaled = by_interval(
        xp,
        a,
        (1.25,),
        lambda _: xp.exp(small * small) * _erfc_nonnegative(xp, small, 1.0),
        lambda a: xp.exp(_erfc_tail(xp, a) - 0.5625) / a,
    )
    # Below 0, erfcx(-x) = 2 * exp(x**2) - erfcx(x).
    below = 2 * _exp_square(xp, xp.minimum(a, _ERFCX_OVERFLOWS_BELOW), 1.0) - scaled
    return xp.where(x >= 0, scaled, xp.where(a > _ERFCX_OVERFLOWS_BELOW, math.inf, below))


_ERFCX_OVERFLOWS_BELOW = 26.6287357137  # erfcx(-x) overflows float64 for larger x

# 1 - sqrt(pi) * x * erfcx(x) as an asymptotic series in t = 1 / (2 * x**2): t - 3 * t**2 + 15 * t**3 - ... (DLMF
# 7.12.1). From 8 on, 17 terms of it suffice for float64.
_ERFCX_SERIES_FROM = 8
_ERFCX_SERIES = tuple(-((-1.0) ** k) * math.prod(range(1, 2 * k, 2)) for k in range(1, 18))


def _erfcx_partial(xp: Namespace, x: Array, out: Array) -> Array:
    # For large x the two terms of the derivative 2 * x * erfcx(x) - 2 / sqrt(pi) nearly cancel.
    near = x < _ERFCX_SERIES_FROM
    t = 0.5 / xp.where(near, _ERFCX_SERIES_FROM, x) ** 2
    return xp.where(near, 2 * x * out - _SLOPE, -_SLOPE * t * polynomial(_ERFCX_SERIES, t))


@elementwise(x=_erfcx_partial, kernel=_erfcx_kernel, samples=_with_refusal(unary(-2, 12)), complex_kernel=REFUSED)
def erfcx(x: ArrayLike, /) -> Tensor:
    """`exp(x**2) * erfc(x)`, accurate also where the factors overflow and underflow.

    >>> import tape_core as tc
    >>> print(f"{tc.erfcx(1000.0):.4e}")
    5.6419e-04

    Source: fdlibm's s_erf.c (Sun Microsystems, 1993).
    """


# -- the normal distribution


def _normal_upper_tail(xp: Namespace, a: Array) -> Array:
    """The probability of a value above `a >= 0`: half of `erfc(a / sqrt(2))`, with the exponential of `a**2 / 2`."""
    return 0.5 * _erfc_nonnegative(xp, a * _ROOT_HALF, _exp_square(xp, xp.minimum(a, 40.0), -0.5))


@in_double
def _ndtr_kernel(xp: Namespace, x: Array) -> Array:
    upper = _normal_upper_tail(xp, xp.abs(x))
    return xp.where(x < 0, upper, 1 - upper)


@elementwise(
    x=lambda xp, x: _DENSITY * xp.exp(-0.5 * x * x),
    kernel=_ndtr_kernel,
    samples=_with_refusal(unary(-3, 3)),
    complex_kernel=REFUSED,
)
def ndtr(x: ArrayLike, /) -> Tensor:
    """The distribution function of the normal distribution: the probability of a value below `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.ndtr(1.96):.4f}")
    0.9750
    """


@in_double
def _log_ndtr_kernel(xp: Namespace, x: Array) -> Array:
    a = xp.abs(x)
    upper = _normal_upper_tail(xp, a)
    # Below -2 the logarithm is taken of the factors of the tail, which do not underflow.
    small = x < -2
    above = xp.where(x < 0, xp.log(xp.maximum(upper, 0.01)), xp.log1p(-upper))
    far = xp.clip(a, 2.0, 1.89e154)
    b = far * _ROOT_HALF
    below = -0.5 * far * far + (_erfc_tail(xp, b) - 0.5625 - xp.log(2 * b))
    return xp.where(small, xp.where(a > 1.89e154, -math.inf, below), above)


def _hazard(xp: Namespace, x: Array) -> Array:
    """The density divided by the distribution function, accurate also where both underflow."""
    below = 2 * _DENSITY / xp.erfcx(-_ROOT_HALF * xp.minimum(x, 0.0))
    above = _DENSITY * xp.exp(-0.5 * x * x) / xp.ndtr(xp.maximum(x, 0.0))
    return xp.where(x < 0, below, above)


@elementwise(x=_hazard, kernel=_log_ndtr_kernel, samples=_with_refusal(unary(-12, 4)), complex_kernel=REFUSED)
def log_ndtr(x: ArrayLike, /) -> Tensor:
    """The logarithm of :func:`ndtr`. It and its derivatives are accurate for large positive and negative `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.log_ndtr(-1000.0):.4f}")
    -500007.8125
    """


# -- inverses


def _quantile(xp: Namespace, q: Array, p: Array) -> Array:
    """The x with `ndtr(x) == 0.5 + q`, where `p` is the smaller of the probabilities below and above x."""
    # AS 241: a rational function of q**2 up to |q| = 0.425, beyond that of sqrt(-log(p)), in two intervals.
    inner = xp.clip(q, -0.425, 0.425)
    s = 0.180625 - inner * inner
    middle = inner * (polynomial(_A, s) / polynomial(_B, s))
    possible = xp.logical_and(p > 0, p <= 0.5)
    r = xp.sqrt(-xp.log(xp.where(possible, xp.minimum(p, 0.08), 0.08)))
    tail = by_interval(
        xp,
        r,
        (5.0,),
        lambda r: polynomial(_C, r - 1.6) / polynomial(_D, r - 1.6),
        lambda r: polynomial(_E, r - 5) / polynomial(_F, r - 5),
    )
    outer = xp.sign(q) * xp.where(p == 0, math.inf, tail)
    return xp.where(p >= 0, xp.where(xp.abs(q) <= 0.425, middle, outer), math.nan)


@in_double
def _ndtri_kernel(xp: Namespace, p: Array) -> Array:
    return _quantile(xp, p - 0.5, xp.minimum(p, 1 - p))


@elementwise(
    p=lambda xp, out: xp.exp(0.5 * out * out) / _DENSITY,
    kernel=_ndtri_kernel,
    samples=_with_refusal(unary(0.01, 0.99)),
    complex_kernel=REFUSED,
)
def ndtri(p: ArrayLike, /) -> Tensor:
    """The quantile function of the normal distribution: the inverse of :func:`ndtr`. NaN outside [0, 1].

    >>> import tape_core as tc
    >>> print(f"{tc.ndtri(0.975):.4f}")
    1.9600

    Source: Wichura, Algorithm AS 241, Applied Statistics 37 (1988).
    """


@in_double
def _erfinv_kernel(xp: Namespace, x: Array) -> Array:
    return _ROOT_HALF * _quantile(xp, 0.5 * x, 0.5 * (1 - xp.abs(x)))


@elementwise(
    x=lambda xp, out: xp.exp(out * out) / _SLOPE,
    kernel=_erfinv_kernel,
    samples=_with_refusal(unary(-0.98, 0.98)),
    complex_kernel=REFUSED,
)
def erfinv(x: ArrayLike, /) -> Tensor:
    """The inverse of :func:`erf`. NaN outside [-1, 1].

    >>> import tape_core as tc
    >>> print(f"{tc.erfinv(0.5):.4f}")
    0.4769

    Source: Wichura, Algorithm AS 241, Applied Statistics 37 (1988).
    """


@in_double
def _erfcinv_kernel(xp: Namespace, x: Array) -> Array:
    value = _ROOT_HALF * _quantile(xp, 0.5 * (1 - x), 0.5 * xp.minimum(x, 2 - x))
    return xp.where(x < 0, math.nan, value)  # including negative numbers whose half underflows to 0


@elementwise(
    x=lambda xp, out: -xp.exp(out * out) / _SLOPE,
    kernel=_erfcinv_kernel,
    samples=_with_refusal(unary(0.02, 1.98)),
    complex_kernel=REFUSED,
)
def erfcinv(x: ArrayLike, /) -> Tensor:
    """The inverse of :func:`erfc`. NaN outside [0, 2].

    >>> import tape_core as tc
    >>> print(f"{tc.erfcinv(1e-20):.4f}")
    6.6016

    Source: Wichura, Algorithm AS 241, Applied Statistics 37 (1988).
    """
