"""The modified Bessel functions of the first kind: `i0`, `i1` and their scaled forms.

They are beyond the standard; their kernels are composed of its functions. The derivatives are the recurrence relations
of NIST's Digital Library of Mathematical Functions, 10.29: I0' = I1 and I1' = I0 - I1 / x.
"""

from __future__ import annotations

import math

from tape_core.engine.op import REFUSED, elementwise
from tape_core.engine.samples import unary
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import by_interval, even_series, in_double, polynomial, series_near_0
from tape_core.typing import Array, ArrayLike, Namespace

# Up to 10, the power series in x**2 / 4 (DLMF 10.25.2), whose terms are all positive, so that nothing cancels. From 10
# on, sqrt(x) * exp(-x) * I(x) as a polynomial in 20 / x - 1: the Chebyshev expansion that Clenshaw (1962) and Cephes
# use from 8 on, computed with 60 digits, truncated below 2e-17 and converted to powers.
_SERIES_UP_TO = 10.0
_I0 = tuple(1 / math.factorial(k) ** 2 for k in range(27))
_I1 = tuple(0.5 / (math.factorial(k) * math.factorial(k + 1)) for k in range(27))
_I0_FAR = (
    4.015097608312064985e-1, 2.6458859671864051381e-3, 8.3113272639079322773e-5, 5.1520339392119478434e-6,
    5.0412568452806437322e-7, 7.0784214938069983148e-8, 1.3636073590057126302e-8, 3.5577752341020233009e-9,
    1.2744082613096962385e-9, 6.4092072874246214344e-10, 3.9335746723762284439e-10, 1.3286464742345283406e-10,
    -1.5322367107874446342e-10, -2.1371080499764411262e-10, -3.6825606477196008694e-11, 7.5513770226494848583e-11,
    3.2207846948214553181e-11, -1.1079206954912573733e-11, -6.470389095953390497e-12,
)  # fmt: skip
_I1_FAR = (
    3.9133972251206704445e-1, -7.7309051267561350821e-3, -1.3480146633982313444e-4, -7.0123613016913405699e-6,
    -6.2942956848200032837e-7, -8.3896636158433262059e-8, -1.5599119638616660935e-8, -3.9633677630545382719e-9,
    -1.3896232258654052422e-9, -6.8661603639586390376e-10, -4.1850166841328454777e-10, -1.4663696293794667504e-10,
    1.5402105469231129802e-10, 2.2437338993863639438e-10, 4.2749844629927244376e-11, -7.8007939804064204474e-11,
    -3.4762767489717174686e-11, 1.132281193470273396e-11, 6.8838518246450915513e-12,
)  # fmt: skip
_OVERFLOWS_FROM = 713.98  # i0 and i1 overflow float64 beyond


def _scaled(xp: Namespace, a: Array, series: tuple[float, ...], far: tuple[float, ...], odd: bool) -> Array:
    """`exp(-a) * I(a)` for a >= 0."""

    def near(a: Array) -> Array:
        value = polynomial(series, 0.25 * a * a) * xp.exp(-a)
        return a * value if odd else value

    return by_interval(xp, a, (_SERIES_UP_TO,), near, lambda a: polynomial(far, 2 * _SERIES_UP_TO / a - 1) / xp.sqrt(a))


def _unscaled(xp: Namespace, a: Array, series: tuple[float, ...], far: tuple[float, ...], odd: bool) -> Array:
    """`I(a)` for a >= 0."""

    def near(a: Array) -> Array:
        value = polynomial(series, 0.25 * a * a)
        return a * value if odd else value

    def beyond(a: Array) -> Array:
        root = xp.exp(0.5 * a)  # exp(a) itself overflows before the function does
        return root * (polynomial(far, 2 * _SERIES_UP_TO / a - 1) / xp.sqrt(a)) * root

    return xp.where(a > _OVERFLOWS_FROM, math.inf, by_interval(xp, a, (_SERIES_UP_TO, _OVERFLOWS_FROM), near, beyond))


# 1 - i1(x) / i0(x) as a series in 1 / x, the quotient of the expansions DLMF 10.40.1 of both. It is used from 100 on,
# where the difference of the two numbers, both nearly 1, would lose digits.
_ONE_MINUS_RATIO_FROM = 100
_ONE_MINUS_RATIO = (1 / 2, 1 / 8, 1 / 8, 25 / 128, 13 / 32, 1073 / 1024, 103 / 32, 375733 / 32768, 23797 / 512)


def _one_minus_ratio(xp: Namespace, a: Array) -> Array:
    """`1 - i1(a) / i0(a)` for a >= 0."""
    near = a < _ONE_MINUS_RATIO_FROM
    low = xp.where(near, a, 0)
    z = 1 / xp.where(near, _ONE_MINUS_RATIO_FROM, a)
    return xp.where(near, 1 - xp.i1e(low) / xp.i0e(low), z * polynomial(_ONE_MINUS_RATIO, z))


_I1_RATIO = tuple(c / 4**k for k, c in enumerate(_I1[:12]))  # of i1(x) / x in x**2, exact in float64 up to 2


def _i1_over_x(xp: Namespace, x: Array, out: Array) -> Array:
    """`out / x`, where `out` is `i1(x)`."""
    return even_series(xp, x, 2.0, _I1_RATIO, lambda x: out / x)


@in_double
def _i0_kernel(xp: Namespace, x: Array) -> Array:
    return _unscaled(xp, xp.abs(x), _I0, _I0_FAR, False)


@elementwise(x=lambda xp, x: xp.i1(x), kernel=_i0_kernel, samples=unary(-14, 14), complex_kernel=REFUSED)
def i0(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the first kind and order 0.

    >>> import tape_core as tc
    >>> print(f"{tc.i0(1.0):.4f}")
    1.2661

    Source: the power series, and Clenshaw's Chebyshev expansion (1962).
    """


@in_double
def _i1_kernel(xp: Namespace, x: Array) -> Array:
    return xp.copysign(_unscaled(xp, xp.abs(x), _I1, _I1_FAR, True), x)


@elementwise(
    x=lambda xp, x, out: xp.i0(x) - _i1_over_x(xp, x, out),
    kernel=_i1_kernel,
    samples=unary(-14, 14),
    complex_kernel=REFUSED,
)
def i1(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the first kind and order 1.

    >>> import tape_core as tc
    >>> print(f"{tc.i1(1.0):.4f}")
    0.5652

    Source: the power series, and Clenshaw's Chebyshev expansion (1962).
    """


@in_double
def _i0e_kernel(xp: Namespace, x: Array) -> Array:
    return _scaled(xp, xp.abs(x), _I0, _I0_FAR, False)


@elementwise(
    x=lambda xp, x, out: -xp.sign(x) * out * _one_minus_ratio(xp, xp.abs(x)),
    kernel=_i0e_kernel,
    samples=unary(-14, 14),
    complex_kernel=REFUSED,
)
def i0e(x: ArrayLike, /) -> Tensor:
    """`exp(-abs(x)) * i0(x)`, accurate also where the factors overflow and underflow. At 0 the derivative is 0.

    >>> import tape_core as tc
    >>> print(f"{tc.i0e(1000.0):.4f}")
    0.0126
    """


def _i1e_partial(xp: Namespace, x: Array) -> Array:
    a = xp.abs(x)
    even = xp.i0e(a)
    # The derivative is i0e - i1e - i1e / a, whose first two terms cancel for large a.
    return even * _one_minus_ratio(xp, a) - series_near_0(
        xp, a, 2.0, lambda a: xp.exp(-a) * polynomial(_I1_RATIO, a * a), lambda a: xp.i1e(a) / a
    )


@in_double
def _i1e_kernel(xp: Namespace, x: Array) -> Array:
    return xp.copysign(_scaled(xp, xp.abs(x), _I1, _I1_FAR, True), x)


@elementwise(x=_i1e_partial, kernel=_i1e_kernel, samples=unary(-14, 14), complex_kernel=REFUSED)
def i1e(x: ArrayLike, /) -> Tensor:
    """`exp(-abs(x)) * i1(x)`, accurate also where the factors overflow and underflow.

    >>> import tape_core as tc
    >>> print(f"{tc.i1e(1000.0):.4f}")
    0.0126
    """
