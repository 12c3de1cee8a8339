"""`scipy.integrate` for Tensors: integrals of samples, and of functions by a fixed rule.

Solvers of differential equations are elsewhere: [diffrax](https://docs.kidger.site/diffrax/) runs through `tape_jax`,
and `tape_core.scan` differentiates steps of your own.

>>> import tape_core as tc
>>> from tape_core.scipy import integrate
>>> integrate.trapezoid(tc.asarray([1.0, 2.0, 4.0]), tc.asarray([0.0, 1.0, 3.0])).item()
7.5
"""

from __future__ import annotations

import typing as _typing
from collections.abc import Callable
from typing import Any

import tape_core as tc
from tape_core.engine.hints import missing as _missing
from tape_core.scipy.arguments import constant, floats, real_constant, refuse
from tape_core.scipy.quadrature import gauss_legendre
from tape_core.typing import ArrayLike

__all__ = ["cumulative_trapezoid", "fixed_quad", "romb", "simpson", "trapezoid"]


def _samples(function: str, y: ArrayLike, x: ArrayLike | None, axis: int) -> tuple[tc.Tensor, tc.Tensor | None]:
    """The values with the axis last, and the distances of their points, which broadcast to the intervals."""
    name = f"scipy.integrate.{function}"
    if x is None:
        return tc.moveaxis(floats(name, y=y)[0], axis, -1), None
    y, x = floats(name, y=y, x=x)
    n = y.shape[axis]
    if x.ndim > 1:
        x = tc.moveaxis(x, axis, -1)
    y = tc.moveaxis(y, axis, -1)
    if x.ndim == 0 or x.shape[-1] != n or x.ndim > y.ndim:
        raise ValueError(f"{name}: x must have one point for each of the {n} values of y along axis {axis}")
    return y, x[..., 1:] - x[..., :-1]


def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1) -> tc.Tensor:
    """The integral of samples by the trapezoidal rule.

    >>> trapezoid(tc.asarray([1.0, 2.0, 4.0]), tc.asarray([0.0, 1.0, 3.0])).item()
    7.5

    Args:
        y: the values.
        x: the points, a vector along `axis` or as large as `y`; evenly spaced by default.
        dx: their spacing, if `x` is left out.

    Raises:
        ValueError: the shapes do not fit.
    """
    name = "scipy.integrate.trapezoid"
    if x is None:
        return dx * tc.trapezoid(floats(name, y=y)[0], axis=axis)
    y, x = floats(name, y=y, x=x)
    return tc.trapezoid(y, x, axis=axis)


def cumulative_trapezoid(
    y: ArrayLike, x: ArrayLike | None = None, dx: float = 1.0, axis: int = -1, initial: float | None = None
) -> tc.Tensor:
    """The integrals up to each point by the trapezoidal rule; with `initial=0`, from the first point on.

    >>> cumulative_trapezoid(tc.asarray([1.0, 2.0, 4.0]), initial=0).tolist()
    [0.0, 1.5, 4.5]

    Raises:
        ValueError: the shapes do not fit, or `initial` is neither None nor 0.
    """
    if initial not in (None, 0):
        raise ValueError(f"scipy.integrate.cumulative_trapezoid: initial must be None or 0; got {initial!r}")
    y, steps = _samples("cumulative_trapezoid", y, x, axis)
    parts = (dx if steps is None else steps) * (y[..., 1:] + y[..., :-1]) / 2
    found = tc.cumulative_sum(parts, axis=-1)
    if initial is not None:
        found = tc.concat([tc.zeros_like(y[..., :1]), found], axis=-1)
    return tc.moveaxis(found, -1, axis)


def simpson(y: ArrayLike, x: ArrayLike | None = None, *, dx: float = 1.0, axis: int = -1) -> tc.Tensor:
    """The integral of samples by Simpson's rule, with Cartwright's correction for an even number of them.

    >>> simpson(tc.asarray([0.0, 1.0, 4.0, 9.0])).round(4).item()
    9.0

    Args, Raises: as for :func:`trapezoid`.
    """
    y, steps = _samples("simpson", y, x, axis)
    n = y.shape[-1]
    if steps is None:
        steps = real_constant(y, [dx] * max(n - 1, 0))
    if n < 3:
        return tc.sum(steps * (y[..., 1:] + y[..., :-1]) / 2, axis=-1)
    odd = n if n % 2 else n - 1
    first, second = steps[..., 0 : odd - 1 : 2], steps[..., 1 : odd - 1 : 2]
    both, ratio = first + second, first / second
    parts = (
        y[..., 0 : odd - 2 : 2] * (2.0 - 1.0 / ratio)
        + y[..., 1 : odd - 1 : 2] * (both * both / (first * second))
        + y[..., 2:odd:2] * (2.0 - ratio)
    )
    total: tc.Tensor = tc.sum(both / 6.0 * parts, axis=-1)
    if n % 2 == 0:
        h0, h1 = steps[..., -2], steps[..., -1]
        total = total + y[..., -1] * (2 * h1**2 + 3 * h0 * h1) / (6 * (h0 + h1))
        total = total + y[..., -2] * (h1**2 + 3 * h0 * h1) / (6 * h0) - y[..., -3] * h1**3 / (6 * h0 * (h0 + h1))
    return total


def romb(y: ArrayLike, dx: float = 1.0, axis: int = -1, show: bool = False) -> tc.Tensor:
    """The integral of `2**k + 1` evenly spaced samples by Romberg's method.

    >>> romb(tc.asarray([0.0, 1.0, 2.0])).item()
    2.0

    Raises:
        ValueError: there are not `2**k + 1` samples.
        NotImplementedError: `show`.
    """
    refuse("scipy.integrate.romb", show=(show, (False,)))
    y, _ = _samples("romb", y, None, axis)
    n = y.shape[-1] - 1
    if n < 1 or n & (n - 1):
        raise ValueError(f"scipy.integrate.romb: y must have 2**k + 1 values along its axis; it has {n + 1}")
    row: list[tc.Tensor] = [(y[..., 0] + y[..., -1]) * (n * dx / 2)]
    step = n
    while step > 1:
        half = step // 2
        longer = [row[0] / 2 + tc.sum(y[..., half::step], axis=-1) * (half * dx)]
        for k, before in enumerate(row, 1):
            longer.append(longer[-1] + (longer[-1] - before) / (4**k - 1))
        row, step = longer, half
    return row[-1]


def fixed_quad(
    func: Callable[..., Any], a: ArrayLike, b: ArrayLike, args: tuple[Any, ...] = (), n: int = 5
) -> tuple[tc.Tensor, None]:
    """The integral of a function by Gauss-Legendre quadrature of order `n`; differentiable by all it depends on.

    >>> round(fixed_quad(lambda t: t * t, 0.0, 3.0)[0].item(), 4)
    9.0

    Args:
        func: a function of a vector of points, and of `args`; it returns values along the last axis.
        a, b: where the integral begins and ends, numbers.
        args: further arguments of the function.

    Returns:
        The integral, and None.

    Raises:
        TypeError: an end is no number.
    """
    a, b = floats("scipy.integrate.fixed_quad", a=a, b=b)
    nodes, weights = zip(*gauss_legendre(n), strict=True)
    values = func((b - a) * constant(a, list(nodes)) + a, *args)
    return (b - a) * tc.sum(constant(a, list(weights)) * values, axis=-1), None


if not _typing.TYPE_CHECKING:  # type checkers must not see it
    __getattr__ = _missing(__name__, lambda: __all__)


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, *[name for name in globals() if name.startswith("__")]])
