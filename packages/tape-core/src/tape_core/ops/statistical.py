"""Statistical functions of the Array API standard."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tape_core.engine.op import REFUSED, linear, op, transpose, vjp
from tape_core.engine.rules import Spec
from tape_core.engine.samples import Draw, Refused, Sample, Samples, with_complex
from tape_core.engine.tensor import Tensor
from tape_core.modes import batching
from tape_core.modes.batched import one_of
from tape_core.typing import Array, ArrayLike, Axis, Cotangent, DTypeLike, Namespace


def reductions(low: float = -2.0, high: float = 2.0, empty: bool = True, **kwargs: Any) -> Samples:
    """Samples of a reduction; `empty` adds one without elements, of which not every reduction has a value."""

    def samples(draw: Draw) -> Iterator[Sample]:
        yield Sample(draw(2, 3, low=low, high=high), **kwargs)
        yield Sample(draw(2, 3, low=low, high=high), axis=0, **kwargs)
        yield Sample(draw(2, 3, 2, low=low, high=high), axis=(0, -1), keepdims=True, **kwargs)
        yield Sample(draw(low=low, high=high), **kwargs)
        if empty:
            yield Sample(draw(0, 2, low=low, high=high), axis=0, **kwargs)
        yield Refused(ValueError, "axis", draw(2, 3), axis=2, **kwargs)

    return samples


def normal_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes of a reduction as non-negative numbers."""
    if axis is None:
        return tuple(range(ndim))
    if not ndim:  # libraries accept axis=0 and axis=-1 for an array without dimensions
        return ()
    return tuple(a % ndim for a in (axis if isinstance(axis, tuple) else (axis,)))


def count(shape: tuple[int, ...], axis: Axis) -> int:
    """The number of elements that a reduction makes one of."""
    return math.prod(shape if axis is None else [shape[a] for a in normal_axes(axis, len(shape))])


def restore_axes(xp: Namespace, g: Cotangent, shape: tuple[int, ...], axis: Axis, keepdims: bool) -> Cotangent:
    """Reshape a reduction's result, or its cotangent, so that it broadcasts against the input of shape `shape`.

    The reduced axes come back with length 1, as `keepdims=True` would have left them.
    """
    if keepdims or axis is None:
        return g
    axes = normal_axes(axis, len(shape))
    return xp.reshape(g, tuple(1 if a in axes else n for a, n in enumerate(shape)))


def _sum_transpose(xp: Namespace, g: Cotangent, x_spec: Spec, axis: Axis, keepdims: bool) -> Cotangent:
    shape = x_spec.shape
    return xp.broadcast_to(g if axis is None else restore_axes(xp, g, shape, axis, keepdims), shape)


@linear(x=transpose(_sum_transpose), samples=with_complex(reductions()), batch=batching.along)
def sum(x: ArrayLike, /, *, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all axes by default)."""


def _mean_transpose(xp: Namespace, g: Cotangent, x_spec: Spec, axis: Axis, keepdims: bool) -> Cotangent:
    return _sum_transpose(xp, g / count(x_spec.shape, axis), x_spec, axis, keepdims)


@linear(x=transpose(_mean_transpose), samples=with_complex(reductions(empty=False)), batch=batching.along)
def mean(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over `axis` (all axes by default)."""


def _products_of_others(xp: Namespace, x: Array) -> Array:
    """Return for each element along the last axis the product of all others.

    It multiplies the products of what stands before and after an element. The shorter `prod(x) / x` fails at 0.
    """
    ones = xp.ones_like(x[..., :1])
    before = xp.cumulative_prod(xp.concat([ones, x[..., :-1]], axis=-1), axis=-1)
    after = xp.cumulative_prod(xp.concat([ones, xp.flip(x[..., 1:], axis=-1)], axis=-1), axis=-1)
    return before * xp.flip(after, axis=-1)


def _prod_vjp(xp: Namespace, g: Cotangent, x: Array, x_spec: Spec, axis: Axis, keepdims: bool) -> Cotangent:
    shape = x_spec.shape
    axes = normal_axes(axis, len(shape))
    # Bring the reduced axes to the end and make them one.
    kept = tuple(a for a in range(len(shape)) if a not in axes)
    order = kept + axes
    moved = tuple(shape[a] for a in order)
    flat = xp.reshape(xp.permute_dims(x, order), (*moved[: len(kept)], count(shape, axes)))
    if 0 in flat.shape:
        return xp.broadcast_to(restore_axes(xp, g, shape, axis, keepdims), shape)
    others = xp.reshape(_products_of_others(xp, flat), moved)
    back = tuple(order.index(a) for a in range(len(shape)))
    return restore_axes(xp, g, shape, axis, keepdims) * xp.permute_dims(others, back)


@op(x=vjp(_prod_vjp), samples=with_complex(reductions()), batch=batching.along)
def prod(x: ArrayLike, /, *, axis: Axis = None, dtype: DTypeLike = None, keepdims: bool = False) -> Tensor:
    """The product over `axis` (all axes by default). The derivative is also right where elements are 0."""


def _extremum_vjp(xp: Namespace, g: Cotangent, x: Array, out: Array, axis: Axis, keepdims: bool) -> Cotangent:
    shape = tuple(x.shape)
    hit = x == restore_axes(xp, out, shape, axis, keepdims)
    ties = xp.sum(xp.astype(hit, g.dtype), axis=axis, keepdims=True)
    g = restore_axes(xp, g, shape, axis, keepdims)
    return xp.where(hit, g / ties, zero_or_nan(xp, g, ties))


def zero_or_nan(xp: Namespace, g: Cotangent, ties: Array) -> Cotangent:
    """The cotangent of elements that are not the extremum: 0, or NaN where no element equals it.

    No element equals an extremum that is NaN. The derivative is then unknown, so that it must not look like a zero.
    """
    return xp.where(ties == 0, g * math.nan, 0)


@op(
    x=vjp(_extremum_vjp),
    samples=reductions(empty=False),
    batch=batching.along,
    keeps_integers=True,
    complex_kernel=REFUSED,
)
def max(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The maximum over `axis` (all axes by default). Elements that tie share the gradient equally."""


@op(
    x=vjp(_extremum_vjp),
    samples=reductions(empty=False),
    batch=batching.along,
    keeps_integers=True,
    complex_kernel=REFUSED,
)
def min(x: ArrayLike, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The minimum over `axis` (all axes by default). Elements that tie share the gradient equally."""


def _centred(xp: Namespace, x: Array, axis: Axis) -> Array:
    """`x` minus its mean, conjugated where it is complex, as in the derivative of `|x|**2`."""
    centred = x - xp.mean(x, axis=axis, keepdims=True)
    return xp.conj(centred) if xp.isdtype(x.dtype, "complex floating") else centred


def _var_vjp(xp: Namespace, g: Cotangent, x: Array, axis: Axis, correction: float, keepdims: bool) -> Cotangent:
    # The derivative of the mean drops out, since the centred values sum to 0.
    shape = tuple(x.shape)
    centred = _centred(xp, x, axis)
    return restore_axes(xp, g, shape, axis, keepdims) * centred * (2 / (count(shape, axis) - correction))


def _complex_var(
    xp: Namespace, x: Array, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    # The standard has the variance of real numbers only.
    centred = x - xp.mean(x, axis=axis, keepdims=True)
    squares = xp.real(centred * xp.conj(centred))
    return xp.sum(squares, axis=axis, keepdims=keepdims) / (count(tuple(x.shape), axis) - correction)


@op(
    x=vjp(_var_vjp),
    samples=with_complex(reductions(empty=False)),
    batch=batching.along,
    complex_kernel=_complex_var,
)
def var(x: ArrayLike, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance over `axis` (all axes by default): the sum of squares over the number of elements - `correction`."""


def _std_vjp(
    xp: Namespace, g: Cotangent, x: Array, out: Array, axis: Axis, correction: float, keepdims: bool
) -> Cotangent:
    shape = tuple(x.shape)
    centred = _centred(xp, x, axis)
    # Where all elements are equal, std has a kink, and 0 is the subgradient of least norm.
    scale = g / (xp.where(out == 0, 1, out) * (count(shape, axis) - correction))
    return centred * restore_axes(xp, scale, shape, axis, keepdims)


def _std_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(2, 3))
    yield Sample(draw(3, 2), axis=0, correction=1.0)
    yield Sample(draw(2, 3, 2), axis=(0, -1), keepdims=True)


@op(
    x=vjp(_std_vjp),
    samples=with_complex(_std_samples),
    batch=batching.along,
    complex_kernel=lambda xp, x, **options: xp.sqrt(_complex_var(xp, x, **options)),
)
def std(x: ArrayLike, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation over `axis` (all axes by default). Where it is 0, so is the derivative."""


def _cumulative_samples(draw: Draw) -> Iterator[Sample]:
    yield Sample(draw(4))
    yield Sample(draw(2, 3), axis=1)
    yield Sample(draw(2, 3), axis=-2, include_initial=True)
    yield Sample(draw(0))
    yield Refused(ValueError, "axis", draw(2, 3), axis=2)
    yield Refused(ValueError, "axis", draw(2, 3))
    yield Refused(ValueError, "axis must be given for an array of 0 dimensions", draw())


def _suffix_sums(xp: Namespace, g: Cotangent, axis: int) -> Cotangent:
    return xp.flip(xp.cumulative_sum(xp.flip(g, axis=axis), axis=axis), axis=axis)


def _tail(g: Array, axis: int) -> Array:
    """All elements but the first along an axis."""
    return g[(slice(None),) * axis + (slice(1, None), ...)]


def _cumulative_sum_transpose(
    xp: Namespace, g: Cotangent, x_spec: Spec, axis: int | None, include_initial: bool
) -> Cotangent:
    # x[i] is in all sums from place i on; the initial 0 depends on nothing.
    axis = 0 if axis is None else axis % len(x_spec.shape)
    return _suffix_sums(xp, _tail(g, axis) if include_initial else g, axis)


@linear(
    x=transpose(_cumulative_sum_transpose),
    samples=with_complex(_cumulative_samples),
    batch=batching.running,
    axes_of="line",
)
def cumulative_sum(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike = None, include_initial: bool = False
) -> Tensor:
    """The sums of the first 1, 2, ... elements along `axis`, which may be left out for a 1-d array.

    With `include_initial` the result begins with the sum of no elements, 0, and is longer by 1.
    """


def _cumulative_prod_vjp(
    xp: Namespace, g: Cotangent, x: Array, out: Array, axis: int | None, include_initial: bool
) -> Cotangent:
    axis = 0 if axis is None else axis % len(x.shape)
    if include_initial:
        g, out = _tail(g, axis), _tail(out, axis)
    if 0 in x.shape:
        return g
    # Without zeros O(n) suffices: the derivative of out[j] with respect to x[i] is out[j] / x[i] for j >= i.
    return one_of(
        xp,
        xp.all(x != 0),
        lambda: _suffix_sums(xp, g * out, axis) / x,
        lambda: _cumulative_prod_vjp_at_zeros(xp, g, x, axis),
    )


def _cumulative_prod_vjp_at_zeros(xp: Namespace, g: Cotangent, x: Array, axis: int) -> Cotangent:
    """The cotangent of a cumulative product where elements are 0, in O(n^2) time and memory.

    Row i of the table `without` has the cumulative products without element i: the derivatives of the results from
    place i on.
    """
    n = x.shape[axis]
    # Bring the axis to the end; rows of the table lie along a new last but one axis.
    last = (*(a for a in range(len(x.shape)) if a != axis), axis)
    x, g = xp.permute_dims(x, last), xp.permute_dims(g, last)
    place = xp.arange_beside(x, n)
    own = xp.expand_dims(place, axis=1) == place
    without = xp.cumulative_prod(xp.where(own, 1, xp.expand_dims(x, axis=-2)), axis=-1)
    rows = xp.where(xp.expand_dims(place, axis=1) <= place, without * xp.expand_dims(g, axis=-2), 0)
    back = tuple(last.index(a) for a in range(len(last)))
    return xp.permute_dims(xp.sum(rows, axis=-1), back)


@op(
    x=vjp(_cumulative_prod_vjp),
    samples=with_complex(_cumulative_samples),
    batch=batching.running,
    axes_of="line",
)
def cumulative_prod(
    x: ArrayLike, /, *, axis: int | None = None, dtype: DTypeLike = None, include_initial: bool = False
) -> Tensor:
    """The products of the first 1, 2, ... elements along `axis`, which may be left out for a 1-d array.

    With `include_initial` the result begins with the product of no elements, 1, and is longer by 1. The derivative is
    also right where elements are 0.
    """
