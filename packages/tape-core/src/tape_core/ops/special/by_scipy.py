"""Special functions whose values SciPy computes, on any backend: incomplete gamma and beta functions, Bessel functions.

Arrays of other libraries and devices are copied to NumPy and back. Without SciPy, a call raises an ImportError that
says what to install. Derivatives are formulas of NIST's Digital Library of Mathematical Functions (DLMF), or by the
parameters of incomplete functions those of `incomplete`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tape_core.engine.op import REFUSED, TODO, elementwise
from tape_core.engine.samples import Draw, Refused, Sample, Samples, binary, unary
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import (
    FADDEEVA_SERIES_FROM,
    LOG_RATIO,
    faddeeva_series,
    in_double,
    is_array,
    polynomial,
    series_near_0,
)
from tape_core.ops.special.incomplete import beta_density, gamma_density, t_density
from tape_core.typing import Array, ArrayLike, Kernel, Namespace, Raw


def by_scipy(name: str, xp: Namespace, *values: Array, part: int | None = None, **parameters: Any) -> Array:
    """Call a function of `scipy.special`; the result has the device and the dtype of the first array.

    Of a function with several results it is the one with the number `part`.
    """
    try:
        from scipy import special
    except ImportError as error:
        raise ImportError(f"{name} is computed by SciPy: pip install 'tape-core[special]'") from error
    import numpy as np

    first = next(v for v in values if is_array(v))
    with np.errstate(all="ignore"):  # a special value is no reason to warn, as with the kernels of Tape itself
        found = getattr(special, name)(*[_on_host(v) if is_array(v) else v for v in values], **parameters)
    out = np.asarray(found if part is None else found[part])
    wide = np.complex128 if out.dtype.kind == "c" else np.float64
    return xp.asarray(out.astype(wide), dtype=first.dtype, device=first.device)


def _scipy_kernel(name: str) -> Kernel:
    """A kernel that calls the function of `scipy.special` of this name, for real numbers."""

    def kernel(xp: Namespace, *values: Array) -> Array:
        return by_scipy(name, xp, *values)

    return in_double(kernel)


def _on_host(x: Raw) -> Any:
    import numpy as np

    try:
        # The standard asks for no `__array__`, and NumPy takes an array without it for any object of Python.
        return np.asarray(x) if hasattr(x, "__array__") else np.from_dlpack(x)
    except (TypeError, RuntimeError):  # the array is on another device
        return np.from_dlpack(x, device="cpu")


def _order_samples(low: float, high: float, orders: tuple[float, ...] = (0, 1, 2.5)) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        for order in orders:
            yield Sample(order, draw(2, 3, low=low, high=high))
        yield Sample(draw(2, 1, low=0.2, high=4), draw(3, low=low, high=high))
        yield Sample(1, draw(low=low, high=high))
        yield Sample(1, draw(0, 2))
        yield Refused(TypeError, "real numbers", 1, draw.complex(2))

    return samples


# -- incomplete functions


@elementwise(
    a=lambda xp, a, x: xp.gammainc_derivative(a, x),
    x=gamma_density,
    kernel=_scipy_kernel("gammainc"),
    samples=binary(0.3, 8),
    complex_kernel=REFUSED,
)
def gammainc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularized lower incomplete gamma function: the gamma distribution's probability of a value below `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.gammainc(2.0, 3.0):.4f}")
    0.8009
    """


@elementwise(
    a=lambda xp, a, x: -xp.gammainc_derivative(a, x),
    x=lambda xp, a, x: -gamma_density(xp, a, x),
    kernel=_scipy_kernel("gammaincc"),
    samples=binary(0.3, 8),
    complex_kernel=REFUSED,
)
def gammaincc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`1 - gammainc(a, x)`, accurate where it is small."""


def _betainc_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3, low=0.4, high=5), draw(2, 3, low=0.4, high=5), draw(2, 3, low=0.05, high=0.95))
    yield Sample(2.5, 0.5, draw(3, low=0.05, high=0.95))
    yield Sample(draw(2, 1, low=0.4, high=5), draw(3, low=0.4, high=5), draw(low=0.05, high=0.95))
    yield Sample(draw(0, 2), draw(2), draw(0, 2))


@elementwise(
    a=lambda xp, a, b, x: xp.betainc_derivative(a, b, x, orders=(1, 0)),
    b=lambda xp, a, b, x: xp.betainc_derivative(a, b, x, orders=(0, 1)),
    x=beta_density,
    kernel=_scipy_kernel("betainc"),
    samples=_betainc_samples,
    complex_kernel=REFUSED,
)
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularized incomplete beta function: the beta distribution's probability of a value below `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.betainc(2.0, 3.0, 0.5):.4f}")
    0.6875
    """


@elementwise(
    df=lambda xp, df, t: xp.stdtr_derivative(df, t),
    t=t_density,
    kernel=_scipy_kernel("stdtr"),
    samples=binary(0.8, 6, -4, 4),
    complex_kernel=REFUSED,
)
def stdtr(df: ArrayLike, t: ArrayLike, /) -> Tensor:
    """The distribution function of Student's t with `df` degrees of freedom: the probability of a value below `t`."""


# -- quantiles: F(a, out) = y gives d out / d y = 1 / (dF / d out), and d out / d a = -(dF / da) / (dF / d out)


def quantile_partial(xp: Namespace, slope: Array, density: Array) -> Array:
    """The derivative of a quantile by a parameter, from those of the distribution function F by it and by `out`.

    It is 0 at the ends of the support, which do not depend on the parameter.
    """
    end = density == 0
    return xp.where(end, 0, -slope / xp.where(end, 1, density))


@elementwise(
    a=lambda xp, a, out: quantile_partial(xp, xp.gammainc_derivative(a, out), gamma_density(xp, a, out)),
    y=lambda xp, a, out: 1 / gamma_density(xp, a, out),
    kernel=_scipy_kernel("gammaincinv"),
    samples=binary(0.5, 8, 0.1, 0.9),
    complex_kernel=REFUSED,
)
def gammaincinv(a: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The quantile function of the gamma distribution: the x with `gammainc(a, x) == y`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.gammaincinv(2.0, 0.8):.4f}")
    2.9943
    """


@elementwise(
    a=lambda xp, a, out: quantile_partial(xp, xp.gammainc_derivative(a, out), gamma_density(xp, a, out)),
    y=lambda xp, a, out: -1 / gamma_density(xp, a, out),
    kernel=_scipy_kernel("gammainccinv"),
    samples=binary(0.5, 8, 0.1, 0.9),
    complex_kernel=REFUSED,
)
def gammainccinv(a: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The x with `gammaincc(a, x) == y`."""


def _betaincinv_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3, low=0.6, high=5), draw(2, 3, low=0.6, high=5), draw(2, 3, low=0.1, high=0.9))
    yield Sample(2.5, 0.75, draw(3, low=0.1, high=0.9))
    yield Sample(draw(2, 1, low=0.6, high=5), draw(3, low=0.6, high=5), draw(low=0.1, high=0.9))
    yield Sample(draw(0, 2), draw(2), draw(0, 2))


@elementwise(
    a=lambda xp, a, b, out: quantile_partial(
        xp, xp.betainc_derivative(a, b, out, orders=(1, 0)), beta_density(xp, a, b, out)
    ),
    b=lambda xp, a, b, out: quantile_partial(
        xp, xp.betainc_derivative(a, b, out, orders=(0, 1)), beta_density(xp, a, b, out)
    ),
    y=lambda xp, a, b, out: 1 / beta_density(xp, a, b, out),
    kernel=_scipy_kernel("betaincinv"),
    samples=_betaincinv_samples,
    complex_kernel=REFUSED,
)
def betaincinv(a: ArrayLike, b: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The quantile function of the beta distribution: the x with `betainc(a, b, x) == y`."""


@elementwise(
    df=lambda xp, df, out: quantile_partial(xp, xp.stdtr_derivative(df, out), t_density(xp, df, out)),
    p=lambda xp, df, out: 1 / t_density(xp, df, out),
    kernel=_scipy_kernel("stdtrit"),
    samples=binary(1.2, 6, 0.1, 0.9),
    complex_kernel=REFUSED,
)
def stdtrit(df: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The quantile function of Student's t: the t with `stdtr(df, t) == p`."""


# -- integrals


@elementwise(
    x=lambda xp, x: -xp.exp(-x) / x, kernel=_scipy_kernel("exp1"), samples=unary(0.3, 6), complex_kernel=REFUSED
)
def exp1(x: ArrayLike, /) -> Tensor:
    """The exponential integral E1: the integral of `exp(-t) / t` from `x` to infinity."""


@elementwise(x=lambda xp, x: xp.exp(x) / x, kernel=_scipy_kernel("expi"), samples=unary(0.3, 6), complex_kernel=REFUSED)
def expi(x: ArrayLike, /) -> Tensor:
    """The exponential integral Ei: the integral of `exp(t) / t` from minus infinity to `x`."""


def _dawsn_partial(xp: Namespace, x: Array, out: Array) -> Array:
    near = xp.abs(x) < FADDEEVA_SERIES_FROM  # beyond, the difference loses digits
    return xp.where(near, 1 - 2 * x * out, faddeeva_series(xp.where(near, FADDEEVA_SERIES_FROM, x)))


@elementwise(x=_dawsn_partial, kernel=_scipy_kernel("dawsn"), samples=unary(-3, 3), complex_kernel=REFUSED)
def dawsn(x: ArrayLike, /) -> Tensor:
    """Dawson's integral: `exp(-x**2)` times the integral of `exp(t**2)` from 0 to `x`."""


@elementwise(
    x=lambda xp, x: 2 / math.sqrt(math.pi) * xp.exp(x * x),
    kernel=_scipy_kernel("erfi"),
    samples=unary(-2, 2),
    complex_kernel=REFUSED,
)
def erfi(x: ArrayLike, /) -> Tensor:
    """The imaginary error function, `-1j * erf(1j * x)`."""


_LOG_RATIO_UP_TO = 0.05


def _spence_partial(xp: Namespace, x: Array) -> Array:
    near = xp.abs(x - 1) < _LOG_RATIO_UP_TO
    u = xp.where(near, x - 1, 0)
    return xp.where(near, -polynomial(LOG_RATIO, u), xp.log(x) / (1 - xp.where(near, 0, x)))


@elementwise(x=_spence_partial, kernel=_scipy_kernel("spence"), samples=unary(0.2, 4), complex_kernel=REFUSED)
def spence(x: ArrayLike, /) -> Tensor:
    """The dilogarithm of `1 - x`: the integral of `log(t) / (1 - t)` from 1 to `x`."""


# The squares of (2 n - 1)!! / (2 n)!! from n = 1 on: the coefficients of the power series of complete elliptic
# integrals, DLMF 19.5.1 and 19.5.2; and those of the series of their derivatives.
_ELLIPTIC_SERIES_UP_TO = 0.1
_ELLIPTIC = tuple((math.comb(2 * n, n) / 4**n) ** 2 for n in range(1, 18))
_ELLIPTIC_K = tuple(0.5 * math.pi * n * c for n, c in enumerate(_ELLIPTIC, 1))
_ELLIPTIC_E = tuple(0.5 * math.pi * n * c / (1 - 2 * n) for n, c in enumerate(_ELLIPTIC, 1))


def _ellipk_partial(xp: Namespace, m: Array) -> Array:
    def formula(m: Array) -> Array:
        return (xp.ellipe(m) - (1 - m) * xp.ellipk(m)) / (2 * m * (1 - m))

    return series_near_0(xp, m, _ELLIPTIC_SERIES_UP_TO, lambda m: polynomial(_ELLIPTIC_K, m), formula)


@elementwise(m=_ellipk_partial, kernel=_scipy_kernel("ellipk"), samples=unary(-2, 0.9), complex_kernel=REFUSED)
def ellipk(m: ArrayLike, /) -> Tensor:
    """The complete elliptic integral of the first kind, as a function of the parameter `m`, the squared modulus."""


def _ellipe_partial(xp: Namespace, m: Array) -> Array:
    def formula(m: Array) -> Array:
        return (xp.ellipe(m) - xp.ellipk(m)) / (2 * m)

    return series_near_0(xp, m, _ELLIPTIC_SERIES_UP_TO, lambda m: polynomial(_ELLIPTIC_E, m), formula)


@elementwise(m=_ellipe_partial, kernel=_scipy_kernel("ellipe"), samples=unary(-2, 0.9), complex_kernel=REFUSED)
def ellipe(m: ArrayLike, /) -> Tensor:
    """The complete elliptic integral of the second kind, as a function of the parameter `m`, the squared modulus."""


# -- Bessel functions; the derivatives by x are DLMF 10.6.1, 10.6.3, 10.29.1 and 10.29.3


@elementwise(x=lambda xp, x: -xp.j1(x), kernel=_scipy_kernel("j0"), samples=unary(-9, 9), complex_kernel=REFUSED)
def j0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 0."""


@elementwise(
    x=lambda xp, x: 0.5 * (xp.j0(x) - xp.jv(2.0, x)),
    kernel=_scipy_kernel("j1"),
    samples=unary(-9, 9),
    complex_kernel=REFUSED,
)
def j1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 1."""


@elementwise(x=lambda xp, x: -xp.y1(x), kernel=_scipy_kernel("y0"), samples=unary(0.3, 9), complex_kernel=REFUSED)
def y0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 0. NaN below 0."""


@elementwise(
    x=lambda xp, x: 0.5 * (xp.y0(x) - xp.yv(2.0, x)),
    kernel=_scipy_kernel("y1"),
    samples=unary(0.3, 9),
    complex_kernel=REFUSED,
)
def y1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 1. NaN below 0."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.jv(v - 1, x) - xp.jv(v + 1, x)),
    kernel=_scipy_kernel("jv"),
    samples=_order_samples(0.3, 9),
    complex_kernel=REFUSED,
)
def jv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and of real order `v`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.jv(2, 1.0):.4f}")
    0.1149

    It has a derivative with respect to `x`. For the derivative with respect to the order there is no formula that holds
    for all orders and arguments: it raises NotImplementedError.
    """


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.yv(v - 1, x) - xp.yv(v + 1, x)),
    kernel=_scipy_kernel("yv"),
    samples=_order_samples(0.5, 9),
    complex_kernel=REFUSED,
)
def yv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and of real order `v`; it has the derivatives that :func:`jv` has."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.iv(v - 1, x) + xp.iv(v + 1, x)),
    kernel=_scipy_kernel("iv"),
    samples=_order_samples(0.3, 9),
    complex_kernel=REFUSED,
)
def iv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the first kind and of real order `v`; see :func:`jv` for its derivatives."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x, out: 0.5 * (xp.ive(v - 1, x) + xp.ive(v + 1, x)) - xp.sign(x) * out,
    kernel=_scipy_kernel("ive"),
    samples=_order_samples(0.3, 9),
    complex_kernel=REFUSED,
)
def ive(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(-abs(x)) * iv(v, x)`, accurate also where the factors overflow and underflow; see :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: -0.5 * (xp.kv(v - 1, x) + xp.kv(v + 1, x)),
    kernel=_scipy_kernel("kv"),
    samples=_order_samples(0.5, 9),
    complex_kernel=REFUSED,
)
def kv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and of real order `v`; see :func:`jv` for its derivatives."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x, out: out - 0.5 * (xp.kve(v - 1, x) + xp.kve(v + 1, x)),
    kernel=_scipy_kernel("kve"),
    samples=_order_samples(0.5, 9),
    complex_kernel=REFUSED,
)
def kve(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(x) * kv(v, x)`, accurate also where the factors overflow and underflow; see :func:`jv`."""


@elementwise(x=lambda xp, x: -xp.k1(x), kernel=_scipy_kernel("k0"), samples=unary(0.4, 9), complex_kernel=REFUSED)
def k0(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and order 0."""


@elementwise(
    x=lambda xp, x, out: -xp.k0(x) - out / x, kernel=_scipy_kernel("k1"), samples=unary(0.4, 9), complex_kernel=REFUSED
)
def k1(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and order 1."""


@elementwise(
    x=lambda xp, x, out: out - xp.k1e(x), kernel=_scipy_kernel("k0e"), samples=unary(0.4, 9), complex_kernel=REFUSED
)
def k0e(x: ArrayLike, /) -> Tensor:
    """`exp(x) * k0(x)`, accurate also where the factors overflow and underflow."""


@elementwise(
    x=lambda xp, x, out: out - xp.k0e(x) - out / x,
    kernel=_scipy_kernel("k1e"),
    samples=unary(0.4, 9),
    complex_kernel=REFUSED,
)
def k1e(x: ArrayLike, /) -> Tensor:
    """`exp(x) * k1(x)`, accurate also where the factors overflow and underflow."""
