"""Derivatives of incomplete gamma and beta functions, and of Student's distribution function, by their parameters.

They are beyond the standard; their kernels are composed of its functions. The method is Tape's own.

The derivative of a distribution function F(x) by a parameter is the integral of the derivative of the density. It is
taken over one of the two tails that x cuts off, in the variable log(t) for the gamma and logit(t) for the beta
distribution. From x on, the integrand falls off like an exponential or faster, so that a Gauss-Legendre formula with a
fixed number of points integrates it to rounding errors. The derivative of the density has (nearly) one sign in each
tail, so that nothing cancels.

For a parameter below 1, the tail near 0 would have two scales. The parameter is then increased by 1, by the recurrence
relations of NIST's Digital Library of Mathematical Functions (DLMF), 8.8.5 and 8.17.20.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache, partial

from tape_core.backends.kernels import WHOLE
from tape_core.engine.op import REFUSED, elementwise
from tape_core.engine.samples import Draw, Refused, Sample, Samples
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import in_double, is_array
from tape_core.ops.special.gamma import (
    DIGAMMA_SERIES_FROM,
    STIRLING_FROM,
    digamma_difference,
    digamma_series,
    stirling_correction,
)
from tape_core.typing import Array, ArrayLike, Namespace

_POINTS = 48  # of the Gauss-Legendre formula
_FALL_AT_END = 45.0  # where the integrand is exp(-45) of its start, it and all that follows are below the last bit
_TAYLOR_UP_TO = 1e-3  # below, functions whose terms cancel are computed by four terms of their Taylor series


@lru_cache
def _gauss_legendre() -> list[tuple[float, float]]:
    """The points and weights of the Gauss-Legendre formula on [0, 1]."""
    found = []
    for k in range(_POINTS):
        x = math.cos(math.pi * (k + 0.75) / (_POINTS + 0.5))
        for _ in range(8):  # Newton's method; the first value has three digits
            last, value = 1.0, x
            for n in range(2, _POINTS + 1):
                last, value = value, ((2 * n - 1) * x * value - (n - 1) * last) / n
            slope = _POINTS * (x * value - last) / (x * x - 1)
            x -= value / slope
        found.append((0.5 * (1 + x), 1 / ((1 - x * x) * slope * slope)))
    return found


def _integrate_tail(
    xp: Namespace, reach: Array, fall: Callable[[Array], Array], factor: Callable[[Array], Array]
) -> Array:
    """The integral of `exp(-fall(v)) * factor(v)` for v from 0 to a v where `fall` is 45 or a little more.

    Args:
        reach: a v where `fall` is 45 or more.
        fall: a convex function with `fall(0) == 0`, so that it is 45 or more beyond `reach` as well.
    """
    # Shorten the reach, by halves and then by smaller steps, as long as `fall` is at least 45 at its end.
    for less in (*(0.5,) * 7, 0.7, 0.85):
        nearer = less * reach
        reach = xp.where(fall(nearer) >= _FALL_AT_END, nearer, reach)
    total = 0.0
    for point, weight in _gauss_legendre():
        v = point * reach
        total = total + weight * xp.exp(-fall(v)) * factor(v)
    return reach * total


def _reach_of_quadratic(xp: Namespace, square: Array, linear: Array) -> Array:
    """The positive root v of `square * v**2 + (2 * linear - c) * v - 2 * c` with c = 45.

    There `linear * v + square * v**2 / (2 + v)`, a lower bound of `fall`, is 45.
    """
    p = 2 * linear - _FALL_AT_END
    root = xp.hypot(p, xp.sqrt(8 * _FALL_AT_END * square))
    return xp.where(p > 0, 4 * _FALL_AT_END / (xp.abs(p) + root), (root - p) / (2 * square))


def _log_ratio(xp: Namespace, x: Array, a: Array) -> Array:
    """`log(x / a)`, without cancellation where x and a are close."""
    near = xp.abs(x - a) < 0.5 * a
    return xp.where(near, xp.log1p(xp.where(near, x - a, 0) / a), xp.log(x) - xp.log(a))


def _exp_minus_1_minus(xp: Namespace, v: Array) -> Array:
    """`exp(v) - 1 - v`, without cancellation."""
    near = xp.abs(v) < _TAYLOR_UP_TO
    u = xp.where(near, v, 0)
    return xp.where(near, u * u * (0.5 + u * (1 / 6 + u * (1 / 24 + u / 120))), xp.expm1(v) - v)


def _log1p_minus(xp: Namespace, w: Array) -> Array:
    """`log(1 + w) - w`, without cancellation."""
    near = xp.abs(w) < _TAYLOR_UP_TO
    u = xp.where(near, w, 0)
    return xp.where(near, u * u * (-0.5 + u * (1 / 3 + u * (-0.25 + u * 0.2))), xp.log1p(w) - w)


# -- the gamma distribution


def _bell(order: int, first: Array, higher: list[Array]) -> list[Array]:
    """The derivatives of exp(f) divided by exp(f), from order 0 to `order`: the complete Bell polynomials.

    Args:
        first: the first derivative of f.
        higher: the second, third, ... derivative of f, up to `order`.
    """
    found: list[Array] = [1.0]
    slopes = [first, *higher]
    for n in range(order):
        found.append(sum(math.comb(n, k) * found[n - k] * slopes[k] for k in range(n + 1)))
    return found


def _gammaln_derivatives(xp: Namespace, order: int, a: Array) -> list[Array]:
    """The derivatives of `-gammaln(a)` of orders 2, 3, ... up to `order`."""
    return [-xp.polygamma(k, a) for k in range(1, order)]


def _arrays_of_one_shape(xp: Namespace, *values: Array) -> list[Array]:
    """Broadcast operands, arrays or Python scalars, to arrays of one shape."""
    zero = sum(xp.zeros_like(v) for v in values if is_array(v))
    return [v + zero for v in values]


def _gammainc_derivative(order: int, xp: Namespace, a: Array, x: Array) -> Array:
    a, x = _arrays_of_one_shape(xp, a, x)
    inside = xp.logical_and(xp.logical_and(a >= 0, a < math.inf), xp.logical_and(x > 0, x < math.inf))
    a_in, x_in = xp.where(inside, a, 1), xp.where(inside, x, 1)
    shifted = xp.logical_and(a_in < 1, x_in < 1)
    b = xp.where(shifted, a_in + 1, a_in)
    below = x_in < b - 0.45  # the derivative of the density changes its sign at about b - 0.45
    one = xp.ones_like(b)
    side = xp.where(below, one, -one)
    slope = side * (b - x_in)
    # Lower bounds of `fall`, for the reach: exp(-v) - 1 + v is at least v**2 / (2 + v); and exp(v) - 1 - v is at least
    # v**2 / 2, and at least w**2 / (2 + 2 * w) for w = exp(v) - 1.
    quotient = _FALL_AT_END / x_in
    above = xp.minimum(
        2 * _FALL_AT_END / (slope + xp.hypot(slope, xp.sqrt(2 * _FALL_AT_END * x_in))),
        xp.log1p(quotient + xp.sqrt(quotient * (quotient + 2))),
    )
    reach = xp.where(below, _reach_of_quadratic(xp, xp.where(below, b, 1), xp.where(below, slope, 1)), above)
    # The density is written as b * t**(b-1) * exp(-t) / gamma(b+1), whose factors have no pole at b = 0. `start` is the
    # derivative of its logarithm by b at t = x, without the factor b; `weight` is the density there, times x / b.
    large = b >= DIGAMMA_SERIES_FROM
    ratio = _log_ratio(xp, x_in, xp.where(large, b, DIGAMMA_SERIES_FROM))
    b_large, b_small = xp.where(large, b, DIGAMMA_SERIES_FROM), xp.where(large, 1.0, b)
    start = xp.where(
        large,
        ratio - (0.5 / b_large + digamma_series(b_large)),
        xp.log(x_in) - xp.digamma(b_small + 1),
    )
    higher = _gammaln_derivatives(xp, order, b + 1)
    weight = xp.where(
        large,
        xp.exp(b_large * ratio - xp.where(large, x_in - b_large, 0) - stirling_correction(b_large))
        / xp.sqrt(2 * math.pi * b_large),
        xp.exp(b_small * xp.log(x_in) - x_in - xp.gammaln(b_small + 1)),
    )

    def factor(v: Array) -> Array:
        bell = _bell(order, start - side * v, higher)
        return b * bell[order] + order * bell[order - 1]  # the derivative of b * exp(f)

    result = (
        side
        * weight
        * _integrate_tail(xp, reach, lambda v: slope * v + x_in * _exp_minus_1_minus(xp, -side * v), factor)
    )
    # DLMF 8.8.5: gammainc(a, x) = gammainc(a + 1, x) + x**a * exp(-x) / gamma(a + 1); the derivative of the last term.
    a_low, x_low = xp.where(shifted, a_in, 0.5), xp.where(shifted, x_in, 0.5)
    log_x = xp.log(x_low)
    low = xp.exp(a_low * log_x - x_low - xp.gammaln(a_low + 1))
    bell = _bell(order, log_x - xp.digamma(a_low + 1), _gammaln_derivatives(xp, order, a_low + 1))
    result = result + xp.where(shifted, low * bell[order], 0)
    ends = xp.logical_or(
        xp.logical_and(x == 0, a > 0), xp.logical_and(x == math.inf, xp.logical_and(a >= 0, a < math.inf))
    )
    ends = xp.logical_or(ends, xp.logical_and(a == math.inf, xp.logical_and(x >= 0, x < math.inf)))
    return xp.where(inside, result, xp.where(ends, xp.zeros_like(result), math.nan))


def _betainc_derivative(orders: tuple[int, int], xp: Namespace, a: Array, b: Array, x: Array) -> Array:
    m, n = orders
    a, b, x = _arrays_of_one_shape(xp, a, b, x)
    parameters = xp.logical_and(xp.logical_and(a > 0, a < math.inf), xp.logical_and(b > 0, b < math.inf))
    inside = xp.logical_and(parameters, xp.logical_and(x > 0, x < 1))
    a_in, b_in, x_in = xp.where(inside, a, 1), xp.where(inside, b, 1), xp.where(inside, x, 0.5)
    below = x_in * (a_in + b_in + 2) <= a_in + 1

    def by_side(first: Array, second: Array) -> tuple[Array, Array]:
        return xp.where(below, first, second), xp.where(below, second, first)

    # Both tails are treated as a lower tail: of z with the parameters p and q, where z, p, q are t, a, b for the lower
    # tail and 1 - t, b, a for the upper one.
    p, q = by_side(a_in, b_in)
    z, rest = by_side(x_in, 1 - x_in)
    log_z, log_rest = by_side(xp.log(x_in), xp.log1p(-x_in))
    shifted = p < 1
    r = xp.where(shifted, p + 1, p)
    nothing = xp.zeros_like(q)

    def log_derivative(
        small: Array, first: Array, both: Array, by_p: Array, by_q: Array
    ) -> Callable[[Array, Array], Array]:
        """The derivative of the density divided by the density, of the orders m and n.

        The density is exp(f), and q * exp(f) where `small` is True, with an f that has no pole at q = 0. The gamma
        functions in f are those of `first`, of q or q + 1, and of `both`.

        Args:
            by_p, by_q: the derivatives of f by p and q at z.

        Returns:
            A function of what these two derivatives are less at another point.
        """
        scale, slope_of_scale = xp.where(small, q, 1), xp.where(small, xp.ones_like(q), 0)
        higher = _betaln_derivatives(xp, m, n, *by_side(first, xp.where(small, q + 1, q)), both)

        def at(less_p: Array, less_q: Array) -> Array:
            by_a, by_b = by_side(by_p - less_p, by_q - less_q)
            bell = _bell_in_two(m, n, {**higher, (1, 0): by_a, (0, 1): by_b})
            less_a = m * bell[m - 1, n] + nothing if m else nothing
            less_b = n * bell[m, n - 1] + nothing if n else nothing
            return bell[m, n] + slope_of_scale / scale * xp.where(below, less_b, less_a)

        return at

    total = r + q
    slope = r * rest - q * z
    small = q < 1
    psi = _psi_difference(xp, xp.where(small, q + 1, q), xp.where(small, xp.where(shifted, p, p - 1), r))
    at = log_derivative(small, r, total, log_z - _psi_difference(xp, r, q), log_rest - psi)

    # With v from 0 on, the logit of the variable of integration is that of z, less v.
    def fall(v: Array) -> Array:
        return slope * v + total * (z * _exp_minus_1_minus(xp, -v) + _log1p_minus(xp, z * xp.expm1(-v)))

    def factor(v: Array) -> Array:
        common = xp.log1p(z * xp.expm1(-v))
        return at(v + common, common)

    reach = _reach_of_quadratic(xp, slope + total * z * rest, slope)
    result = xp.exp(_log_beta_weight(xp, r, q, z, rest, log_z, log_rest)) * _integrate_tail(xp, reach, fall, factor)
    # DLMF 8.17.20: the recurrence that increases p adds z**p * rest**q / (p * beta(p, q)); the derivative of this term.
    p_low = xp.where(shifted, p, 0.5)
    both = p_low + q
    small = q < p_low
    psi = xp.where(small, xp.digamma(q + 1) - xp.digamma(both), _psi_difference(xp, q, p_low))
    at = log_derivative(small, p_low + 1, both, log_z - xp.digamma(p_low + 1) + xp.digamma(both), log_rest - psi)
    low = xp.exp(p_low * log_z + q * log_rest - xp.betaln(p_low, q)) / p_low * at(0.0, 0.0)
    result = result + xp.where(shifted, low, 0)
    result = xp.where(below, result, -result)
    ends = xp.logical_and(parameters, xp.logical_or(x == 0, x == 1))
    return xp.where(inside, result, xp.where(ends, xp.zeros_like(result), math.nan))


def _bell_in_two(m: int, n: int, slopes: dict[tuple[int, int], Array]) -> dict[tuple[int, int], Array]:
    """The derivatives of exp(f) divided by exp(f), by two parameters, up to the orders m and n; see :func:`_bell`."""
    found: dict[tuple[int, int], Array] = {(0, 0): 1.0}
    for j in range(n):
        found[0, j + 1] = sum(math.comb(j, h) * found[0, j - h] * slopes[0, h + 1] for h in range(j + 1))
    for i in range(m):
        for j in range(n + 1):
            found[i + 1, j] = sum(
                math.comb(i, k) * math.comb(j, h) * found[i - k, j - h] * slopes[k + 1, h]
                for k in range(i + 1)
                for h in range(j + 1)
            )
    return found


def _betaln_derivatives(xp: Namespace, m: int, n: int, a: Array, b: Array, both: Array) -> dict[tuple[int, int], Array]:
    """The derivatives of `gammaln(both) - gammaln(a) - gammaln(b)` by a and b, of total order 2 or more, to (m, n)."""
    found = {}
    for i in range(m + 1):
        for j in range(max(0, 2 - i), n + 1):
            found[i, j] = xp.polygamma(i + j - 1, both)
            if j == 0:
                found[i, j] = found[i, j] - xp.polygamma(i - 1, a)
            if i == 0:
                found[i, j] = found[i, j] - xp.polygamma(j - 1, b)
    return found


def _psi_difference(xp: Namespace, a: Array, b: Array) -> Array:
    """`digamma(a) - digamma(a + b)` for positive a and a + b, without cancellation where b is small or a large."""
    # For small a, ten steps of the recurrence of both lead to 10 or more, where the series holds.
    difference = 0.0
    low = a < DIGAMMA_SERIES_FROM
    start = xp.where(low, a, 1.0)
    for k in range(10):
        difference = difference + b / (start + k) / (start + b + k)
    start = xp.where(low, a + 10, a)
    y = start + b
    # Stirling's series of both. The argument of log1p is never near -1, since 1 + b / start is above 10 / (10 + a).
    beyond = digamma_series(start) - digamma_series(y) - b / start / (2 * y) - xp.log1p(b / start)
    return beyond - xp.where(low, difference, 0)


def _log_beta_weight(xp: Namespace, p: Array, q: Array, z: Array, rest: Array, log_z: Array, log_rest: Array) -> Array:
    """`log(z**p * rest**q / beta(p, q))` for z + rest = 1, without cancellation where p and q are large."""
    large = xp.logical_and(p >= STIRLING_FROM, q >= STIRLING_FROM)
    p_in, q_in = xp.where(large, p, STIRLING_FROM), xp.where(large, q, STIRLING_FROM)
    total = p_in + q_in
    # Stirling's series of beta(p, q); z is compared with the mean p / (p + q), near which the powers would cancel.
    gap = q_in * z - p_in * rest
    near = xp.logical_and(xp.abs(gap) < 0.5 * p_in, xp.abs(gap) < 0.5 * q_in)
    gap = xp.where(near, gap, 0)
    by_p = xp.where(near, xp.log1p(gap / p_in), log_z - xp.log(p_in / total))
    by_q = xp.where(near, xp.log1p(-gap / q_in), log_rest - xp.log(q_in / total))
    far = (
        p_in * by_p
        + q_in * by_q
        + 0.5 * xp.log(p_in * (q_in / total) / (2 * math.pi))
        + (stirling_correction(total) - stirling_correction(p_in) - stirling_correction(q_in))
    )
    return xp.where(large, far, p * log_z + q * log_rest - xp.betaln(p, q))


# -- Student's distribution


def _t_constants(xp: Namespace, order: int, df: Array) -> tuple[Array, list[Array]]:
    """The part of the derivatives of the log-density by df that comes from gamma functions; it is the same for all t.

    Returns:
        The first derivative, and those of orders 2 to `order`.
    """
    half = 0.5 * df
    far = xp.where(half < DIGAMMA_SERIES_FROM, DIGAMMA_SERIES_FROM, half)
    gamma = digamma_series(far + 0.5) - digamma_series(far) + 0.25 / far / (far + 0.5) + _log1p_minus(xp, 0.5 / far)
    gamma = xp.where(half < DIGAMMA_SERIES_FROM, -_psi_difference(xp, half, 0.5) - 1 / df, gamma)
    return gamma, [xp.polygamma(k - 1, half + 0.5) - xp.polygamma(k - 1, half) for k in range(2, order + 1)]


def _log_t_derivatives(
    xp: Namespace, constants: tuple[Array, list[Array]], df: Array, ratio: Array, log: Array, part: Array
) -> list[Array]:
    """The derivatives of the logarithm of the density at t by df: the first, second, ..., as many as `constants` has.

    Args:
        constants: from :func:`_t_constants`.
        ratio: t**2 / df; it must be right only where it is small.
        log: the logarithm of (df + t**2) / df.
        part: df / (df + t**2).
    """
    # Where t is small, the terms are of the order 1 / df, and their sum of the order 1 / df**2: collect what cancels.
    small = ratio < _TAYLOR_UP_TO
    low = xp.where(small, ratio, 0)
    by_t = xp.where(small, _log1p_minus(xp, low) + low * (1 - part), log - (1 - part)) - (1 - part) / df
    gamma, gains = constants
    found = [0.5 * (gamma - by_t)]
    before = (part - 1) / df  # the derivative of order k - 1 of the logarithm of (df + t**2) / df
    for k, gain in enumerate(gains, 2):
        power = -((-1.0) ** k) * math.factorial(k - 1) * df**-k
        following = power * (part**k - 1)
        found.append(0.5**k * gain - 0.5 * (power + (df + 1) * following + k * before))
        before = following
    return found


def _stdtr_derivative(order: int, xp: Namespace, df: Array, t: Array) -> Array:
    df, t = _arrays_of_one_shape(xp, df, t)
    possible = xp.logical_and(df >= _MIN_DF, xp.abs(t) < math.inf)
    inside = xp.logical_and(xp.logical_and(possible, df <= _NORMAL_FROM_DF), t != 0)
    n = xp.where(inside, df, 1)
    root = xp.where(inside, xp.abs(t), 1) / xp.sqrt(n)
    # The integral is taken either from 0 to t, in v with t = sqrt(df) * sinh(v), or from t on, in t * exp(v). Where df
    # is small, the tail beyond t has nearly all of the probability, and its derivative would be a small difference: the
    # first way then reaches further.
    near = root < xp.where(n < 0.01, 1e10, xp.where(n < 1, 1e4, 1 / xp.sqrt(n)))
    square = xp.minimum(root, 1e150) ** 2
    share = 1 / (1 + square)
    start = xp.where(root < 1e10, xp.log1p(square), 2 * xp.log(root))
    constants = _t_constants(xp, order, n)

    def log(v: Array) -> Array:
        """The logarithm of (df + t**2) / df at a point v."""
        inner = xp.sinh(xp.where(near, v, 0))
        outer = start + 2 * v + xp.log1p(share * xp.expm1(-2 * v))
        return xp.where(near, xp.log1p(inner * inner), outer)

    def fall(v: Array) -> Array:
        return xp.where(near, 0.5 * n * log(v), n * v + 0.5 * (n + 1) * xp.log1p(share * xp.expm1(-2 * v)))

    def factor(v: Array) -> Array:
        # The square root of the ratio, cut off where it is large and not used.
        u = xp.where(near, xp.sinh(xp.where(near, v, 0)), xp.minimum(root, 1e3) * xp.exp(xp.minimum(v, 9.0)))
        value = log(v)
        slopes = _log_t_derivatives(xp, constants, n, u * u, value, xp.exp(-value))
        return _bell(order, slopes[0], slopes[1:])[order]

    reach = (_FALL_AT_END + 0.5 * (n + 1) * xp.log1p(1 / square)) / n
    reach = xp.where(near, xp.asinh(xp.where(near, root, 0)), reach)
    constant = xp.betaln(0.5 * n, 0.5 + 0 * n)
    weight = xp.where(near, xp.exp(-constant), -xp.exp(xp.log(root) - 0.5 * (n + 1) * start - constant))
    result = xp.sign(t) * weight * _integrate_tail(xp, reach, fall, factor)
    # For many degrees of freedom the distribution is nearly normal: differentiate the first term of the series in 1 /
    # df (Fisher, "Expansion of Student's integral in powers of n^-1", Metron 5, 1925).
    large = xp.logical_and(possible, df > _NORMAL_FROM_DF)
    u = xp.where(xp.logical_and(large, xp.abs(t) < 50), t, 0)
    normal = xp.exp(-0.5 * u * u) * (u + u * u * u) / (4 * math.sqrt(2 * math.pi))
    top = xp.where(large, df, 1)
    series = -((-1.0) ** order) * math.factorial(order) * normal / top / top**order
    ends = xp.logical_and(df >= _MIN_DF, t == t)
    return xp.where(inside, result, xp.where(large, series, xp.where(ends, xp.zeros_like(result), math.nan)))


_MIN_DF = 1e-6  # degrees of freedom; below, the derivative is NaN
_NORMAL_FROM_DF = 1e8  # degrees of freedom; above, the first term of the series in 1 / df is exact


# -- the densities, which are in the rules of the distribution functions


def as_array(xp: Namespace, value: Array, like: Array) -> Array:
    """A parameter as an array; ops of one operand do not take Python scalars inside rules."""
    return value if is_array(value) else value + xp.zeros_like(like)


_LARGEST_LOG = 700.0  # of a number that float64 has


def _power_at_0(xp: Namespace, x: Array, zero: Array, power: Array, log: Array) -> Array:
    """`x**power * exp(log)` where x is 0, which `zero` says: all its derivatives, where those of the logarithm fail."""
    return xp.pow(xp.where(zero, x, 1), power) * xp.exp(xp.minimum(log, _LARGEST_LOG))


def gamma_density(xp: Namespace, a: Array, x: Array) -> Array:
    """The derivative of `gammainc(a, x)` by x: the density of the gamma distribution."""
    a = as_array(xp, a, x)
    far, zero = x == math.inf, x == 0
    inner, constant = xp.where(far | zero, 1, x), xp.gammaln(a)
    density = xp.exp(xp.xlogy(a - 1, inner) - inner - constant)
    at_0 = _power_at_0(xp, x, zero, a - 1, -xp.where(zero, x, 0) - constant)
    return xp.where(zero, at_0, xp.where(far, 0, density))


def beta_density(xp: Namespace, a: Array, b: Array, x: Array) -> Array:
    """The derivative of `betainc(a, b, x)` by x: the density of the beta distribution."""
    a, b = as_array(xp, a, x), as_array(xp, b, x)
    zero, one = x == 0, x == 1
    inner, constant = xp.where(zero | one, 0.5, x), xp.betaln(a, b)
    density = xp.exp(xp.xlogy(a - 1, inner) + xp.xlog1py(b - 1, -inner) - constant)
    at_0 = _power_at_0(xp, x, zero, a - 1, xp.xlog1py(b - 1, -xp.where(zero, x, 0)) - constant)
    at_1 = _power_at_0(xp, 1 - x, one, b - 1, xp.xlogy(a - 1, xp.where(one, x, 1)) - constant)
    return xp.where(zero, at_0, xp.where(one, at_1, density))


def t_density(xp: Namespace, df: Array, t: Array) -> Array:
    """The derivative of `stdtr(df, t)` by t: the density of Student's distribution."""
    df = as_array(xp, df, t)
    return xp.exp(-0.5 * (df + 1) * xp.log1p(t * t / df) - xp.betaln(0.5 * df, xp.full_like(df, 0.5))) / xp.sqrt(df)


def _times_density(xp: Namespace, density: Array, change: Array) -> Array:
    """`density * change`, and 0 where the density is: at the ends of the support `change` has infinite logarithms."""
    return density * xp.where(density == 0, 0, change)


def _gamma_density_change(xp: Namespace, a: Array, x: Array, order: int) -> Array:
    a = as_array(xp, a, x)
    bell = _bell(order, xp.log(x) - xp.digamma(a), _gammaln_derivatives(xp, order, a))
    return _times_density(xp, gamma_density(xp, a, x), bell[order])


def _beta_density_change(xp: Namespace, a: Array, b: Array, x: Array, orders: tuple[int, int]) -> Array:
    m, n = orders
    a, b = as_array(xp, a, x), as_array(xp, b, x)
    slopes = {
        **_betaln_derivatives(xp, m, n, a, b, a + b),
        (1, 0): xp.log(x) - digamma_difference(xp, a, b),
        (0, 1): xp.log1p(-x) - digamma_difference(xp, b, a),
    }
    return _times_density(xp, beta_density(xp, a, b, x), _bell_in_two(m, n, slopes)[m, n])


def _t_density_change(xp: Namespace, df: Array, t: Array, order: int) -> Array:
    df = as_array(xp, df, t)
    ratio = t * t / df
    slopes = _log_t_derivatives(xp, _t_constants(xp, order, df), df, ratio, xp.log1p(ratio), 1 / (1 + ratio))
    return _times_density(xp, t_density(xp, df, t), _bell(order, slopes[0], slopes[1:])[order])


# -- the ops

_MAX_ORDER = 20  # of a derivative


def _check_order(order: object) -> int:
    if type(order) is not int:
        raise TypeError(f"order must be an integer, got {order!r}")
    if not 1 <= order <= _MAX_ORDER:
        raise ValueError(f"order must be between 1 and {_MAX_ORDER}, got {order}")
    return order


def _check_orders(orders: object) -> tuple[int, int]:
    if not isinstance(orders, tuple | list) or [type(n) for n in orders] != [int, int]:
        raise TypeError(f"orders must be two integers, got {orders!r}")
    m, n = orders
    if min(m, n) < 0 or not 1 <= m + n <= _MAX_ORDER:
        raise ValueError(f"orders must be from 0 on, with a sum between 1 and {_MAX_ORDER}, got {(m, n)}")
    return m, n


def _gamma_kernel(xp: Namespace, a: Array, x: Array, order: int = 1) -> Array:
    return in_double(partial(_gammainc_derivative, _check_order(order)))(xp, a, x)


def _beta_kernel(xp: Namespace, a: Array, b: Array, x: Array, orders: tuple[int, int] = (1, 0)) -> Array:
    return in_double(partial(_betainc_derivative, _check_orders(orders)))(xp, a, b, x)


def _t_kernel(xp: Namespace, df: Array, t: Array, order: int = 1) -> Array:
    return in_double(partial(_stdtr_derivative, _check_order(order)))(xp, df, t)


# Thousands of calls each: compiled code keeps these kernels in one piece.
WHOLE.update((_gamma_kernel, _beta_kernel, _t_kernel))


def _samples(low: float, high: float, low2: float, high2: float) -> Samples:
    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(draw(2, 3, low=low, high=high), draw(2, 3, low=low2, high=high2))
        yield Sample(draw(2, 1, low=low, high=high), draw(3, low=low2, high=high2), order=2)
        yield Sample(0.8, draw(3, low=low2, high=high2))
        yield Sample(draw(3, low=low, high=high), 1.5)
        yield Sample(draw(low=low, high=high), draw(low=low2, high=high2))
        yield Sample(draw(0, 2), draw(2))
        yield Refused(ValueError, "order must be between 1 and 20, got 0", draw(2), draw(2), order=0)
        yield Refused(TypeError, "order must be an integer", draw(2), draw(2), order=1.5)
        yield Refused(TypeError, "real numbers", draw(2), draw.complex(2))

    return samples


def _beta_samples(draw: Draw) -> Iterator[Sample]:
    def triple(*shape: int) -> list[Tensor]:
        return [draw(*shape, low=0.4, high=5), draw(*shape, low=0.4, high=5), draw(*shape, low=0.05, high=0.95)]

    yield Sample(*triple(2, 3))
    yield Sample(*triple(2, 3), orders=(0, 1))
    yield Sample(*triple(3), orders=(1, 1))
    yield Sample(*triple(), orders=(2, 0))
    yield Sample(2.5, draw(2, 1, low=0.4, high=5), draw(3, low=0.05, high=0.95))
    yield Sample(draw(0, 2), draw(2), draw(0, 2))
    yield Refused(ValueError, "a sum between 1 and 20", *triple(2), orders=(0, 0))
    yield Refused(TypeError, "two integers", *triple(2), orders=1)


@elementwise(
    a=lambda xp, a, x, order: xp.gammainc_derivative(a, x, order=order + 1),
    x=_gamma_density_change,
    kernel=_gamma_kernel,
    samples=_samples(0.3, 8, 0.3, 8),
    complex_kernel=REFUSED,
)
def gammainc_derivative(a: ArrayLike, x: ArrayLike, /, order: int = 1) -> Tensor:
    """The derivative of :func:`gammainc` with respect to `a`, of any `order` from 1 to 20.

    >>> import tape_core as tc
    >>> print(f"{tc.special.gammainc_derivative(2.0, 3.0):.4f}")
    -0.1974

    Raises:
        TypeError: `order` is not an integer.
        ValueError: `order` is not between 1 and 20.
    """


@elementwise(
    a=lambda xp, a, b, x, orders: xp.betainc_derivative(a, b, x, orders=(orders[0] + 1, orders[1])),
    b=lambda xp, a, b, x, orders: xp.betainc_derivative(a, b, x, orders=(orders[0], orders[1] + 1)),
    x=_beta_density_change,
    kernel=_beta_kernel,
    samples=_beta_samples,
    complex_kernel=REFUSED,
)
def betainc_derivative(a: ArrayLike, b: ArrayLike, x: ArrayLike, /, orders: tuple[int, int] = (1, 0)) -> Tensor:
    """The derivative of :func:`betainc` with respect to `a` and `b`; `orders` are the orders in `a` and in `b`.

    >>> import tape_core as tc
    >>> print(f"{tc.special.betainc_derivative(2.0, 3.0, 0.5, orders=(0, 1)):.4f}")
    0.1541

    Raises:
        TypeError: `orders` are not two integers.
        ValueError: one of `orders` is negative, or their sum is not between 1 and 20.
    """


@elementwise(
    df=lambda xp, df, t, order: xp.stdtr_derivative(df, t, order=order + 1),
    t=_t_density_change,
    kernel=_t_kernel,
    samples=_samples(0.8, 6, -4, 4),
    complex_kernel=REFUSED,
)
def stdtr_derivative(df: ArrayLike, t: ArrayLike, /, order: int = 1) -> Tensor:
    """The derivative of :func:`stdtr` with respect to `df`, of any `order` from 1 to 20.

    >>> import tape_core as tc
    >>> print(f"{tc.special.stdtr_derivative(2.0, 1.0):.4f}")
    0.0225

    Above 1e8 degrees of freedom it is computed from the first term of the series in 1 / df; below 1e-6 it is NaN.

    Raises:
        TypeError: `order` is not an integer.
        ValueError: `order` is not between 1 and 20.
    """
