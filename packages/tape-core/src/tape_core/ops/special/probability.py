"""Distribution functions under the names of `scipy.special`, by incomplete gamma and beta functions.

These have the derivatives; so all functions here are differentiable with respect to all their real parameters. Counts,
such as the number of successes, are rounded down as SciPy does, and have none.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tape_core.engine.tensor import Tensor
from tape_core.ops import elementwise as ew
from tape_core.ops.elementwise import where
from tape_core.ops.special.by_scipy import betainc, betaincinv, gammainc, gammaincc, gammainccinv, gammaincinv
from tape_core.ops.special.composed import to_float_tensors
from tape_core.ops.special.error_functions import ndtri
from tape_core.typing import ArrayLike


def betaincc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`1 - betainc(a, b, x)`, accurate where it is small."""
    a, b, x = to_float_tensors(a, b, x)
    result: Tensor = betainc(b, a, 1.0 - x)
    return result


def betainccinv(a: ArrayLike, b: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The `x` at which `betaincc(a, b, x)` is `y`."""
    a, b, y = to_float_tensors(a, b, y)
    return 1.0 - betaincinv(b, a, y)


# -- chi-square


def chdtr(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The probability of a value below `x` under the chi-square distribution with `v` degrees of freedom."""
    v, x = to_float_tensors(v, x)
    result: Tensor = gammainc(0.5 * v, 0.5 * x)
    return result


def chdtrc(v: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`1 - chdtr(v, x)`, accurate where it is small."""
    v, x = to_float_tensors(v, x)
    result: Tensor = gammaincc(0.5 * v, 0.5 * x)
    return result


def chdtri(v: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The `x` at which `chdtrc(v, x)` is `p`."""
    v, p = to_float_tensors(v, p)
    return 2.0 * gammainccinv(0.5 * v, p)


# -- gamma


def gdtr(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The probability of a value below `x` under the gamma distribution of rate `a` and shape `b`."""
    a, b, x = to_float_tensors(a, b, x)
    return where(x >= 0, gammainc(b, a * x), math.nan)


def gdtrc(a: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`1 - gdtr(a, b, x)`, accurate where it is small."""
    a, b, x = to_float_tensors(a, b, x)
    return where(x >= 0, gammaincc(b, a * x), math.nan)


def gdtria(p: ArrayLike, b: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The rate at which `gdtr(a, b, x)` is `p`."""
    p, b, x = to_float_tensors(p, b, x)
    return where(x > 0, gammaincinv(b, p) / where(x > 0, x, 1.0), math.nan)


def gdtrix(a: ArrayLike, b: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The `x` at which `gdtr(a, b, x)` is `p`."""
    a, b, p = to_float_tensors(a, b, p)
    result: Tensor = gammaincinv(b, p) / a
    return result


# -- F


def fdtr(dfn: ArrayLike, dfd: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The probability of a value below `x` under the F distribution; NaN for negative `x`."""
    n, d, x = to_float_tensors(dfn, dfd, x)
    inside = (n > 0) & (d > 0) & (x >= 0)
    return where(inside, betainc(0.5 * n, 0.5 * d, n * x / where(inside, d + n * x, 1.0)), math.nan)


def fdtrc(dfn: ArrayLike, dfd: ArrayLike, x: ArrayLike, /) -> Tensor:
    """`1 - fdtr(dfn, dfd, x)`, accurate where it is small."""
    n, d, x = to_float_tensors(dfn, dfd, x)
    inside = (n > 0) & (d > 0) & (x >= 0)
    return where(inside, betainc(0.5 * d, 0.5 * n, d / where(inside, d + n * x, 1.0)), math.nan)


def fdtri(dfn: ArrayLike, dfd: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The `x` at which `fdtr(dfn, dfd, x)` is `p`."""
    n, d, p = to_float_tensors(dfn, dfd, p)
    share, rest = betaincinv(0.5 * n, 0.5 * d, p), betaincinv(0.5 * d, 0.5 * n, 1.0 - p)
    # The smaller one of the two has all its digits.
    low = share < 0.5
    odds = where(low, share / (1.0 - where(low, share, 0.0)), (1.0 - where(low, 0.5, rest)) / where(low, 0.5, rest))
    return d * odds / n


# -- counts


def _of_count(k: Tensor, valid: Tensor | bool, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Call a function with the number above a count; NaN for negative counts, and where `valid` does not hold."""
    counted = (k >= 0) & valid
    return where(counted, function(ew.floor(where(counted, k, 0.0)) + 1.0), math.nan)


def bdtr(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The probability of at most `k` successes in `n` trials, each of probability `p`."""
    k, n, p = to_float_tensors(k, n, p)
    k, n = ew.floor(k), ew.floor(n)
    within = (k >= 0) & (k < n)
    failures, successes = where(within, n - k, 1.0), where(within, k + 1.0, 1.0)
    outside = where((k == n) & (k >= 0) & (p >= 0) & (p <= 1), 1.0, math.nan)
    return where(within, betainc(failures, successes, 1.0 - p), outside)


def bdtrc(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The probability of more than `k` successes in `n` trials, each of probability `p`."""
    k, n, p = to_float_tensors(k, n, p)
    k, n = ew.floor(k), ew.floor(n)
    within = (k >= 0) & (k < n)
    failures, successes = where(within, n - k, 1.0), where(within, k + 1.0, 1.0)
    outside = where((p >= 0) & (p <= 1), where(k < 0, 1.0, where(k == n, 0.0, math.nan)), math.nan)
    return where(within, betainc(successes, failures, p), outside)


def bdtri(k: ArrayLike, n: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The probability of a success at which `bdtr(k, n, p)` is `y`."""
    k, n, y = to_float_tensors(k, n, y)
    k, n = ew.floor(k), ew.floor(n)
    within = (k >= 0) & (k < n)
    failures, successes = where(within, n - k, 1.0), where(within, k + 1.0, 1.0)
    return where(within, 1.0 - betaincinv(failures, successes, y), math.nan)


def nbdtr(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The probability of at most `k` failures before `n` successes, each of probability `p`."""
    k, n, p = to_float_tensors(k, n, p)
    return _of_count(k, ew.floor(n) >= 1, lambda above: betainc(ew.floor(n), above, p))


def nbdtrc(k: ArrayLike, n: ArrayLike, p: ArrayLike, /) -> Tensor:
    """The probability of more than `k` failures before `n` successes, each of probability `p`."""
    k, n, p = to_float_tensors(k, n, p)
    return _of_count(k, ew.floor(n) >= 1, lambda above: betainc(above, ew.floor(n), 1.0 - p))


def nbdtri(k: ArrayLike, n: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The probability of a success at which `nbdtr(k, n, p)` is `y`."""
    k, n, y = to_float_tensors(k, n, y)
    return _of_count(k, ew.floor(n) >= 1, lambda above: betaincinv(ew.floor(n), above, y))


def pdtr(k: ArrayLike, m: ArrayLike, /) -> Tensor:
    """The probability of at most `k` events, of which there are `m` on average, under the Poisson distribution."""
    k, m = to_float_tensors(k, m)
    return _of_count(k, True, lambda above: gammaincc(above, m))


def pdtrc(k: ArrayLike, m: ArrayLike, /) -> Tensor:
    """The probability of more than `k` events, of which there are `m` on average."""
    k, m = to_float_tensors(k, m)
    return _of_count(k, True, lambda above: gammainc(above, m))


def pdtri(k: ArrayLike, y: ArrayLike, /) -> Tensor:
    """The average number of events at which `pdtr(k, m)` is `y`."""
    k, y = to_float_tensors(k, y)
    return _of_count(ew.trunc(k), y < 1, lambda above: gammainccinv(above, y))


# -- normal


def nrdtrimn(p: ArrayLike, std: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The mean of the normal distribution of deviation `std` that has a value below `x` with probability `p`."""
    p, std, x = to_float_tensors(p, std, x)
    return where(std > 0, x - std * _inner(p), math.nan)


def nrdtrisd(mn: ArrayLike, p: ArrayLike, x: ArrayLike, /) -> Tensor:
    """The deviation of the normal distribution of mean `mn` that has a value below `x` with probability `p`."""
    mn, p, x = to_float_tensors(mn, p, x)
    result: Tensor = (x - mn) / _inner(p)
    return result


def _inner(p: Tensor) -> Tensor:
    """The quantile of the normal distribution; NaN for probabilities 0 and 1."""
    inside = (p > 0) & (p < 1)
    return where(inside, ndtri(where(inside, p, 0.5)), math.nan)
