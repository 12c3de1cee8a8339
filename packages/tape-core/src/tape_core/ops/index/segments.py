"""Reductions of segments: groups of the rows of an array that have the same number.

Each is an update, with duplicates, of an array that begins with the neutral element of the reduction.
"""

from __future__ import annotations

import math

from tape_core.backends.errors import BatchError
from tape_core.base import dtypes
from tape_core.engine.tensor import SCALARS, Tensor, read_all
from tape_core.ops import elementwise as ew
from tape_core.ops.creation import ones_like
from tape_core.ops.data_types import astype, iinfo
from tape_core.ops.index.indexing import scatter_with_key
from tape_core.ops.index.scatter import (
    constant_beside,
    scatter_max_with_key,
    scatter_min_with_key,
    scatter_multiply_with_key,
)
from tape_core.ops.manipulation import reshape
from tape_core.ops.statistical import max as largest
from tape_core.ops.statistical import min as smallest
from tape_core.staging import TracingError, value_check
from tape_core.typing import ArrayLike


def _check_segments(
    name: str, x: ArrayLike, segment_ids: ArrayLike, num_segments: int | None
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """Check the arguments; return the operands and the shape of the result.

    Raises:
        TypeError: the ids are not integers.
        ValueError: the ids do not number the rows of `x`, or one of them is out of range.
    """
    x, ids = read_all((x, segment_ids), lambda k: f"{name}: {('x', 'segment_ids')[k]}")
    if type(x) in SCALARS or type(ids) in SCALARS or not ids.shape:
        raise ValueError(f"{name}: x and segment_ids must have one dimension or more")
    if "integer" not in ids.dtype.kind:
        raise TypeError(f"{name}: segment_ids must be integers, not {ids.dtype}")
    if ids.shape != x.shape[: ids.ndim]:
        raise ValueError(
            f"{name}: segment_ids of shape {ids.shape} must have the shape of the first dimensions of x, which is of "
            f"shape {x.shape}"
        )
    if num_segments is None:
        num_segments = _count_segments(name, ids)
    num_segments = int(num_segments)
    _check_ids(name, ids, num_segments)
    return x, ids, (num_segments, *x.shape[ids.ndim :])


def _count_segments(name: str, ids: Tensor) -> int:
    """The number of segments that the largest id implies."""
    # The shape of the result would depend on values, which neither a trace nor a batch has.
    try:
        return int(largest(ids)) + 1 if ids.size else 0
    except (BatchError, TracingError) as error:
        raise type(error)(
            f"{name}: in a compiled function, and inside vmap, the shape of the result cannot depend on the largest "
            f"id: give num_segments"
        ) from error


@value_check(between=lambda name, ids, num_segments: (0, num_segments - 1))
def _check_ids(name: str, ids: Tensor, num_segments: int) -> None:
    backend, array = ids.backend, ids._array
    if not ids.size:
        low, high = 0, -1
    elif not backend.is_known(array):  # inside `jax.jit`, as for other indices
        return
    elif "indices" in backend.library.checks:
        low, high = int(smallest(ids)), int(largest(ids))
    else:
        low, high = backend.extremes(array)
    if low < 0 or high >= num_segments:
        raise ValueError(f"{name}: segment_ids must be in [0, {num_segments}), got {low} to {high}")


def segment_sum(x: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None) -> Tensor:
    """The sum of the rows of each segment; 0 for a segment without rows.

    >>> import tape_core as tc
    >>> x, ids = tc.asarray([1.0, 2.0, 3.0, 4.0]), tc.asarray([0, 2, 0, 2])
    >>> tc.segment_sum(x, ids).tolist(), tc.segment_mean(x, ids).tolist(), tc.segment_max(x, ids).tolist()
    ([4.0, 0.0, 6.0], [2.0, 0.0, 3.0], [3.0, -inf, 4.0])

    Args:
        x: the rows, along the dimensions of `segment_ids`.
        segment_ids: the number of the segment of each row, in any order; an array of integers of the shape of the
            first dimensions of `x`, usually 1-d.
        num_segments: the number of segments; by default the largest id plus 1. The result has the shape
            `(num_segments, *x.shape[segment_ids.ndim:])`.

    Raises:
        ValueError: an id is not in `[0, num_segments)`, or the ids do not fit the shape of `x`.
        TypeError: the ids are not integers.
    """
    x, ids, shape = _check_segments("segment_sum", x, segment_ids, num_segments)
    return scatter_with_key(x, ids, shape)


def segment_mean(x: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None) -> Tensor:
    """The mean of the rows of each segment; 0 for a segment without rows. Integers are averaged in the default dtype.

    Arguments and errors are those of :func:`segment_sum`.
    """
    x, ids, shape = _check_segments("segment_mean", x, segment_ids, num_segments)
    if not x.dtype.inexact:
        x = astype(x, dtypes.get_default_dtype())
    # Empty segments are divided by 1, so that they have 0, not NaN.
    counts = astype(ew.maximum(scatter_with_key(ones_like(ids), ids, shape[:1]), 1), x.dtype)
    return ew.divide(scatter_with_key(x, ids, shape), reshape(counts, (-1,) + (1,) * (len(shape) - 1)))


def segment_prod(x: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None) -> Tensor:
    """The product of the rows of each segment; 1 for a segment without rows.

    Arguments and errors are those of :func:`segment_sum`.

    >>> import tape_core as tc
    >>> tc.segment_prod(tc.asarray([2.0, 5.0, 3.0]), tc.asarray([1, 0, 1])).tolist()
    [5.0, 6.0]

    The derivative is also right where elements are 0.
    """
    x, ids, shape = _check_segments("segment_prod", x, segment_ids, num_segments)
    return scatter_multiply_with_key(constant_beside(x, shape, 1), x, ids)


def segment_max(x: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None) -> Tensor:
    """The maximum of the rows of each segment; ties share the gradient equally.

    A segment without rows has -inf, or the smallest integer of the dtype, as in JAX. Arguments and errors are those of
    :func:`segment_sum`.
    """
    x, ids, shape = _check_segments("segment_max", x, segment_ids, num_segments)
    return scatter_max_with_key(constant_beside(x, shape, -math.inf if x.dtype.inexact else _limits(x).min), x, ids)


def segment_min(x: ArrayLike, segment_ids: ArrayLike, /, num_segments: int | None = None) -> Tensor:
    """The minimum of the rows of each segment; ties share the gradient equally.

    A segment without rows has inf, or the largest integer of the dtype, as in JAX. Arguments and errors are those of
    :func:`segment_sum`.
    """
    x, ids, shape = _check_segments("segment_min", x, segment_ids, num_segments)
    return scatter_min_with_key(constant_beside(x, shape, math.inf if x.dtype.inexact else _limits(x).max), x, ids)


def _limits(x: Tensor) -> dtypes.iinfo:
    if x.dtype.kind == "bool":
        raise TypeError("segment_max and segment_min: x must hold numbers, not bool")
    return iinfo(x.dtype)
