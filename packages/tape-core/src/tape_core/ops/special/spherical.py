"""Spherical Bessel functions of real numbers, computed by SciPy's Bessel functions of half orders, DLMF 10.47.

The formulas of their derivatives, the last ones of DLMF 10.51.1 and 10.51.4, have no quotient by the argument: they
hold at 0, and lose no digits near it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tape_core.engine.op import REFUSED, TODO, elementwise
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.ops.special.approximation import in_double
from tape_core.ops.special.by_scipy import by_scipy
from tape_core.ops.special.incomplete import as_array
from tape_core.ops.special.tabled import Declared
from tape_core.typing import Array, ArrayLike, Namespace


class _Kind(NamedTuple):
    """A kind of spherical Bessel function, by what it differs in from others."""

    bessel: str
    """SciPy's Bessel function of half orders."""
    below: float
    """The factor of `n` times the function of order `n - 1` in the derivative of that of order `n`."""
    above: float
    """The factor of `n + 1` times the function of order `n + 1` there."""
    at_0: float
    """The value of order 0 at 0. If it is finite, those of higher orders are 0, else they are like it."""
    odd: int
    """The remainder by 2 of the orders whose functions are odd; 2 if they are neither odd nor even."""


_KINDS = {
    "spherical_j": _Kind("jv", 1.0, -1.0, 1.0, 1),
    "spherical_y": _Kind("yv", 1.0, -1.0, -math.inf, 0),
    "spherical_i": _Kind("iv", 1.0, 1.0, 1.0, 1),
    "spherical_k": _Kind("kv", -1.0, -1.0, math.inf, 2),
}


def _value(kind: _Kind, xp: Namespace, n: Array, z: Array) -> Array:
    n, z = as_array(xp, n, z), as_array(xp, z, n)
    size = xp.where(z == 0, 1, xp.abs(z))
    value = xp.sqrt(0.5 * math.pi / size) * by_scipy(kind.bessel, xp, n + 0.5, size)
    if math.isfinite(kind.at_0):
        at_0 = xp.where(n == 0, kind.at_0, xp.zeros_like(size))
        at_0 = xp.where(n < 0, math.inf, at_0)
    else:
        at_0 = kind.at_0
    value = xp.where(z == 0, at_0, value)
    # Below 0, functions of whole orders are even or odd, and those of others complex.
    there = (n == xp.floor(n)) & (kind.odd < 2)
    return xp.where(z < 0, xp.where(there, xp.where(xp.remainder(n, 2.0) == kind.odd, -value, value), math.nan), value)


def slope(xp: Namespace, name: str, n: Array, z: Array) -> Array:
    """The derivative by `z` of the op of this name."""
    kind, f, n = _KINDS[name], getattr(xp, name), as_array(xp, n, z)
    lower = xp.where(n == 0, 0, n * f(xp.where(n == 0, n, n - 1), z))
    value = (kind.below * lower + kind.above * (n + 1) * f(n + 1, z)) / (2 * n + 1)
    return value if math.isfinite(kind.at_0) else xp.where(z == 0, -kind.at_0, value)


def _spherical(name: str, low: float, high: float) -> Declared:
    """Declare the op of this name, with samples of `z` from `low` to `high`."""

    def samples(draw: Draw) -> Iterator[Sample]:
        for n in (0.0, 1.0, 4.0):
            yield Sample(n, draw(2, 3, low=low, high=high))
        yield Sample(draw(2, 1, low=0.2, high=3), draw(3, low=0.5, high=high))
        yield Sample(1.0, draw(0, 2))
        yield Refused(TypeError, "real numbers", 1.0, draw.complex(2))

    return elementwise(
        n=TODO,
        z=lambda xp, n, z: slope(xp, name, n, z),
        kernel=in_double(partial(_value, _KINDS[name])),
        samples=samples,
        complex_kernel=REFUSED,
    )


@_spherical("spherical_j", -4, 4)
def spherical_j(n: ArrayLike, z: ArrayLike, /) -> Tensor:
    """The spherical Bessel function of the first kind and order `n`; it has a derivative with respect to `z` alone."""


@_spherical("spherical_y", 0.5, 4)
def spherical_y(n: ArrayLike, z: ArrayLike, /) -> Tensor:
    """The spherical Bessel function of the second kind and order `n`; see `spherical_j` for its derivatives."""


@_spherical("spherical_i", -4, 4)
def spherical_i(n: ArrayLike, z: ArrayLike, /) -> Tensor:
    """The modified spherical Bessel function of the first kind; see `spherical_j` for its derivatives."""


@_spherical("spherical_k", 0.5, 4)
def spherical_k(n: ArrayLike, z: ArrayLike, /) -> Tensor:
    """The modified spherical Bessel function of the second kind; see `spherical_j` for its derivatives."""
