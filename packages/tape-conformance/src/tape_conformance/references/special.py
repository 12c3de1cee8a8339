"""References of special functions by SciPy, of running sums by definition, of integration by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from scipy import special
from tape_core.support import SCIPY_BOUNDS

from tape_conformance.references import Array


def _logcumsumexp(x: Array, *, axis: int | None = None, include_initial: bool = False) -> Any:
    lines = np.moveaxis(x, 0 if axis is None else axis, -1)
    n = lines.shape[-1]
    parts = [np.full(lines.shape[:-1], -np.inf)] if include_initial else []
    parts += [special.logsumexp(lines[..., : k + 1], axis=-1) for k in range(n)]
    out = np.stack(parts, axis=-1) if parts else lines
    return np.moveaxis(out, -1, 0 if axis is None else axis)


def _linear_recurrence(a: Array, b: Array) -> Any:
    out = np.array(b)
    for k in range(1, b.shape[-1]):
        # y[k] = a[k] y[k - 1] + b[k], with y[0] = b[0].
        out[..., k] += a[..., k] * out[..., k - 1]
    return out


# At infinities and poles SciPy's values of the next three are not the limits, which Tape returns.


def _i0(x: Array) -> Any:
    return np.where(np.isinf(x), np.inf, special.i0(x))


def _i1(x: Array) -> Any:
    return np.where(np.isinf(x), x, special.i1(x))


def _betaln(a: Array, b: Array) -> Any:
    out = special.betaln(a, b)
    out = np.where((np.maximum(a, b) == np.inf) & (np.minimum(a, b) > 0), -np.inf, out)
    poles = np.logical_or(*((v <= 0) & (v == np.floor(v)) for v in (a, b)))
    return np.where(np.isnan(a) | np.isnan(b), np.nan, np.where(poles, np.inf, out))


def _trapezoid(y: Array, x: Array | None = None, *, dx: float = 1.0, axis: int = -1) -> Any:
    return np.trapezoid(y, x, dx, axis)


# Derivatives of distribution functions with respect to their parameters. A term of the power series is exp(f) with f
# a sum of logarithms, so that its derivative is exp(f) times a polynomial in the derivatives of f. At points which the
# series do not reach (zeros, infinities, 1e300) the limits are written down.

_PARTS: Final = {
    "fresnel": {0: "fresnel_s", 1: "fresnel_c"},
    "sici": {0: "sine_integral", 1: "cosine_integral"},
    "shichi": {0: "sinh_integral", 1: "cosh_integral"},
    "itj0y0": {0: "integral_j0", 1: "integral_y0"},
    "it2j0y0": {0: "integral_j0_over", 1: "integral_y0_over"},
    "iti0k0": {0: "integral_i0", 1: "integral_k0"},
    "it2i0k0": {0: "integral_i0_over", 1: "integral_k0_over"},
    "airy": {0: "airy_ai", 1: "airy_ai_slope", 2: "airy_bi", 3: "airy_bi_slope"},
    "airye": {0: "airye_ai", 1: "airye_ai_slope", 2: "airye_bi", 3: "airye_bi_slope"},
    "itairy": {0: "integral_ai", 1: "integral_bi", 2: "integral_ai_below", 3: "integral_bi_below"},
    "pbdv": {0: "cylinder_d", 1: "cylinder_d_slope"},
    "pbvv": {0: "cylinder_v", 1: "cylinder_v_slope"},
    "pbwa": {0: "cylinder_w", 1: "cylinder_w_slope"},
    "ellipj": {3: "amplitude"},
}
"""Functions with several results, by whose number the ops are called that give one of them."""

SERIES_TERMS_GAMMA: Final = 400  # enough for a < 1e3 and x < 1e2
SERIES_TERMS_BETA: Final = 1500  # enough for a, b < 1e3 and x < 1
SERIES_TERMS_STUDENT: Final = 3000  # enough for df < 1e3 and |t| < 1e2


def _relative_derivative(order: int, first: Array, second: Array | float = 0.0) -> Any:
    """Return the derivative of exp(f) divided by exp(f), of order 1 or 2, from the derivatives of f."""
    return first if order == 1 else first * first + second


def _gammainc_derivative(a: Array, x: Array, order: int = 1) -> Any:
    a, x = np.broadcast_arrays(a, x)
    inside = (a >= 0) & (a < 1e3) & (x > 0) & (x < 1e2)
    p, z = np.where(inside, a, 1.0), np.where(inside, x, 1.0)
    # P(a, x) = exp(-x) sum of x**(a + k) / gamma(a + k + 1), DLMF 8.2.7 and 8.7.1.
    total = np.zeros(a.shape)
    for k in range(SERIES_TERMS_GAMMA):
        term = np.exp((p + k) * np.log(z) - z - special.gammaln(p + k + 1))
        total = total + term * _relative_derivative(
            order, np.log(z) - special.psi(p + k + 1), -special.polygamma(1, p + k + 1)
        )
    # Where the series does not reach, P is 0 or 1, with a derivative of 0; but at a = x, large, P(a, x) is nearly the
    # normal distribution function of (x - a) / sqrt(a).
    zero = (a >= 0) & (x >= 0) & ~((a == 0) & (x == 0)) & ~((a == np.inf) & (x == np.inf))
    normal = (a > 1e200) & (a == x) & (x < np.inf)  # the normal density at 0 times the change of the mean
    far = np.where(normal, -1 / np.sqrt(2 * np.pi * np.where(normal, a, 1.0)), 0.0)
    return np.where(inside, total, np.where(zero, far, np.nan))


def _betainc_derivative(a: Array, b: Array, x: Array, orders: tuple[int, int] = (1, 0)) -> Any:
    a, b, x = np.broadcast_arrays(a, b, x)
    parameters = (a > 0) & (b > 0) & (a < np.inf) & (b < np.inf)
    inside = parameters & (a < 1e3) & (b < 1e3) & (x > 0) & (x < 1)
    p, q, z = np.where(inside, a, 1.0), np.where(inside, b, 1.0), np.where(inside, x, 0.5)
    # I_x(a, b) = sum of gamma(a + b + k) / (gamma(a + k + 1) gamma(b)) x**(a + k) (1 - x)**b, DLMF 8.17.8.
    total = np.zeros(a.shape)
    for k in range(SERIES_TERMS_BETA):
        both = p + q + k
        log = (p + k) * np.log(z) + q * np.log1p(-z) + special.gammaln(both) - special.gammaln(p + k + 1)
        by_a = np.log(z) + special.psi(both) - special.psi(p + k + 1)
        by_b = np.log1p(-z) + special.psi(both) - special.psi(q)
        second = special.polygamma(1, both)
        change = {
            (1, 0): by_a,
            (0, 1): by_b,
            (1, 1): by_a * by_b + second,
            (2, 0): by_a**2 + second - special.polygamma(1, p + k + 1),
        }[orders]
        total = total + np.exp(log - special.gammaln(q)) * change
    # For large a = b, I_x is nearly the normal distribution function with mean a / (a + b) and variance 1 / (8 a). For
    # large b, I_x(a, b) tends to P(a, b x).
    far = np.where(parameters & (x >= 0) & (x <= 1), 0.0, np.nan)
    if orders == (1, 0):
        normal = parameters & (a > 1e200) & (a == b) & (x == 0.5)
        far = np.where(normal, -0.5 / np.sqrt(np.pi * np.where(normal, a, 1.0)), far)
        like_gamma = parameters & (a < 1e3) & (b > 1e200) & (x > 0) & (x < 1e-200)
        far = np.where(like_gamma, _gammainc_derivative(*np.where(like_gamma, (a, b * x), 1.0)), far)
    return np.where(inside, total, far)


def _stdtr_derivative(df: Array, t: Array, order: int = 1) -> Any:
    df, t = np.broadcast_arrays(df, t)
    inside = (df >= 1e-6) & (df < 1e3) & (np.abs(t) < 1e2) & (t != 0)
    n, size = np.where(inside, df, 1.0), np.where(inside, np.abs(t), 1.0)
    s = size * size
    # The distribution function is 1/2 + I_y(1/2, df/2) / 2 with y = t**2 / (df + t**2), DLMF 8.17.8 again; for negative
    # t the sign changes (the last line).
    total = np.zeros(df.shape)
    for k in range(SERIES_TERMS_STUDENT):
        h = 0.5 * n + k + 0.5
        log = special.gammaln(h) - special.gammaln(k + 1.5) - special.gammaln(0.5 * n)
        log = log + (2 * k + 1) * np.log(size) + 0.5 * n * np.log(n) - h * np.log(n + s)
        first = 0.5 * (special.psi(h) - special.psi(0.5 * n) + np.log(n / (n + s)) + 1) - h / (n + s)
        second = 0.25 * (special.polygamma(1, h) - special.polygamma(1, 0.5 * n))
        second = second + 0.5 / n - 1 / (n + s) + h / (n + s) ** 2
        total = total + 0.5 * np.exp(log) * _relative_derivative(order, first, second)
    far = (df >= 1e-6) & (df < 1e3) & (np.abs(t) > 1e200) & (np.abs(t) < np.inf)  # a power of t
    n, root = np.where(far, df, 1.0), np.log(np.where(far, np.abs(t), 1.0)) - 0.5 * np.log(np.where(far, df, 1.0))
    slope = 0.5 - root - 0.5 * (special.psi(0.5 * n + 1) - special.psi(0.5 * n + 0.5))
    tail = -np.exp(-n * root - special.betaln(0.5 * n, 0.5)) / n * slope
    total = np.where(inside, total, np.where(far, tail, 0.0))
    return np.where((df >= 1e-6) & ~np.isnan(t), np.sign(t) * total, np.nan)


def _bounded(name: str) -> Callable[..., Any]:
    """SciPy's function, and NaN beyond the bounds from which on it would not come back."""
    function: Callable[..., Any] = getattr(special, name)
    bounds = SCIPY_BOUNDS[name]

    def call(*values: Array) -> Any:
        *parameters, argument = values
        parameters = [np.where(np.abs(v) <= bounds.parameters, v, np.nan) for v in parameters]
        if bounds.argument < np.inf:
            argument = np.where(np.abs(argument) <= bounds.argument, argument, np.nan)
        return function(*parameters, argument)

    return call


def _part(name: str, k: int) -> Callable[..., Any]:
    call = _bounded(name) if name in SCIPY_BOUNDS else getattr(special, name)
    return lambda *values: call(*values)[k]


def _spherical(kind: str) -> Callable[..., Any]:
    """The spherical Bessel function by that of half orders, since SciPy's own takes whole orders only."""
    bessel, at_0 = getattr(special, f"{kind}v"), {"j": 1.0, "y": -np.inf, "i": 1.0, "k": np.inf}[kind]

    def call(n: Array, z: Array) -> Any:
        n, z = np.broadcast_arrays(n, z)
        whole = n == np.floor(n)
        value = np.sqrt(np.pi / 2 / np.abs(z)) * bessel(n + 0.5, np.abs(z))
        odd = n % 2 == (0 if kind == "y" else 1)
        below = np.where(odd, -value, value) if kind != "k" else np.full_like(value, np.nan)
        value = np.where(z < 0, np.where(whole, below, np.nan), value)
        higher = np.where(n > 0, 0.0, np.where(n == 0, 1.0, np.inf)) if kind in "ji" else at_0
        return np.where(z == 0, higher, value)

    return call


REFERENCES: dict[str, Callable[..., Any]] = {
    **{
        name: getattr(special, name)
        for name in (
            "digamma", "entr", "erf", "erfc", "erfcinv", "erfcx", "erfinv", "gamma", "gammaln", "i0e", "i1e",
            "log_ndtr", "logit", "ndtr", "ndtri", "polygamma", "rel_entr", "xlog1py", "xlogy",
            "betainc", "gammainc", "gammaincc", "iv", "ive", "j0", "j1", "jv", "kv", "stdtr", "y0", "y1", "yv",
            "ellipe", "ellipk", "gammaincinv", "gammainccinv", "betaincinv", "stdtrit", "exp1", "expi", "dawsn", "erfi",
            "spence", "kve", "k0", "k1", "k0e", "k1e",
            "bei", "beip", "ber", "berp", "chndtr", "chndtrix", "ellipeinc",
            "ellipkinc", "expn", "hyperu", "it2struve0", "itmodstruve0",
            "itstruve0", "kei", "keip", "ker", "kerp", "kolmogi", "kolmogorov", "log_wright_bessel", "lpmv",
            "modstruve", "ndtri_exp", "owens_t", "struve", "tklmbda", "wright_bessel",
            "wrightomega",
        )
    },
    **{f"spherical_{kind}": _spherical(kind) for kind in "jyik"},
    **{op: _part(name, k) for name, ops in _PARTS.items() for k, op in ops.items()},
    "faddeeva": special.wofz,
    "hyp1f1": _bounded("hyp1f1"),
    "hyp2f1": _bounded("hyp2f1"),
    "lambert": special.lambertw,
    "betainc_derivative": _betainc_derivative,
    "betaln": _betaln,
    "gammainc_derivative": _gammainc_derivative,
    "i0": _i0,
    "i1": _i1,
    "interp": np.interp,
    "linear_recurrence": _linear_recurrence,
    "logcumsumexp": _logcumsumexp,
    "stdtr_derivative": _stdtr_derivative,
    "trapezoid": _trapezoid,
}  # fmt: skip
