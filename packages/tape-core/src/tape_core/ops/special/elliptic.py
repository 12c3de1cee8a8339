"""Incomplete elliptic integrals and the amplitude of Jacobi's elliptic functions, computed by SciPy.

Their derivatives are DLMF 19.4.5 and 19.4.7. Near m = 0 these formulas are differences of nearly equal numbers divided
by m; there the power series in m are used, whose coefficients are integrals of even powers of the sine.
"""

from __future__ import annotations

import math

from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import is_array
from tape_core.ops.special.incomplete import as_array
from tape_core.ops.special.tabled import row, sampled
from tape_core.typing import Array, ArrayLike, Namespace

_SERIES_UP_TO = 0.1
_TERMS = 18  # 0.1**18 is below float64's precision
_BINOMIAL = [math.comb(2 * n, n) / 4**n for n in range(_TERMS)]
_FIRST_KIND = [n * c for n, c in enumerate(_BINOMIAL)]
_SECOND_KIND = [n * c / (1 - 2 * n) for n, c in enumerate(_BINOMIAL)]


def _arrays(xp: Namespace, phi: Array, m: Array) -> tuple[Array, Array]:
    like = phi if is_array(phi) else m
    return as_array(xp, phi, like), as_array(xp, m, like)


def _series(xp: Namespace, phi: Array, m: Array, coefficients: list[float]) -> Array:
    """The sum of `coefficients[n] * m**(n - 1)` times the integral of `sin**(2 n)` from 0 to phi."""
    sine, cosine = xp.sin(phi), xp.cos(phi)
    square, power, integral, factor, total = sine * sine, sine * cosine, phi, 1.0 + 0 * m, 0.0
    for n in range(1, _TERMS):
        integral = ((2 * n - 1) * integral - power) / (2 * n)
        total = total + coefficients[n] * factor * integral
        power, factor = power * square, factor * m
    return total


def _root(xp: Namespace, phi: Array, m: Array) -> Array:
    """`sqrt(1 - m * sin(phi)**2)`, accurate also near m = 1."""
    sine, cosine = xp.sin(phi), xp.cos(phi)
    return xp.sqrt(cosine * cosine + (1 - m) * sine * sine)


def first_kind_by_m(xp: Namespace, phi: Array, m: Array, f: Array) -> Array:
    """The derivative of `f = ellipkinc(phi, m)` by m."""
    near = xp.abs(m) < _SERIES_UP_TO
    far = xp.where(near, 0.5, m)
    rest = 1 - far
    ends = xp.sin(phi) * xp.cos(phi) / (2 * rest * _root(xp, phi, far))
    by_formula = (xp.ellipeinc(phi, far) - rest * f) / (2 * far * rest) - ends
    return xp.where(near, _series(xp, phi, xp.where(near, m, 0), _FIRST_KIND), by_formula)


def _ellipkinc_by_m(xp: Namespace, phi: Array, m: Array, out: Array) -> Array:
    phi, m = _arrays(xp, phi, m)
    return first_kind_by_m(xp, phi, m, out)


def _ellipkinc_by_phi(xp: Namespace, phi: Array, m: Array) -> Array:
    return 1 / _root(xp, *_arrays(xp, phi, m))


@row("ellipkinc", None, sampled((-1.4, 1.4), (-1, 0.8)), phi=_ellipkinc_by_phi, m=_ellipkinc_by_m)
def ellipkinc(phi: ArrayLike, m: ArrayLike, /) -> Tensor:
    """The incomplete elliptic integral of the first kind, of the amplitude `phi` and the parameter `m`."""


def _ellipeinc_by_m(xp: Namespace, phi: Array, m: Array, out: Array) -> Array:
    phi, m = _arrays(xp, phi, m)
    near = xp.abs(m) < _SERIES_UP_TO
    by_formula = (out - xp.ellipkinc(phi, m)) / (2 * xp.where(near, 0.5, m))
    return xp.where(near, _series(xp, phi, xp.where(near, m, 0), _SECOND_KIND), by_formula)


def _ellipeinc_by_phi(xp: Namespace, phi: Array, m: Array) -> Array:
    return _root(xp, *_arrays(xp, phi, m))


@row("ellipeinc", None, sampled((-1.4, 1.4), (-1, 0.8)), phi=_ellipeinc_by_phi, m=_ellipeinc_by_m)
def ellipeinc(phi: ArrayLike, m: ArrayLike, /) -> Tensor:
    """The incomplete elliptic integral of the second kind, of the amplitude `phi` and the parameter `m`."""


def _amplitude_by_u(xp: Namespace, u: Array, m: Array, out: Array) -> Array:
    return _root(xp, out, as_array(xp, m, out))


def _amplitude_by_m(xp: Namespace, u: Array, m: Array, out: Array) -> Array:
    # The amplitude is the phi with ellipkinc(phi, m) = u.
    u, m = _arrays(xp, u, m)
    return -first_kind_by_m(xp, out, m, u) * _root(xp, out, m)


@row("ellipj", 3, sampled((0.2, 1.2), (0.02, 0.9)), u=_amplitude_by_u, m=_amplitude_by_m)
def amplitude(u: ArrayLike, m: ArrayLike, /) -> Tensor:
    """Jacobi's amplitude: the angle of which `ellipkinc` with the parameter `m` is `u`."""
