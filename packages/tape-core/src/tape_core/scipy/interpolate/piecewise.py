"""Piecewise polynomials, and the cubic ones that go through points: `CubicSpline`, `PchipInterpolator` and others."""

from __future__ import annotations

import math
from typing import Any

import tape_core as tc
from tape_core.scipy.arguments import choose, constant, floats, refuse
from tape_core.typing import ArrayLike

Extrapolate = bool | str | None


def place_axes(found: tc.Tensor, points: int, axis: int) -> tc.Tensor:
    """Move the axes of the points, which are first, to where the axis of the values was."""
    order = [*range(found.ndim)]
    order = order[points : points + axis] + order[:points] + order[points + axis :]
    return tc.permute_dims(found, tuple(order))


class PPoly:
    """A piecewise polynomial: on interval i it is the sum of `c[k - m, i] * (x - x[i])**m`.

    >>> line = PPoly(tc.asarray([[2.0], [1.0]]), tc.asarray([0.0, 1.0]))
    >>> line(tc.asarray([0.0, 0.5])).tolist()
    [1.0, 2.0]

    Args:
        c: coefficients, shape (k + 1, intervals, ...), that of the highest power first. With `axis`, its first two axes
            are there.
        x: breakpoints, in ascending order, which is not checked.
        extrapolate: whether the first and the last polynomial go on beyond the ends, else it is NaN there; or
            "periodic".
        axis: which axis of the result the points have.

    Raises:
        ValueError: the shapes do not fit.
    """

    def __init__(self, c: ArrayLike, x: ArrayLike, extrapolate: Extrapolate = None, axis: int = 0) -> None:
        c, x = floats(f"scipy.interpolate.{type(self).__name__}", c=c, x=x)
        for _ in range(2 if axis else 0):  # the two axes of the coefficients are where that of the points will be
            c = tc.moveaxis(c, axis + 1, 0)
        if c.ndim < 2 or x.ndim != 1 or c.shape[1] != x.shape[0] - 1:
            raise ValueError(
                f"scipy.interpolate.PPoly: c must have shape (k + 1, intervals, ...) and x be a vector of their ends; "
                f"got {c.shape} and {x.shape}"
            )
        self.c, self.x, self.axis = c, x, axis
        self.extrapolate = True if extrapolate is None else extrapolate

    def __call__(self, x: ArrayLike, nu: int = 0, extrapolate: Extrapolate = None) -> tc.Tensor:
        """The values at points, or those of the derivative of order `nu`."""
        name = f"scipy.interpolate.{type(self).__name__}"
        ends, points = floats(name, knots=self.x, x=x)
        beyond = self.extrapolate if extrapolate is None else extrapolate
        choose(name, "extrapolate", beyond, (True, False, "periodic"))
        flat = tc.reshape(points, (-1,))
        low, high = ends[0], ends[-1]
        if beyond == "periodic":
            flat = low + (flat - low) - (high - low) * tc.stop_gradient(tc.floor((flat - low) / (high - low)))
        interval = tc.searchsorted(ends[1:-1], tc.stop_gradient(flat), side="right")
        c = tc.take(self._derived(nu), interval, axis=1)
        far = flat - tc.take(ends, interval, axis=0)
        far = tc.reshape(far, (-1,) + (1,) * (c.ndim - 2))
        value: Any = c[0]
        for k in range(1, c.shape[0]):
            value = value * far + c[k]
        if beyond is False:
            inside = tc.logical_and(flat >= low, flat <= high)
            value = tc.where(tc.reshape(inside, far.shape), value, math.nan)
        return place_axes(tc.reshape(value, (*points.shape, *c.shape[2:])), points.ndim, self.axis)

    def _derived(self, nu: int) -> tc.Tensor:
        """The coefficients of a derivative."""
        if nu < 0:
            raise NotImplementedError(
                f"scipy.interpolate.{type(self).__name__}: nu={nu} has no counterpart for Tensors; call "
                f"antiderivative()"
            )
        degree = self.c.shape[0] - 1
        if nu > degree:
            return tc.zeros_like(self.c[:1])
        factors = [math.perm(degree - k, nu) for k in range(degree - nu + 1)]
        weights = constant(self.x, [float(f) for f in factors])
        found: tc.Tensor = self.c[: degree - nu + 1] * tc.reshape(weights, (-1,) + (1,) * (self.c.ndim - 1))
        return found

    def derivative(self, nu: int = 1) -> PPoly:
        """The derivative, as another piecewise polynomial."""
        return self._another(self._derived(nu), self.extrapolate)

    def _another(self, c: tc.Tensor, extrapolate: Extrapolate) -> PPoly:
        found = PPoly(c, self.x, extrapolate)
        found.axis = self.axis
        return found

    def antiderivative(self, nu: int = 1) -> PPoly:
        """The antiderivative that is 0 at the first breakpoint, as another piecewise polynomial.

        Raises:
            NotImplementedError: `nu` is not 1.
        """
        refuse("scipy.interpolate.PPoly.antiderivative", nu=(nu, (1,)))
        degree = self.c.shape[0]
        weights = constant(self.x, [1.0 / (degree - k) for k in range(degree)])
        c = self.c * tc.reshape(weights, (-1,) + (1,) * (self.c.ndim - 1))
        width = tc.reshape(self.x[1:] - self.x[:-1], (-1,) + (1,) * (self.c.ndim - 2))
        rise: Any = c[0]
        for k in range(1, degree):
            rise = rise * width + c[k]
        sums = tc.cumulative_sum(rise * width, axis=0)
        starts = tc.concat([tc.zeros_like(sums[:1]), sums[:-1]], axis=0)
        periodic = self.extrapolate == "periodic"
        return self._another(tc.concat([c, starts[None]], axis=0), False if periodic else self.extrapolate)

    def integrate(self, a: ArrayLike, b: ArrayLike, extrapolate: Extrapolate = None) -> tc.Tensor:
        """The integral from a to b."""
        refuse("scipy.interpolate.PPoly.integrate", extrapolate=(extrapolate, (None, True, False)))
        whole = self.antiderivative()
        whole.axis = 0
        return whole(b, extrapolate=extrapolate) - whole(a, extrapolate=extrapolate)


def _data(name: str, x: ArrayLike, y: ArrayLike, axis: int, least: int = 2) -> tuple[tc.Tensor, tc.Tensor, int]:
    """Points, values with their axis first, and that axis from 0 on."""
    x, y = floats(f"scipy.interpolate.{name}", x=x, y=y)
    if x.ndim != 1 or y.ndim == 0 or y.shape[axis] != x.shape[0] or x.shape[0] < least:
        raise ValueError(
            f"scipy.interpolate.{name}: x must be a vector of {least} or more points, and y have a value for each "
            f"along axis {axis}; got shapes {x.shape} and {y.shape}"
        )
    return x, tc.moveaxis(y, axis, 0), axis % y.ndim


def _column(x: tc.Tensor, y: tc.Tensor) -> tc.Tensor:
    return tc.reshape(x, (-1,) + (1,) * (y.ndim - 1))


class CubicHermiteSpline(PPoly):
    """The piecewise cubic polynomial with given values and first derivatives.

    >>> s = CubicHermiteSpline(tc.asarray([0.0, 1.0]), tc.asarray([0.0, 1.0]), tc.asarray([0.0, 0.0]))
    >>> s(0.5).item()
    0.5

    Args:
        x: the points, in ascending order, which is not checked.
        y, dydx: values and derivatives along `axis`.
        extrapolate: as for :class:`PPoly`.
    """

    def __init__(
        self, x: ArrayLike, y: ArrayLike, dydx: ArrayLike, axis: int = 0, extrapolate: Extrapolate = None
    ) -> None:
        x, y, place = _data(type(self).__name__, x, y, axis)
        x, y, dydx = floats(f"scipy.interpolate.{type(self).__name__}", x=x, y=y, dydx=dydx)
        self._make(x, y, tc.moveaxis(dydx, axis, 0), place, extrapolate)

    def _make(self, x: tc.Tensor, y: tc.Tensor, d: tc.Tensor, axis: int, extrapolate: Extrapolate) -> None:
        h = _column(x[1:] - x[:-1], y)
        slope = (y[1:] - y[:-1]) / h
        t = (d[:-1] + d[1:] - 2 * slope) / h
        c = tc.stack([t / h, (slope - d[:-1]) / h - t, d[:-1], y[:-1]])
        super().__init__(c, x, extrapolate)
        self.axis = axis


class CubicSpline(CubicHermiteSpline):
    """The cubic spline through points: its first and second derivatives are continuous. Its system is solved densely.

    >>> s = CubicSpline(tc.asarray([0.0, 1.0, 2.0, 3.0]), tc.asarray([0.0, 1.0, 8.0, 27.0]))
    >>> round(s(1.5).item(), 4), round(s(1.5, 1).item(), 4)
    (3.375, 6.75)

    Args:
        x: the points, in ascending order, which is not checked.
        y: the values along `axis`.
        bc_type: what holds at both ends, or a pair: "not-a-knot", "natural", "clamped", or `(order, value)` of the
            first or second derivative; or "periodic" for both.
        extrapolate: as for :class:`PPoly`; "periodic" by default for a periodic spline.

    Raises:
        ValueError: the shapes do not fit, or `bc_type` is unknown.
    """

    def __init__(
        self, x: ArrayLike, y: ArrayLike, axis: int = 0, bc_type: Any = "not-a-knot", extrapolate: Extrapolate = None
    ) -> None:
        x, y, place = _data("CubicSpline", x, y, axis)
        n = x.shape[0]
        periodic = bc_type == "periodic"
        ends = [bc_type, bc_type] if isinstance(bc_type, str) else list(bc_type)
        h = x[1:] - x[:-1]
        slope = (y[1:] - y[:-1]) / _column(h, y)
        conditions = [self._condition(end, slope) for end in ends]
        if periodic and n > 2:
            d = _periodic_slopes(h, slope)
        elif n == 2:
            d = _slopes_of_two(slope, [(1, slope[0]) if c is None else c for c in conditions], h)
        elif n == 3 and conditions == [None, None]:  # a parabola
            first, second = h[0], h[1]
            at = (slope[0] * second + slope[1] * first) / (first + second)
            d = tc.stack([2 * slope[0] - at, at, 2 * slope[1] - at])
        else:
            d = _slopes(h, slope, conditions)
        self._make(x, y, d, place, "periodic" if periodic and extrapolate is None else extrapolate)

    @staticmethod
    def _condition(end: Any, slope: tc.Tensor) -> tuple[int, Any] | None:
        """The order and the value of a derivative at an end; None for no knot at the next point."""
        if end in ("not-a-knot", "periodic"):
            return None
        if end in ("natural", "clamped"):
            return (2 if end == "natural" else 1, slope[0] * 0)
        if not isinstance(end, str) and len(end) == 2 and end[0] in (1, 2):
            return int(end[0]), slope[0] * 0 + end[1]
        raise ValueError(
            f"scipy.interpolate.CubicSpline: bc_type must be 'not-a-knot', 'periodic', 'natural', 'clamped', or for "
            f"each end also (1, value) or (2, value); got {end!r}"
        )


def _diagonals(x: tc.Tensor, rows: int, columns: int, *values: tc.Tensor) -> tc.Tensor:
    """A matrix with the values on its main diagonal and on those to the right."""
    total: Any = 0.0
    for k, value in enumerate(values):
        total = total + value[:, None] * tc.eye(
            rows, columns, k=k, dtype=x.dtype, backend=x.backend.root, device=x.device
        )
    return total  # type: ignore[no-any-return]


def _slopes(h: tc.Tensor, slope: tc.Tensor, conditions: list[tuple[int, Any] | None]) -> tc.Tensor:
    """The derivatives at the points, for which the second derivative is continuous."""
    n = h.shape[0] + 1
    a = _diagonals(h, n - 2, n, h[1:], 2 * (h[:-1] + h[1:]), h[:-1])
    b = 3 * (_column(h[1:], slope) * slope[:-1] + _column(h[:-1], slope) * slope[1:])
    rows, rights = [], []
    for condition, (h0, h1, s0, s1), late in (
        (conditions[0], (h[0], h[1], slope[0], slope[1]), False),
        (conditions[1], (h[-1], h[-2], slope[-1], slope[-2]), True),
    ):
        if condition is None:
            both = h0 + h1
            weights, right = (h1, both), ((h0 + 2 * both) * h1 * s0 + h0 * h0 * s1) / both
        elif condition[0] == 1:
            weights, right = (h0 * 0 + 1, h0 * 0), condition[1]
        else:
            bend = condition[1] * h0 * h0 / 2
            weights, right = (2 * h0, h0), (bend if late else -bend) + 3 * s0 * h0
        row = tc.pad(tc.stack(weights), (0, n - 2))
        rows.append(tc.flip(row) if late else row)
        rights.append(right)
    whole = tc.concat([rows[0][None], a, rows[1][None]], axis=0)
    b = tc.concat([rights[0][None], b, rights[1][None]], axis=0)
    return tc.reshape(tc.linalg.solve(whole, tc.reshape(b, (n, -1))), b.shape)


def _periodic_slopes(h: tc.Tensor, slope: tc.Tensor) -> tc.Tensor:
    n = h.shape[0]
    before, last = tc.roll(h, 1), tc.roll(slope, 1, axis=0)
    eye = tc.eye(n, dtype=h.dtype, backend=h.backend.root, device=h.device)
    a = (
        h[:, None] * tc.roll(eye, -1, axis=1)
        + (2 * (before + h))[:, None] * eye
        + before[:, None] * tc.roll(eye, 1, axis=1)
    )
    b = 3 * (_column(h, slope) * last + _column(before, slope) * slope)
    d = tc.reshape(tc.linalg.solve(a, tc.reshape(b, (n, -1))), b.shape)
    return tc.concat([d, d[:1]], axis=0)


def _slopes_of_two(slope: tc.Tensor, conditions: list[tuple[int, Any]], h: tc.Tensor) -> tc.Tensor:
    """The derivatives at the ends of one interval: of the first order as given, of the second by two equations."""
    width = h[0]
    (first, u), (second, v) = conditions
    if first == 1 and second == 1:
        return tc.stack([u, v])
    if first == 1:
        return tc.stack([u, (v * width / 2 + 3 * slope[0] - u) / 2])
    if second == 1:
        return tc.stack([(-u * width / 2 + 3 * slope[0] - v) / 2, v])
    # 2 d0 + d1 = 3 s - u h / 2 and d0 + 2 d1 = 3 s + v h / 2
    one, other = 3 * slope[0] - u * width / 2, 3 * slope[0] + v * width / 2
    return tc.stack([(2 * one - other) / 3, (2 * other - one) / 3])


class PchipInterpolator(CubicHermiteSpline):
    """The monotone cubic interpolation of Fritsch and Butland (1984): it does not overshoot.

    >>> s = PchipInterpolator(tc.asarray([0.0, 1.0, 2.0]), tc.asarray([0.0, 0.0, 1.0]))
    >>> s(tc.asarray([0.5, 1.5])).tolist()
    [0.0, 0.3125]

    Args:
        x: the points, in ascending order, which is not checked.
        y: real values along `axis`.
        extrapolate: as for :class:`PPoly`.
    """

    def __init__(self, x: ArrayLike, y: ArrayLike, axis: int = 0, extrapolate: Extrapolate = None) -> None:
        x, y, place = _data("PchipInterpolator", x, y, axis)
        h = _column(x[1:] - x[:-1], y)
        slope = (y[1:] - y[:-1]) / h
        if x.shape[0] == 2:
            self._make(x, y, tc.concat([slope, slope], axis=0), place, extrapolate)
            return
        left, right = slope[:-1], slope[1:]
        same = left * right > 0
        one, other = 2 * h[1:] + h[:-1], h[1:] + 2 * h[:-1]
        mean = (one / tc.where(same, left, 1.0) + other / tc.where(same, right, 1.0)) / (one + other)
        inner = tc.where(same, 1 / tc.where(same, mean, 1.0), 0.0)
        first = _end(h[:1], h[1:2], slope[:1], slope[1:2])
        last = _end(h[-1:], h[-2:-1], slope[-1:], slope[-2:-1])
        self._make(x, y, tc.concat([first, inner, last], axis=0), place, extrapolate)


def _end(h0: tc.Tensor, h1: tc.Tensor, s0: tc.Tensor, s1: tc.Tensor) -> tc.Tensor:
    d = ((2 * h0 + h1) * s0 - h0 * s1) / (h0 + h1)
    steep = tc.logical_and(tc.sign(s0) != tc.sign(s1), tc.abs(d) > 3 * tc.abs(s0))
    return tc.where(tc.sign(d) != tc.sign(s0), 0.0, tc.where(steep, 3 * s0, d))


class Akima1DInterpolator(CubicHermiteSpline):
    """The cubic interpolation of Akima (1970), whose derivatives depend on the points nearby alone.

    >>> s = Akima1DInterpolator(tc.asarray([0.0, 1.0, 2.0, 3.0]), tc.asarray([0.0, 1.0, 2.0, 3.0]))
    >>> s(1.5).item()
    1.5

    Args:
        x: the points, in ascending order, which is not checked.
        y: real values along `axis`.
        method: "akima" or "makima".
        extrapolate: as for :class:`PPoly`, but False by default.
    """

    def __init__(
        self,
        x: ArrayLike,
        y: ArrayLike,
        axis: int = 0,
        *,
        method: str = "akima",
        extrapolate: bool | None = None,
    ) -> None:
        choose("scipy.interpolate.Akima1DInterpolator", "method", method, ("akima", "makima"))
        x, y, place = _data("Akima1DInterpolator", x, y, axis)
        h = _column(x[1:] - x[:-1], y)
        slope = (y[1:] - y[:-1]) / h
        if x.shape[0] == 2:
            self._make(x, y, tc.concat([slope, slope], axis=0), place, bool(extrapolate))
            return
        before = 2 * slope[:1] - slope[1:2]
        after = 2 * slope[-1:] - slope[-2:-1]
        m = tc.concat([2 * before - slope[:1], before, slope, after, 2 * after - slope[-1:]], axis=0)
        change = tc.abs(m[1:] - m[:-1])
        if method == "makima":
            change = change + tc.abs(m[1:] + m[:-1]) / 2
        right, left = change[2:], change[:-2]
        both = right + left
        clear = both > 1e-9 * tc.max(tc.stop_gradient(both))
        weighted = (right * m[1:-2] + left * m[2:-1]) / tc.where(clear, both, 1.0)
        even = (m[3:] + m[:-3]) / 2 if method == "akima" else tc.zeros_like(both)
        self._make(x, y, tc.where(clear, weighted, even), place, bool(extrapolate))
