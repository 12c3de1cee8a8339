"""Distribution functions and their inverses that SciPy computes, with derivatives from the equations that define them.

Where F(x, a) = p defines x, dx / dp = 1 / F_x and dx / da = -F_a / F_x.
"""

from __future__ import annotations

import math

from tape_core.engine.op import TODO
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.by_scipy import quantile_partial
from tape_core.ops.special.incomplete import as_array, gamma_density
from tape_core.ops.special.tabled import row, sampled
from tape_core.typing import Array, ArrayLike, Namespace


def _ndtri_exp_partial(xp: Namespace, y: Array, out: Array) -> Array:
    return math.sqrt(2 * math.pi) * xp.exp(y + 0.5 * out * out)


@row("ndtri_exp", None, sampled((-5, -0.2)), y=_ndtri_exp_partial)
def ndtri_exp(y: ArrayLike, /) -> Tensor:
    """The `x` at which `log_ndtr(x)` is `y`."""


# -- noncentral chi-square, whose density is of a Bessel function

_SERIES_TERMS = 12  # 1 / 12!**2 is below float64's precision


def _noncentral_density(xp: Namespace, x: Array, df: Array, nc: Array) -> Array:
    df, nc = as_array(xp, df, x), as_array(xp, nc, x)
    half, product = 0.5 * df, 0.25 * x * nc
    near = (product < 1) | (nc == 0)
    # Near 0, the central density times exp(-nc / 2) and the Bessel function's power series in x * nc / 4.
    small, series = xp.where(near, product, 0), 1.0
    for k in range(_SERIES_TERMS, 0, -1):
        series = 1 + small * series / (k * (half + (k - 1)))
    central = 0.5 * gamma_density(xp, half, 0.5 * x) * xp.exp(-0.5 * nc)
    # Beyond, exp(-(x + nc) / 2) * I(root), without overflow.
    x, nc = xp.where(near, 2, x), xp.where(near, 2, nc)
    spread = xp.exp(-0.5 * (xp.sqrt(x) - xp.sqrt(nc)) ** 2)
    power = xp.exp(0.5 * (half - 1) * xp.log(x / nc))
    return xp.where(near, central * series, 0.5 * spread * power * xp.ive(half - 1, xp.sqrt(x * nc)))


def _noncentral_by_nc(xp: Namespace, x: Array, df: Array, nc: Array) -> Array:
    # Half the difference of the distribution functions for df + 2 and df.
    return -_noncentral_density(xp, x, df + 2, nc)


@row(
    "chndtr",
    None,
    sampled((0.5, 4), (1, 4), (0.5, 3)),
    x=lambda xp, x, df, nc: _noncentral_density(xp, x, df, nc),
    df=TODO,
    nc=lambda xp, x, df, nc: _noncentral_by_nc(xp, x, df, nc),
)
def chndtr(x: ArrayLike, df: ArrayLike, nc: ArrayLike, /) -> Tensor:
    """The noncentral chi-square distribution function; it has no derivative with respect to `df`."""


def _chndtrix_by_nc(xp: Namespace, df: Array, nc: Array, out: Array) -> Array:
    return quantile_partial(xp, _noncentral_by_nc(xp, out, df, nc), _noncentral_density(xp, out, df, nc))


@row(
    "chndtrix",
    None,
    sampled((0.2, 0.8), (1, 4), (0.5, 3)),
    p=lambda xp, df, nc, out: 1 / _noncentral_density(xp, out, df, nc),
    df=TODO,
    nc=_chndtrix_by_nc,
)
def chndtrix(p: ArrayLike, df: ArrayLike, nc: ArrayLike, /) -> Tensor:
    """The `x` at which `chndtr(x, df, nc)` is `p`; it has no derivative with respect to `df`."""


# -- Kolmogorov's distribution


def _kolmogorov_partial(xp: Namespace, x: Array) -> Array:
    """The two series of the survival function, term by term: each converges fast on its side of 0.8."""
    low, high = xp.where(x < 0.8, x, 0.8), xp.where(x < 0.8, 0.8, x)
    low = xp.where(low > 0.05, low, 0.05)  # below, all terms underflow
    near = far = 0.0
    for k in range(1, 5):
        c = ((2 * k - 1) * math.pi) ** 2 / 8
        near = near + xp.exp(-c / (low * low)) * (1 / low**2 - 2 * c / low**4)
    for k in range(1, 9):
        far = far - (-1) ** (k - 1) * 8 * k * k * high * xp.exp(-2 * k * k * high * high)
    return xp.where(x > 0.05, xp.where(x < 0.8, math.sqrt(2 * math.pi) * near, far), 0)


@row("kolmogorov", None, sampled((0.3, 2)), x=_kolmogorov_partial)
def kolmogorov(x: ArrayLike, /) -> Tensor:
    """The survival function of Kolmogorov's distribution."""


@row("kolmogi", None, sampled((0.1, 0.95)), p=lambda xp, out: 1 / _kolmogorov_partial(xp, out))
def kolmogi(p: ArrayLike, /) -> Tensor:
    """The `x` at which `kolmogorov(x)` is `p`."""


# -- Tukey's lambda distribution


def _quantile_by_lambda(xp: Namespace, f: Array, lmbda: Array) -> Array:
    """The derivative of `(f**lmbda - (1 - f)**lmbda) / lmbda` by lmbda, which is smooth at 0."""
    one, other = xp.log(f), xp.log1p(-f)
    largest = xp.maximum(xp.abs(one), xp.abs(other))
    near = xp.abs(lmbda) * largest < 0.5
    small, big = xp.where(near, lmbda, 0), xp.where(near, 1, lmbda)
    series = 0.0
    for k in range(15, 1, -1):
        series = series + (one**k - other**k) * (k - 1) / math.factorial(k) * small ** (k - 2)
    a, b = xp.exp(big * one), xp.exp(big * other)
    return xp.where(near, series, (a * one - b * other - (a - b) / big) / big)


def _tukey_slope(xp: Namespace, f: Array, lmbda: Array) -> Array:
    return 1 / (xp.exp((lmbda - 1) * xp.log(f)) + xp.exp((lmbda - 1) * xp.log1p(-f)))


def _tukey_by_x(xp: Namespace, lmbda: Array, out: Array) -> Array:
    inside = (out > 0) & (out < 1)
    f, lmbda = xp.where(inside, out, 0.5), as_array(xp, lmbda, out)
    return xp.where(inside, _tukey_slope(xp, f, lmbda), 0)


def _tukey_by_lambda(xp: Namespace, lmbda: Array, out: Array) -> Array:
    inside = (out > 0) & (out < 1)
    f, lmbda = xp.where(inside, out, 0.5), as_array(xp, lmbda, out)
    return xp.where(inside, -_quantile_by_lambda(xp, f, lmbda) * _tukey_slope(xp, f, lmbda), 0)


@row("tklmbda", None, sampled((-0.4, 0.4), (0.5, 1.8)), x=_tukey_by_x, lmbda=_tukey_by_lambda)
def tklmbda(x: ArrayLike, lmbda: ArrayLike, /) -> Tensor:
    """The distribution function of Tukey's lambda distribution."""
