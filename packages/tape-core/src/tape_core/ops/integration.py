"""Integration and interpolation of values at points of a line: `trapezoid` and `interp`.

They are beyond the standard; their kernels are composed of its functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tape_core.backends.axes import normal_axis
from tape_core.engine.op import op, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import Tensor
from tape_core.ops.manipulation import sum_to
from tape_core.ops.sorting import sort
from tape_core.ops.special.approximation import as_floats, check_real, is_array
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace

# -- trapezoid


def _part_key(axis: int, start: int | None, stop: int | None) -> tuple[Any, ...]:
    """The index key of a slice along an axis."""
    return (*[slice(None)] * axis, slice(start, stop), ...)


def _neighbour_differences(a: Array, axis: int) -> Array:
    return a[_part_key(axis, 1, None)] - a[_part_key(axis, None, -1)]


def _neighbour_sums(a: Array, axis: int) -> Array:
    return a[_part_key(axis, 1, None)] + a[_part_key(axis, None, -1)]


def _check_axis(y: Array, axis: int) -> int:
    return normal_axis(axis, len(y.shape))


def _broadcast_points(xp: Namespace, x: Array, y: Array, axis: int) -> Array:
    """Reshape the points `x` so that they broadcast against `y`; a vector lies along the axis."""
    ndim = len(y.shape)
    if len(x.shape) == 1:
        return xp.reshape(x, (*(1,) * axis, -1, *(1,) * (ndim - axis - 1)))
    return xp.reshape(x, (*(1,) * (ndim - len(x.shape)), *x.shape))


def _check_points(x: Array, y: Array, axis: int) -> None:
    n, shape = y.shape[axis], tuple(x.shape)
    if len(shape) == 1:
        if shape[0] != n:
            raise ValueError(f"x must have one point for each of the {n} values of y along axis {axis}, got {shape[0]}")
        return
    pairs = zip(shape[::-1], y.shape[::-1], strict=False)
    if not 1 <= len(shape) <= len(y.shape) or any(k not in (1, m) for k, m in pairs):
        raise ValueError(f"x must be a vector or broadcast to the shape of y, {tuple(y.shape)}; got shape {shape}")
    if len(shape) < len(y.shape) - axis or shape[axis - len(y.shape)] != n:
        raise ValueError(f"x must have the length of y along axis {axis}, {n}; got shape {shape}")


def _trapezoid_kernel(xp: Namespace, y: Array, x: Array | None = None, *, dx: float = 1.0, axis: int = -1) -> Array:
    axis = _check_axis(y, axis)
    if x is None:
        (y,) = as_floats(xp, y)
        return 0.5 * dx * xp.sum(_neighbour_sums(y, axis) if y.shape[axis] else y, axis=axis)
    if not is_array(x):
        raise TypeError(f"x must be an array, got {x!r}; a constant spacing is dx")
    _check_points(x, y, axis)
    # Half the sum of dx[k] * (y[k] + y[k + 1]).
    y, x = as_floats(xp, y, x)
    if y.shape[axis] == 0:
        return xp.sum(y, axis=axis)
    return 0.5 * xp.sum(
        _neighbour_differences(_broadcast_points(xp, x, y, axis), axis) * _neighbour_sums(y, axis), axis=axis
    )


def _pad(xp: Namespace, a: Array, axis: int) -> tuple[Array, Array]:
    """`a` with a zero after it, and `a` with a zero before it: its transposes as a left and a right neighbour."""
    zero = xp.zeros_beside(a, tuple(1 if k == axis else n for k, n in enumerate(a.shape)), dtype=a.dtype)
    return xp.concat([a, zero], axis=axis), xp.concat([zero, a], axis=axis)


def _trapezoid_y(xp: Namespace, g: Cotangent, x: Array, y_spec: Spec, dx: float, axis: int) -> Cotangent:
    # Each value is in the interval to its left and in the one to its right; half of both lengths is its weight.
    axis = axis % len(y_spec.shape)
    shape = y_spec.shape
    if 0 in shape:
        return xp.zeros_beside(g, shape, dtype=g.dtype)
    parts = tuple(max(n - 1, 0) if k == axis else n for k, n in enumerate(shape))
    g = xp.expand_dims(0.5 * g, axis=axis)
    if x is None:
        parts = xp.broadcast_to(g * dx, parts)
    else:
        parts = xp.broadcast_to(g * _neighbour_differences(_broadcast_points(xp, x, y_spec, axis), axis), parts)
    after, before = _pad(xp, parts, axis)
    return after + before


def _trapezoid_x(xp: Namespace, g: Cotangent, y: Array, x_spec: Spec, axis: int) -> Cotangent:
    axis = axis % len(y.shape)
    if 0 in y.shape:
        return xp.zeros_beside(g, x_spec.shape, dtype=g.dtype)
    after, before = _pad(xp, xp.expand_dims(0.5 * g, axis=axis) * _neighbour_sums(y, axis), axis)
    shape = x_spec.shape
    if len(shape) == 1:
        shape = (*(1,) * axis, *shape, *(1,) * (len(y.shape) - axis - 1))
    return xp.reshape(sum_to(xp, before - after, shape), x_spec.shape)


def _trapezoid_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(5))
    yield Sample(draw(2, 3), dx=0.5, axis=0)
    yield Sample(draw(4), draw(4))
    yield Sample(draw(3, 2), draw(3), axis=0)
    yield Sample(draw(2, 3, 2), draw(2, 3, 2), axis=1)
    yield Sample(draw(2, 3), draw(1, 3))
    yield Sample(draw(1), draw(1))
    yield Sample(draw(0))
    yield Sample(draw(0, 3), draw(3))
    yield Sample(draw.complex(3), draw.complex(3))
    yield Refused(ValueError, "axis 1 is out of bounds", draw(3), axis=1)
    yield Refused(ValueError, "axis -1 is out of bounds", draw())
    yield Refused(ValueError, "one point for each of the 3 values", draw(2, 3), draw(2))
    yield Refused(ValueError, "broadcast to the shape of y", draw(3), draw(2, 3))
    yield Refused(TypeError, "x must be an array", draw(3), 0.5)


@op(y=vjp(_trapezoid_y), x=vjp(_trapezoid_x), kernel=_trapezoid_kernel, samples=_trapezoid_samples)
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, /, *, dx: float = 1.0, axis: int = -1) -> Tensor:
    """The integral of `y` along `axis` by the trapezoidal rule.

    >>> import tape_core as tc
    >>> tc.trapezoid(tc.asarray([1.0, 2.0, 4.0]), tc.asarray([0.0, 1.0, 3.0])).item()
    7.5

    Args:
        y: the values.
        x: the points, a vector along `axis` or of a shape that broadcasts to that of `y`; evenly spaced by default.
        dx: the spacing of the points, a number, if `x` is left out.

    Raises:
        ValueError: `y` has no such axis, or the shapes do not fit.
    """


# -- interp


def _check_table(xs: Array, ys: Array) -> None:
    if not is_array(xs) or not is_array(ys) or len(xs.shape) != 1 or tuple(ys.shape) != tuple(xs.shape):
        shapes = [tuple(v.shape) if is_array(v) else () for v in (xs, ys)]
        raise ValueError(f"xs and ys must be vectors of one length, got shapes {shapes[0]} and {shapes[1]}")
    if xs.shape[0] == 0:
        raise ValueError("xs and ys are empty; there is nothing to interpolate")


def _pick(xp: Namespace, a: Array, places: Array) -> Array:
    """`a[places]` for a vector `a` and indices of any shape."""
    return xp.reshape(xp.take(a, xp.reshape(places, (-1,)), axis=0), tuple(places.shape))


def _locate(xp: Namespace, x: Array, xs: Array) -> tuple[Array, Array, Array, Array]:
    """Find the interval of the table that has each `x` in it, or is the nearest.

    Returns:
        The indices of its two ends, its width, and the position of `x` in it, from 0 to 1.
    """
    last = xs.shape[0] - 1
    before = x < xs[0]
    x = xp.minimum(xp.maximum(x, xs[0]), xs[last])
    after = xp.reshape(xp.search_in_order(xs, xp.reshape(x, (-1,)), side="right"), tuple(x.shape))
    low = xp.where(before, 0, xp.clip(after - 1, 0, max(last - 1, 0)))
    high = xp.clip(low + 1, 0, last)
    start = _pick(xp, xs, low)
    width = _pick(xp, xs, high) - start
    # Equal points inside the table are skipped by the search, so an interval without width is at one of its ends. The
    # outermost of the equal points counts.
    flat = width == 0
    inside = (x - start) / xp.where(flat, 1, width)
    return low, high, width, xp.where(xp.logical_and(flat, xp.logical_not(before)), inside + 1, inside)


def _slope(xp: Namespace, low: Array, high: Array, width: Array, ys: Array) -> Array:
    flat = width == 0
    rise = _pick(xp, ys, high) - _pick(xp, ys, low)
    return xp.where(flat, 0, rise / xp.where(flat, 1, width))


def _interp_kernel(
    xp: Namespace, x: Array, xs: Array, ys: Array, left: float | None = None, right: float | None = None
) -> Array:
    _check_table(xs, ys)
    check_real(xp, x, xs)
    x, xs, ys = _float_table(xp, x, xs, ys)
    low, high, _, t = _locate(xp, x, xs)
    first, second = _pick(xp, ys, low), _pick(xp, ys, high)
    rise = second - first
    # Interpolate from the nearer end, so that the values at both ends are exact.
    value = xp.where(t < 0.5, first + rise * t, second - rise * (1 - t))
    if left is not None:
        value = xp.where(x < xs[0], left, value)
    return value if right is None else xp.where(x > xs[-1], right, value)


def _float_table(xp: Namespace, x: Array, xs: Array, ys: Array) -> list[Array]:
    x, xs, ys = as_floats(xp, x, xs, ys)
    return [x if is_array(x) else xp.zeros_beside(xs, (), dtype=xs.dtype) + x, xs, ys]


def _outside(xp: Namespace, x: Array, xs: Array) -> Array:
    return xp.logical_or(x < xs[0], x > xs[-1])


def _interp_x(xp: Namespace, g: Cotangent, x: Array, xs: Array, ys: Array) -> Cotangent:
    x, xs, ys = _float_table(xp, x, xs, ys)
    low, high, width, _ = _locate(xp, x, xs)
    return xp.where(_outside(xp, x, xs), 0, g * _slope(xp, low, high, width, ys))


def _add_to_ends(
    xp: Namespace, low: Array, high: Array, at_low: Array, at_high: Array, shape: tuple[int, ...]
) -> Array:
    """Add cotangents up at both ends of each interval: the transpose of picking these."""
    low, high, at_low, at_high = (xp.reshape(v, (-1,)) for v in (low, high, at_low, at_high))
    return xp.scatter(at_low, (low,), shape) + xp.scatter(at_high, (high,), shape)


def _interp_xs(xp: Namespace, g: Cotangent, x: Array, xs: Array, ys: Array) -> Cotangent:
    x, xs, ys = _float_table(xp, x, xs, ys)
    # Moving both ends of an interval by dx shifts the line there: the derivative is minus the slope, shared by
    # position.
    low, high, width, t = _locate(xp, x, xs)
    d = xp.where(_outside(xp, x, xs), 0, -g * _slope(xp, low, high, width, ys))
    return _add_to_ends(xp, low, high, d * (1 - t), d * t, tuple(xs.shape))


def _interp_ys(xp: Namespace, g: Cotangent, x: Array, xs: Array, ys_spec: Spec, left: Array, right: Array) -> Cotangent:
    x, xs, g = _float_table(xp, x, xs, g)
    low, high, _, t = _locate(xp, x, xs)
    if left is not None:
        g = xp.where(x < xs[0], 0, g)
    if right is not None:
        g = xp.where(x > xs[-1], 0, g)
    return _add_to_ends(xp, low, high, g * (1 - t), g * t, ys_spec.shape)


def _interp_samples(draw: Draw) -> Iterator[Sample]:
    def points(n: int) -> Tensor:
        return sort(draw.distinct(n))

    yield Sample(draw(5, low=-1, high=1), points(6), draw(6))
    yield Sample(draw(2, 3), points(4), draw(4), -1.0, right=2.0)
    yield Sample(draw(), points(3), draw(3), right=0.5)
    yield Sample(draw(0), points(3), draw(3))
    yield Sample(0.3, points(7), draw(7))
    yield Sample(draw(3), points(1), draw(1))
    yield Sample(draw(3), points(4), draw.complex(4))
    yield Refused(ValueError, "vectors of one length, got shapes .3,. and .4,.", draw(2), draw(3), draw(4))
    yield Refused(ValueError, "vectors of one length", draw(2), draw(2, 2), draw(2, 2))
    yield Refused(ValueError, "nothing to interpolate", draw(2), draw(0), draw(0))
    yield Refused(TypeError, "real numbers", draw.complex(2), draw(3), draw(3))


@op(
    x=vjp(_interp_x),
    xs=vjp(_interp_xs),
    ys=vjp(_interp_ys),
    kernel=_interp_kernel,
    samples=_interp_samples,
)
def interp(x: ArrayLike, xs: ArrayLike, ys: ArrayLike, left: float | None = None, right: float | None = None) -> Tensor:
    """Piecewise linear interpolation at `x` between the points (`xs`, `ys`), as in `numpy.interp`.

    At a point of the table the derivative is that of the interval to its right; at the last point, to its left.

    >>> import tape_core as tc
    >>> tc.interp(tc.asarray([0.5, 9.0]), tc.asarray([0.0, 1.0, 2.0]), tc.asarray([0.0, 10.0, 30.0])).tolist()
    [5.0, 30.0]

    Args:
        x: an array of any shape, the points at which to interpolate.
        xs: a vector in ascending order; the order is not checked.
        ys: the values at `xs`.
        left, right: the results for `x` below and above the table; by default its first and last value.

    Raises:
        ValueError: `xs` and `ys` are empty, or not vectors of one length.
    """
