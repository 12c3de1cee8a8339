"""Distances between all pairs of vectors of two stacks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tape_core.backends.checks import check_inexact
from tape_core.engine.op import REFUSED, op, vjp
from tape_core.engine.samples import Draw, Refused, Sample
from tape_core.engine.tensor import SCALARS, Tensor
from tape_core.modes import batching
from tape_core.ops.manipulation import sum_to
from tape_core.ops.statistical import zero_or_nan
from tape_core.typing import Array, ArrayLike, Cotangent, Namespace


def _check(xp: Namespace, x1: Array, x2: Array, p: Array) -> None:
    for name, x in (("x1", x1), ("x2", x2)):
        if type(x) in SCALARS or len(x.shape) < 2:
            raise ValueError(f"{name} must be an array of two dimensions or more, got {getattr(x, 'shape', x)}")
        check_inexact(xp, name, x, real=True)
    shape1, shape2 = tuple(x1.shape), tuple(x2.shape)
    if shape1[-1] != shape2[-1]:
        raise ValueError(f"x1 and x2 must have the same last dimension, got shapes {shape1} and {shape2}")
    if any(n != m and 1 not in (n, m) for n, m in zip(shape1[-3::-1], shape2[-3::-1], strict=False)):
        raise ValueError(f"x1 and x2 must broadcast but for the last two dimensions, got shapes {shape1} and {shape2}")
    if type(p) is bool or not isinstance(p, int | float) or not p >= 0:
        raise ValueError(f"p must be a number from 0 to infinity, got {p!r}")


def _all_differences(xp: Namespace, x1: Array, x2: Array) -> Array:
    """The differences of each row of `x1` and each row of `x2`, of shape `(..., n, m, d)`."""
    return xp.expand_dims(x1, axis=-2) - xp.expand_dims(x2, axis=-3)


def _cdist_kernel(xp: Namespace, x1: Array, x2: Array, *, p: float = 2.0) -> Array:
    _check(xp, x1, x2, p)
    if p == 0:
        # Compare rather than subtract: the difference of two infinities is NaN.
        differs = xp.expand_dims(x1, axis=-2) != xp.expand_dims(x2, axis=-3)
        return xp.sum(xp.astype(differs, xp.result_type(x1, x2)), axis=-1)
    difference = _all_differences(xp, x1, x2)
    if p == 2:
        return xp.sqrt(xp.sum(difference * difference, axis=-1))
    size = xp.abs(difference)
    if p == 1 or size.shape[-1] == 0:
        return xp.sum(size, axis=-1)
    top = xp.max(size, axis=-1, keepdims=True)
    if p == math.inf:
        return xp.squeeze(top, axis=-1)
    # Divided by the largest, the powers do not overflow, and not all of them underflow.
    top = xp.where((top == 0) | (top == math.inf), 1, top)
    return xp.squeeze(top, axis=-1) * xp.sum((size / top) ** p, axis=-1) ** (1 / p)


def _cdist_common(xp: Namespace, g: Cotangent, x1: Array, x2: Array, out: Array, p: float) -> Cotangent:
    """The cotangent of the differences. At a difference of 0 it is 0, the smallest of the subgradients."""
    d = x1.shape[-1]
    if p == 0 or d == 0:
        return xp.zeros_beside(g, (*g.shape, d), dtype=g.dtype)
    difference = _all_differences(xp, x1, x2)
    g, out = xp.expand_dims(g, axis=-1), xp.expand_dims(out, axis=-1)
    if p == 2:
        return g * (difference / xp.where(out == 0, 1, out))
    sign = xp.sign(difference)
    if p == 1:
        return g * sign
    size = xp.abs(difference)
    if p == math.inf:
        hit = size == out
        ties = xp.sum(xp.astype(hit, g.dtype), axis=-1, keepdims=True)
        return xp.where(hit, sign * (g / ties), zero_or_nan(xp, g, ties))
    # The factor `sign` is 0 where the difference is. The power is taken of 1 there, since that of 0, or its derivative,
    # may be infinite.
    share = xp.where(size == 0, 1, size / xp.where(out == 0, 1, out))
    return g * sign * share ** (p - 1)


def _cdist_samples(draw: Draw) -> Iterator[Sample]:
    for p in (0, 0.5, 1, 1.5, 2, 3, math.inf):
        yield Sample(draw(3, 2), draw(4, 2), p=p)
    yield Sample(draw(2, 1, 3, 2), draw(3, 1, 2))
    yield Sample(draw(2, 3), draw(2, 4, 3), p=1)
    yield Sample(draw(2, 2, 3), draw(1, 4, 3), p=2.5)
    yield Sample(draw(3, 1, 2, 3), draw(2, 1, 3), p=math.inf)
    yield Sample(draw(3, 1), draw(2, 1), p=50.0)
    yield Sample(draw(0, 2), draw(3, 2), p=3)
    yield Sample(draw(2, 3, 2), draw(2, 0, 2))
    yield Sample(draw(0, 3, 2), draw(1, 4, 2), p=1)
    for p in (0, 1, 2, 3, math.inf):
        yield Sample(draw(3, 0), draw(2, 0), p=p)
    yield Refused(ValueError, "same last dimension", draw(3, 2), draw(3, 4))
    yield Refused(ValueError, "same last dimension", draw(3, 1), draw(3, 4), p=1)
    yield Refused(ValueError, "must broadcast", draw(2, 3, 2), draw(3, 3, 2))
    yield Refused(ValueError, "x1 must be an array of two", draw(2), draw(3, 2))
    yield Refused(ValueError, "x2 must be an array of two", draw(3, 2), 1.0)
    yield Refused(ValueError, "p must be", draw(3, 2), draw(3, 2), p=-1)
    yield Refused(ValueError, "p must be", draw(3, 2), draw(3, 2), p=math.nan)
    yield Refused(TypeError, "real numbers", draw.complex(3, 2), draw(3, 2))


@op(
    x1=vjp(lambda xp, g, x1_spec, common: sum_to(xp, xp.sum(common, axis=-2), x1_spec.shape)),
    x2=vjp(lambda xp, g, x2_spec, common: sum_to(xp, -xp.sum(common, axis=-3), x2_spec.shape)),
    common=_cdist_common,
    kernel=_cdist_kernel,
    samples=_cdist_samples,
    batch=batching.stacks(2, 2),
    complex_kernel=REFUSED,
)
def cdist(x1: ArrayLike, x2: ArrayLike, /, *, p: float = 2.0) -> Tensor:
    """The distances between each row of `x1` and each row of `x2`: `sum(abs(row1 - row2) ** p) ** (1 / p)`.

    >>> import tape_core as tc
    >>> x1, x2 = tc.asarray([[0.0, 0.0], [3.0, 0.0]]), tc.asarray([[3.0, 4.0], [0.0, 0.0], [3.0, 1.0]])
    >>> tc.cdist(x1[:1], x2[:2]).tolist()
    [[5.0, 0.0]]
    >>> tc.cdist(x1, x2, p=1).tolist()
    [[7.0, 0.0, 4.0], [4.0, 3.0, 1.0]]
    >>> tc.cdist(x1, x2, p=tc.inf).tolist()
    [[4.0, 0.0, 3.0], [4.0, 3.0, 1.0]]

    Where there is no derivative, the gradient is the smallest subgradient: 0 where two rows are equal, and for elements
    that are equal. At `p=inf` elements that are equally far apart share the gradient. At `p=0` it is 0.

    Source: the Minkowski distances of SciPy, `scipy.spatial.distance.cdist`, and `torch.cdist`.

    Args:
        x1, x2: arrays of shape (..., n, d) and (..., m, d), for a result of shape (..., n, m). Leading dimensions
            broadcast.
        p: from 0 to infinity. 0 counts the elements that differ, infinity takes the largest difference.

    Raises:
        TypeError: an array is not of a real floating dtype.
        ValueError: shapes do not fit, or `p` is out of range.
    """
