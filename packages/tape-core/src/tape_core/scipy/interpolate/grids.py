"""Interpolation of values at points of a line or a grid: `interp1d`, `RegularGridInterpolator`, `BSpline`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

import tape_core as tc
from tape_core.base.ambient import OPEN_AXES
from tape_core.scipy.arguments import choose, floats, refuse
from tape_core.scipy.interpolate.piecewise import CubicSpline, PPoly, place_axes
from tape_core.staging import current
from tape_core.typing import ArrayLike


def _check_bounds(name: str, outside: tc.Tensor) -> None:
    """Raise for points outside, where the values are known; in a trace and in vmap they are not."""
    if current() is None and not OPEN_AXES.get() and bool(tc.any(outside)):
        raise ValueError(f"{name}: a point is outside of the bounds; bounds_error=False gives fill_value there")


def _locate(knots: tc.Tensor, at: tc.Tensor) -> tuple[tc.Tensor, tc.Tensor]:
    """The interval of each point, of a vector, and where in it, from 0 to 1."""
    interval = tc.searchsorted(knots[1:-1], tc.stop_gradient(at), side="right")
    start = tc.take(knots, interval, axis=0)
    return interval, (at - start) / (tc.take(knots, interval + 1, axis=0) - start)


class RegularGridInterpolator:
    """Interpolation of values on a grid of any number of dimensions; differentiable by values, points and knots.

    >>> knots = tc.asarray([0.0, 1.0]), tc.asarray([0.0, 2.0])
    >>> f = RegularGridInterpolator(knots, tc.asarray([[0.0, 2.0], [1.0, 3.0]]))
    >>> f(tc.asarray([[0.5, 1.0]])).tolist()
    [1.5]

    Args:
        points: for each dimension the knots, in ascending order, which is not checked.
        values: shape (knots of each dimension, ...).
        method: "linear" or "nearest".
        bounds_error: whether points outside are an error. In a trace or vmap, where points are not known, they are NaN.
        fill_value: the value outside if they are no error; None to go on as inside.

    Raises:
        ValueError: the shapes do not fit, or a point is outside.
        NotImplementedError: another `method`, or `solver` is given.
    """

    def __init__(
        self,
        points: Sequence[ArrayLike],
        values: ArrayLike,
        method: str = "linear",
        bounds_error: bool = True,
        fill_value: float | None = math.nan,
        *,
        solver: None = None,
        solver_args: None = None,
    ) -> None:
        name = "scipy.interpolate.RegularGridInterpolator"
        refuse(
            name, method=(method, ("linear", "nearest")), solver=(solver, (None,)), solver_args=(solver_args, (None,))
        )
        given = {f"points[{k}]": one for k, one in enumerate(points)}
        self.values, *self.grid = floats(name, values=values, **given)
        shapes = [knots.shape for knots in self.grid]
        if shapes != [(n,) for n in self.values.shape[: len(shapes)]] or min(self.values.shape[: len(shapes)]) < 2:
            raise ValueError(
                f"{name}: values must have shape (2 or more for each of points, ...); got {self.values.shape} and "
                f"points of shapes {shapes}"
            )
        self.method, self.bounds_error, self.fill_value = method, bounds_error, fill_value

    def __call__(self, xi: Any, method: str | None = None, *, nu: None = None) -> tc.Tensor:
        """The values at points, shape (..., dimensions), or a tuple of arrays of coordinates."""
        name = "scipy.interpolate.RegularGridInterpolator"
        kind = self.method if method is None else method
        refuse(name, method=(kind, ("linear", "nearest")), nu=(nu, (None,)))
        n = len(self.grid)
        if isinstance(xi, tuple):
            given = floats(name, values=self.values, **{f"xi[{k}]": x for k, x in enumerate(xi)})[1:]
            places = list(tc.broadcast_arrays(*given))
        else:
            _, whole = floats(name, values=self.values, xi=xi)
            whole = whole[None] if whole.ndim == 1 and n > 1 else whole[..., None] if whole.ndim < 2 else whole
            places = [whole[..., k] for k in range(whole.shape[-1])]
        if len(places) != n:
            raise ValueError(f"{name}: xi must have {n} coordinates for each point; got {len(places)}")
        shape = places[0].shape
        flat = [tc.reshape(place, (-1,)) for place in places]
        outside: Any = False
        for knots, at in zip(self.grid, flat, strict=True):
            outside = tc.logical_or(outside, tc.logical_or(at < knots[0], at > knots[-1]))
        if self.bounds_error:
            _check_bounds(name, outside)
        found = self._within(flat, kind)
        fill = math.nan if self.bounds_error else self.fill_value
        if fill is not None:
            found = tc.where(tc.reshape(outside, (-1,) + (1,) * (found.ndim - 1)), fill, found)
        return tc.reshape(found, (*shape, *self.values.shape[n:]))

    def _within(self, flat: list[tc.Tensor], kind: str) -> tc.Tensor:
        n = len(self.grid)
        lengths = self.values.shape[:n]
        values = tc.reshape(self.values, (math.prod(lengths), *self.values.shape[n:]))
        parts: list[list[tuple[tc.Tensor, tc.Tensor | None]]] = []
        for knots, at in zip(self.grid, flat, strict=True):
            interval, t = _locate(knots, at)
            if kind == "nearest":
                nearer = tc.where(tc.stop_gradient(t) <= 0.5, interval, interval + 1)
                parts.append([(nearer, None)])
            else:
                parts.append([(interval, 1 - t), (interval + 1, t)])
        total: Any = 0.0
        for corner in product(*parts):
            index: Any = 0
            weight: Any = None
            for length, (one, w) in zip(lengths, corner, strict=True):
                index = index * length + one
                weight = w if weight is None else weight * w
            value = tc.take(values, index, axis=0)
            if weight is not None:
                value = value * tc.reshape(weight, (-1,) + (1,) * (value.ndim - 1))
            total = total + value
        return total  # type: ignore[no-any-return]


def interpn(
    points: Sequence[ArrayLike],
    values: ArrayLike,
    xi: Any,
    method: str = "linear",
    bounds_error: bool = True,
    fill_value: float | None = math.nan,
) -> tc.Tensor:
    """The values of a :class:`RegularGridInterpolator` at points.

    >>> interpn((tc.asarray([0.0, 1.0]),), tc.asarray([0.0, 2.0]), tc.asarray([[0.25]])).tolist()
    [0.5]
    """
    return RegularGridInterpolator(points, values, method, bounds_error, fill_value)(xi)


class interp1d:
    """Interpolation of values at points of a line.

    >>> f = interp1d(tc.asarray([0.0, 1.0, 2.0]), tc.asarray([0.0, 10.0, 30.0]))
    >>> f(tc.asarray([0.5, 1.5])).tolist()
    [5.0, 20.0]

    Args:
        x: the points, a vector.
        y: the values along `axis`.
        kind: "linear", "nearest", "nearest-up", "previous", "next", "zero", "slinear" or "cubic".
        copy: without effect.
        bounds_error: whether points outside are an error; by default, if no `fill_value` is given. In a trace or
            vmap, where points are not known, they are NaN.
        fill_value: the value outside; a pair for below and above; or "extrapolate".
        assume_sorted: whether `x` is in ascending order; else it is sorted.

    Raises:
        ValueError: the shapes do not fit, or a point is outside.
        NotImplementedError: another `kind`.
    """

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        kind: str = "linear",
        axis: int = -1,
        copy: bool = True,
        bounds_error: bool | None = None,
        fill_value: Any = math.nan,
        assume_sorted: bool = False,
    ) -> None:
        name = "scipy.interpolate.interp1d"
        kinds = ("linear", "slinear", "nearest", "nearest-up", "previous", "next", "zero", "cubic")
        refuse(name, kind=(kind, kinds))
        x, y = floats(name, x=x, y=y)
        if x.ndim != 1 or y.ndim == 0 or y.shape[axis] != x.shape[0] or x.shape[0] < 2:
            raise ValueError(
                f"{name}: x must be a vector, and y have a value for each along axis {axis}; got {x.shape}, {y.shape}"
            )
        self.axis, self._kind = axis % y.ndim, kind
        y = tc.moveaxis(y, axis, 0)
        if not assume_sorted:
            order = tc.argsort(tc.stop_gradient(x))
            x, y = tc.take(x, order, axis=0), tc.take(y, order, axis=0)
        self.x, self._y = x, y
        self._spline: PPoly | None = CubicSpline(x, y) if kind == "cubic" else None
        self._extrapolates = isinstance(fill_value, str) and fill_value == "extrapolate"
        given = isinstance(fill_value, tuple | list) or self._extrapolates or fill_value == fill_value
        self.bounds_error = not given if bounds_error is None else bounds_error
        self.fill_value = fill_value

    def __call__(self, x: ArrayLike) -> tc.Tensor:
        """The values at points."""
        name = "scipy.interpolate.interp1d"
        knots, points = floats(name, knots=self.x, x=x)
        flat = tc.reshape(points, (-1,))
        below, above = flat < knots[0], flat > knots[-1]
        if self.bounds_error:
            _check_bounds(name, tc.logical_or(below, above))
        value = self._at(knots, flat)
        if not self._extrapolates:
            pair = isinstance(self.fill_value, tuple | list)
            low, high = self.fill_value if pair else (self.fill_value, self.fill_value)
            column = (-1,) + (1,) * (value.ndim - 1)
            value = tc.where(tc.reshape(below, column), low, tc.where(tc.reshape(above, column), high, value))
        return place_axes(tc.reshape(value, (*points.shape, *value.shape[1:])), points.ndim, self.axis)

    def _at(self, knots: tc.Tensor, flat: tc.Tensor) -> tc.Tensor:
        if self._spline is not None:
            return self._spline(flat)
        if self._kind in ("linear", "slinear"):
            interval, t = _locate(knots, flat)
            low, high = tc.take(self._y, interval, axis=0), tc.take(self._y, interval + 1, axis=0)
            return low + (high - low) * tc.reshape(t, (-1,) + (1,) * (low.ndim - 1))
        last = knots.shape[0] - 1
        at = tc.stop_gradient(flat)
        side: Literal["left", "right"] = "left" if self._kind in ("nearest", "next") else "right"
        where = tc.stop_gradient(knots)
        if self._kind in ("nearest", "nearest-up"):
            where = (where[1:] + where[:-1]) / 2
        index = tc.searchsorted(where, at, side=side)
        if self._kind in ("previous", "zero"):
            index = index - 1
        return tc.take(self._y, tc.clip(index, 0, last), axis=0)


class BSpline:
    """A spline of degree `k` by its knots and coefficients, evaluated by de Boor's algorithm.

    >>> s = BSpline(tc.asarray([0.0, 1.0, 2.0, 3.0]), tc.asarray([1.0, 3.0]), 1)
    >>> s(tc.asarray([1.0, 1.5])).tolist()
    [1.0, 2.0]

    Args:
        t: the knots, in ascending order, which is not checked, shape (n + k + 1,).
        c: the coefficients, n or more along `axis`.
        k: the degree.
        extrapolate: whether the first and the last polynomial go on; else it is NaN beyond; or "periodic".

    Raises:
        ValueError: the shapes do not fit.
    """

    def __init__(self, t: ArrayLike, c: ArrayLike, k: int, extrapolate: bool | str = True, axis: int = 0) -> None:
        t, c = floats("scipy.interpolate.BSpline", t=t, c=c)
        n = t.shape[0] - k - 1 if t.ndim == 1 else 0
        if k < 0 or t.ndim != 1 or n < k + 1 or c.ndim == 0 or c.shape[axis] < n:
            raise ValueError(
                f"scipy.interpolate.BSpline: for degree {k}, t must be a vector of {2 * k + 2} or more knots, and c "
                f"have {k + 1} coefficients less; got shapes {t.shape} and {c.shape}"
            )
        self.t, self.k, self.extrapolate, self.axis = t, k, extrapolate, axis % c.ndim
        self.c = tc.moveaxis(c, axis, 0)[:n]

    def __call__(self, x: ArrayLike, nu: int = 0, extrapolate: bool | str | None = None) -> tc.Tensor:
        """The values at points, or those of the derivative of order `nu`."""
        name = "scipy.interpolate.BSpline"
        t, points = floats(name, t=self.t, x=x)
        beyond = self.extrapolate if extrapolate is None else extrapolate
        choose(name, "extrapolate", beyond, (True, False, "periodic"))
        c, k, n = self.c, self.k, self.c.shape[0]
        flat = tc.reshape(points, (-1,))
        low, high = t[k], t[n]
        if beyond == "periodic":
            flat = flat - (high - low) * tc.stop_gradient(tc.floor((flat - low) / (high - low)))
        inside = tc.logical_and(flat >= low, flat <= high)
        for _ in range(min(nu, k + 1)):
            if k == 0:
                c = c * 0
                break
            widths = t[k + 1 : k + c.shape[0]] - t[1 : c.shape[0]]
            rise = k / tc.where(widths == 0, 1.0, widths)
            rise = tc.where(widths == 0, 0.0, rise)
            c = (c[1:] - c[:-1]) * tc.reshape(rise, (-1,) + (1,) * (c.ndim - 1))
            t, k = t[1:-1], k - 1
        interval = tc.searchsorted(t[k + 1 : c.shape[0]], tc.stop_gradient(flat), side="right") + k
        d = [tc.take(c, interval - k + j, axis=0) for j in range(k + 1)]
        column = (-1,) + (1,) * (c.ndim - 1)
        for r in range(1, k + 1):
            for j in range(k, r - 1, -1):
                left, right = (tc.take(t, interval + place, axis=0) for place in (j - k, j + 1 - r))
                share = tc.reshape((flat - left) / (right - left), column)
                d[j] = (1 - share) * d[j - 1] + share * d[j]
        value = d[k]
        if beyond is False:
            value = tc.where(tc.reshape(inside, column), value, math.nan)
        return place_axes(tc.reshape(value, (*points.shape, *c.shape[1:])), points.ndim, self.axis)
