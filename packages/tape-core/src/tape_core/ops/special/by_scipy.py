"""Special functions whose values SciPy computes, on any backend: incomplete gamma and beta functions, Bessel functions.

Arrays of other libraries and devices are copied to NumPy and back. Without SciPy a call raises an ImportError that says
what to install.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tape_core.engine.op import TODO, elementwise
from tape_core.engine.samples import Draw, Refused, Sample, Samples, binary, unary
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import in_double, is_array, polynomial
from tape_core.ops.special.incomplete import beta_density, gamma_density, t_density
from tape_core.typing import Array, ArrayLike, Namespace


def by_scipy(name: str, xp: Namespace, *values: Any) -> Array:
    """What this function of `scipy.special` gives, on the device and in the dtype of the first array."""
    try:
        from scipy import special
    except ImportError as error:
        raise ImportError(f"{name} is computed by SciPy: pip install 'tape-core[special]'") from error
    import numpy as np

    first = next(v for v in values if is_array(v))
    with np.errstate(all="ignore"):
        out = np.asarray(getattr(special, name)(*[_on_host(v) if is_array(v) else v for v in values]))
    wide = np.complex128 if out.dtype.kind == "c" else np.float64
    return xp.asarray(out.astype(wide), dtype=first.dtype, device=first.device)


def _kernel(name: str) -> Any:
    """The function of real numbers of this name, as a kernel."""

    def computed(xp: Namespace, *values: Any) -> Array:
        return by_scipy(name, xp, *values)

    return in_double(computed)


def _on_host(x: Array) -> Any:
    import numpy as np

    try:
        return np.asarray(x)
    except (TypeError, RuntimeError):  # it is on another device
        return np.from_dlpack(x, device="cpu")


def _of_order(low: float, high: float, orders: tuple[float, ...] = (0, 1, 2.5)) -> Samples:
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
    kernel=_kernel("gammainc"),
    samples=binary(0.3, 8),
)
def gammainc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularized lower incomplete gamma function: the gamma distribution's probability of less than `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.gammainc(2.0, 3.0):.4f}")
    0.8009
    """


@elementwise(
    a=lambda xp, a, x: -xp.gammainc_derivative(a, x),
    x=lambda xp, a, x: -gamma_density(xp, a, x),
    kernel=_kernel("gammaincc"),
    samples=binary(0.3, 8),
)
def gammaincc(a: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`1 - gammainc(a, x)`, exact where it is small."""


def _betainc_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3, low=0.4, high=5), draw(2, 3, low=0.4, high=5), draw(2, 3, low=0.05, high=0.95))
    yield Sample(2.5, 0.5, draw(3, low=0.05, high=0.95))
    yield Sample(draw(2, 1, low=0.4, high=5), draw(3, low=0.4, high=5), draw(low=0.05, high=0.95))
    yield Sample(draw(0, 2), draw(2), draw(0, 2))


@elementwise(
    a=lambda xp, a, b, x: xp.betainc_derivative(a, b, x, orders=(1, 0)),
    b=lambda xp, a, b, x: xp.betainc_derivative(a, b, x, orders=(0, 1)),
    x=beta_density,
    kernel=_kernel("betainc"),
    samples=_betainc_samples,
)
def betainc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The regularized incomplete beta function: the beta distribution's probability of less than `x`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.betainc(2.0, 3.0, 0.5):.4f}")
    0.6875
    """


@elementwise(
    df=lambda xp, df, t: xp.stdtr_derivative(df, t),
    t=t_density,
    kernel=_kernel("stdtr"),
    samples=binary(0.8, 6, -4, 4),
)
def stdtr(df: ArrayLike, t: ArrayLike, /) -> Tensor:
    """The distribution function of Student's t: the probability of less than `t`, with `df` degrees of freedom."""


# -- quantiles, by the implicit function theorem


def _part(xp: Namespace, slope: Array, density: Any) -> Array:
    """By a parameter; 0 at the ends, which are the same for all."""
    end = density == 0
    return xp.where(end, 0, -slope / xp.where(end, 1, density))


@elementwise(
    a=lambda xp, a, out: _part(xp, xp.gammainc_derivative(a, out), gamma_density(xp, a, out)),
    y=lambda xp, a, out: 1 / gamma_density(xp, a, out),
    kernel=_kernel("gammaincinv"),
    samples=binary(0.5, 8, 0.1, 0.9),
)
def gammaincinv(a: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The quantiles of the gamma distribution: the x with `gammainc(a, x) == y`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.gammaincinv(2.0, 0.8):.4f}")
    2.9943
    """


@elementwise(
    a=lambda xp, a, out: _part(xp, xp.gammainc_derivative(a, out), gamma_density(xp, a, out)),
    y=lambda xp, a, out: -1 / gamma_density(xp, a, out),
    kernel=_kernel("gammainccinv"),
    samples=binary(0.5, 8, 0.1, 0.9),
)
def gammainccinv(a: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The x with `gammaincc(a, x) == y`."""


def _betaincinv_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3, low=0.6, high=5), draw(2, 3, low=0.6, high=5), draw(2, 3, low=0.1, high=0.9))
    yield Sample(2.5, 0.75, draw(3, low=0.1, high=0.9))
    yield Sample(draw(2, 1, low=0.6, high=5), draw(3, low=0.6, high=5), draw(low=0.1, high=0.9))
    yield Sample(draw(0, 2), draw(2), draw(0, 2))


@elementwise(
    a=lambda xp, a, b, out: _part(xp, xp.betainc_derivative(a, b, out, orders=(1, 0)), beta_density(xp, a, b, out)),
    b=lambda xp, a, b, out: _part(xp, xp.betainc_derivative(a, b, out, orders=(0, 1)), beta_density(xp, a, b, out)),
    y=lambda xp, a, b, out: 1 / beta_density(xp, a, b, out),
    kernel=_kernel("betaincinv"),
    samples=_betaincinv_samples,
)
def betaincinv(a: ArrayLike, b: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The quantiles of the beta distribution: the x with `betainc(a, b, x) == y`."""


@elementwise(
    df=lambda xp, df, out: _part(xp, xp.stdtr_derivative(df, out), t_density(xp, df, out)),
    p=lambda xp, df, out: 1 / t_density(xp, df, out),
    kernel=_kernel("stdtrit"),
    samples=binary(1.2, 6, 0.1, 0.9),
)
def stdtrit(df: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The quantiles of Student's t: the t with `stdtr(df, t) == p`."""


# -- integrals


@elementwise(x=lambda xp, x: -xp.exp(-x) / x, kernel=_kernel("exp1"), samples=unary(0.3, 6))
def exp1(x: ArrayLike, /) -> Tensor:
    """The exponential integral E1, of `exp(-t) / t` from x to infinity."""


@elementwise(x=lambda xp, x: xp.exp(x) / x, kernel=_kernel("expi"), samples=unary(0.3, 6))
def expi(x: ArrayLike, /) -> Tensor:
    """The exponential integral Ei, of `exp(t) / t` from minus infinity to x."""


@elementwise(x=lambda xp, x, out: 1 - 2 * x * out, kernel=_kernel("dawsn"), samples=unary(-3, 3))
def dawsn(x: ArrayLike, /) -> Tensor:
    """Dawson's integral, `exp(-x**2)` times that of `exp(t**2)` from 0 to x."""


@elementwise(x=lambda xp, x: 2 / math.sqrt(math.pi) * xp.exp(x * x), kernel=_kernel("erfi"), samples=unary(-2, 2))
def erfi(x: ArrayLike, /) -> Tensor:
    """The imaginary error function, `-1j * erf(1j * x)`."""


_LOG_RATIO = tuple((-1.0) ** k / (k + 1) for k in range(14))  # of log(1 + u) / u


def _spence_part(xp: Namespace, x: Array) -> Array:
    near = xp.abs(x - 1) < 0.05
    u = xp.where(near, x - 1, 0)
    return xp.where(near, -polynomial(_LOG_RATIO, u), xp.log(x) / (1 - xp.where(near, 0, x)))


@elementwise(x=_spence_part, kernel=_kernel("spence"), samples=unary(0.2, 4))
def spence(x: ArrayLike, /) -> Tensor:
    """The dilogarithm of `1 - x`: the integral of `log(t) / (1 - t)` from 1 to x."""


# The coefficients of (2 n - 1)!! / (2 n)!!, squared, from n = 1 on: of the series of complete elliptic integrals.
_ELLIPTIC = tuple((math.comb(2 * n, n) / 4**n) ** 2 for n in range(1, 18))
_ELLIPTIC_K = tuple(0.5 * math.pi * n * c for n, c in enumerate(_ELLIPTIC, 1))
_ELLIPTIC_E = tuple(0.5 * math.pi * n * c / (1 - 2 * n) for n, c in enumerate(_ELLIPTIC, 1))


def _elliptic(xp: Namespace, m: Array, series: tuple[float, ...], far: Array) -> Array:
    """A derivative: near 0 by its series, where the terms of the formula cancel."""
    near = xp.abs(m) < 0.1
    return xp.where(near, polynomial(series, xp.where(near, m, 0)), far(xp.where(near, 0.5, m)))


def _ellipk_part(xp: Namespace, m: Array) -> Array:
    return _elliptic(xp, m, _ELLIPTIC_K, lambda m: (xp.ellipe(m) - (1 - m) * xp.ellipk(m)) / (2 * m * (1 - m)))


@elementwise(m=_ellipk_part, kernel=_kernel("ellipk"), samples=unary(-2, 0.9))
def ellipk(m: ArrayLike, /) -> Tensor:
    """The complete elliptic integral of the first kind, of the parameter m, the square of the modulus."""


def _ellipe_part(xp: Namespace, m: Array) -> Array:
    return _elliptic(xp, m, _ELLIPTIC_E, lambda m: (xp.ellipe(m) - xp.ellipk(m)) / (2 * m))


@elementwise(m=_ellipe_part, kernel=_kernel("ellipe"), samples=unary(-2, 0.9))
def ellipe(m: ArrayLike, /) -> Tensor:
    """The complete elliptic integral of the second kind, of the parameter m, the square of the modulus."""


# -- Bessel functions


@elementwise(x=lambda xp, x: -xp.j1(x), kernel=_kernel("j0"), samples=unary(-9, 9))
def j0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 0."""


@elementwise(x=lambda xp, x: 0.5 * (xp.j0(x) - xp.jv(2.0, x)), kernel=_kernel("j1"), samples=unary(-9, 9))
def j1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and order 1."""


@elementwise(x=lambda xp, x: -xp.y1(x), kernel=_kernel("y0"), samples=unary(0.3, 9))
def y0(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 0. NaN below 0."""


@elementwise(x=lambda xp, x: 0.5 * (xp.y0(x) - xp.yv(2.0, x)), kernel=_kernel("y1"), samples=unary(0.3, 9))
def y1(x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and order 1. NaN below 0."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.jv(v - 1, x) - xp.jv(v + 1, x)),
    kernel=_kernel("jv"),
    samples=_of_order(0.3, 9),
)
def jv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Bessel function of the first kind and of real order `v`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.jv(2, 1.0):.4f}")
    0.1149

    There is a derivative by `x`. For one by the order there is no formula that holds for all orders and arguments:
    asking for it raises NotImplementedError.
    """


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.yv(v - 1, x) - xp.yv(v + 1, x)),
    kernel=_kernel("yv"),
    samples=_of_order(0.5, 9),
)
def yv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The Bessel function of the second kind and of real order `v`; derivatives as for :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: 0.5 * (xp.iv(v - 1, x) + xp.iv(v + 1, x)),
    kernel=_kernel("iv"),
    samples=_of_order(0.3, 9),
)
def iv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the first kind and of real order `v`; derivatives as for :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x, out: 0.5 * (xp.ive(v - 1, x) + xp.ive(v + 1, x)) - xp.sign(x) * out,
    kernel=_kernel("ive"),
    samples=_of_order(0.3, 9),
)
def ive(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(-abs(x)) * iv(v, x)`, also where the two overflow and underflow; derivatives as for :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x: -0.5 * (xp.kv(v - 1, x) + xp.kv(v + 1, x)),
    kernel=_kernel("kv"),
    samples=_of_order(0.5, 9),
)
def kv(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and of real order `v`; derivatives as for :func:`jv`."""


@elementwise(
    v=TODO,
    x=lambda xp, v, x, out: out - 0.5 * (xp.kve(v - 1, x) + xp.kve(v + 1, x)),
    kernel=_kernel("kve"),
    samples=_of_order(0.5, 9),
)
def kve(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`exp(x) * kv(v, x)`, also where the two overflow and underflow; derivatives as for :func:`jv`."""


@elementwise(x=lambda xp, x: -xp.k1(x), kernel=_kernel("k0"), samples=unary(0.4, 9))
def k0(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and order 0."""


@elementwise(x=lambda xp, x, out: -xp.k0(x) - out / x, kernel=_kernel("k1"), samples=unary(0.4, 9))
def k1(x: ArrayLike, /) -> Tensor:
    """The modified Bessel function of the second kind and order 1."""


@elementwise(x=lambda xp, x, out: out - xp.k1e(x), kernel=_kernel("k0e"), samples=unary(0.4, 9))
def k0e(x: ArrayLike, /) -> Tensor:
    """`exp(x) * k0(x)`, also where the two overflow and underflow."""


@elementwise(x=lambda xp, x, out: out - xp.k0e(x) - out / x, kernel=_kernel("k1e"), samples=unary(0.4, 9))
def k1e(x: ArrayLike, /) -> Tensor:
    """`exp(x) * k1(x)`, also where the two overflow and underflow."""
