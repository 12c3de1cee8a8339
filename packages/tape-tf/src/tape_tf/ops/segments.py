"""Reductions of rows by segment, and counts: bincount, confusion_matrix, histograms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tape_core as tc
from tape_core.staging import value_check

from tape_tf import dtypes
from tape_tf.conversion import native, static, wrap
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.typing import DTypeLike, IntLike, TensorLike

# -- segments

_SEGMENTS: dict[str, Callable[..., Any]] = {
    "sum": tc.segment_sum,
    "mean": tc.segment_mean,
    "prod": tc.segment_prod,
    "max": tc.segment_max,
    "min": tc.segment_min,
}


def _fill_empty(short: str, found: tc.Tensor, ids: tc.Tensor, n: int, value: complex) -> tc.Tensor:
    """Set segments without rows to `value`, for max and min, which have no neutral element."""
    if short not in ("max", "min"):
        return found
    ones = tc.ones_like(ids)
    empty = tc.segment_sum(ones, ids, n) == 0
    shaped = tc.reshape(empty, (n,) + (1,) * (found.ndim - 1))
    return tc.where(shaped, tc.full_like(found, value), found)


@value_check(between=lambda segment_ids, num_segments: (-(2**63), num_segments - 1))
def _check_ids(segment_ids: tc.Tensor, num_segments: int) -> None:
    if segment_ids.size and (largest := int(tc.max(segment_ids))) >= num_segments:
        raise ValueError(f"segment_ids = {largest} is out of range [0, {num_segments})")


def _ids(segment_ids: tc.Tensor, num_segments: int) -> tc.Tensor:
    """Check ids, and move rows with negative ones, which TensorFlow drops, into one more segment at the end."""
    _check_ids(segment_ids, num_segments)
    return tc.where(segment_ids < 0, tc.full_like(segment_ids, num_segments), segment_ids)


def _publish(short: str, function: Callable[..., Any]) -> None:
    @op(f"math.segment_{short}", "data; segment_ids", kernel=f"Segment{short.capitalize()}")
    def sorted_segments(data: tc.Tensor, segment_ids: tc.Tensor) -> tc.Tensor:
        if segment_ids.ndim != 1 or segment_ids.shape[0] != data.shape[0]:
            raise ValueError(f"segment_ids should be the same size as dimension 0 of input, {data.shape}")
        # A value decides here, and below on the number of segments: a compiled function runs these in Python.
        if bool(tc.any(segment_ids[1:] < segment_ids[:-1])):
            raise ValueError("segment ids are not increasing")
        n = int(segment_ids[-1]) + 1 if segment_ids.size else 0
        return _fill_empty(short, function(data, segment_ids, n), segment_ids, n, 0)

    @op(
        f"math.unsorted_segment_{short}",
        "data; segment_ids",
        static_args="num_segments",
        kernel=f"UnsortedSegment{short.capitalize()}",
    )
    def unsorted_segments(data: tc.Tensor, segment_ids: tc.Tensor, num_segments: int) -> tc.Tensor:
        ids, n = _ids(segment_ids, num_segments), num_segments + 1
        limits = dtypes.of(data.dtype)
        # TensorFlow's unsorted_segment_max has the smallest number of the dtype for an empty segment; segment_max has
        # 0.
        found = _fill_empty(short, function(data, ids, n), ids, n, limits.min if short == "max" else limits.max)
        return found[:num_segments]

    for kind, fn in (("segment", sorted_segments), ("unsorted_segment", unsorted_segments)):
        fn.__doc__ = f"Return the {short} of the rows of each segment{', whose ids rise' if kind == 'segment' else ''}."


for _short, _function in _SEGMENTS.items():
    _publish(_short, _function)


@op("math.unsorted_segment_sqrt_n", "data; segment_ids", static_args="num_segments")
def unsorted_segment_sqrt_n(data: tc.Tensor, segment_ids: tc.Tensor, num_segments: int) -> tc.Tensor:
    """Return the sum of the rows of each segment, divided by the square root of their number."""
    ids = _ids(segment_ids, num_segments)
    total = tc.segment_sum(data, ids, num_segments + 1)[:num_segments]
    counts = tc.segment_sum(tc.ones_like(ids), ids, num_segments + 1)[:num_segments]
    # At least 1: an empty segment is 0, and not 0 / 0.
    root = tc.sqrt(tc.astype(tc.maximum(counts, tc.ones_like(counts)), data.dtype))
    return total / tc.reshape(root, (num_segments,) + (1,) * (total.ndim - 1))


# -- counts


@exported("math.bincount", differs="of tensors, without binary_output and axis")
def bincount(
    arr: TensorLike,
    weights: TensorLike | None = None,
    minlength: IntLike | None = None,
    maxlength: IntLike | None = None,
    dtype: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Any:
    """Count how often each number from 0 on occurs, or add up the weights of each."""
    values = tc.reshape(native(arr), (-1,))
    n = int(tc.max(values)) + 1 if values.size else 0
    n = max(n, static(minlength) or 0)
    if maxlength is not None:
        n = min(n, static(maxlength))
    if weights is None:
        # The count of a number is the sum of ones, and so a segment sum as with weights, which has a gradient.
        given = tc.ones_like(values, dtype=dtypes.as_dtype(dtype).native)
    else:
        given = tc.reshape(native(weights), (-1,))
    inside = values < n  # the others go into one more segment, which is cut off
    rows = tc.where(inside, values, tc.full_like(values, n))
    return wrap(tc.segment_sum(given, rows, n + 1)[:n])


@exported("math.confusion_matrix")
def confusion_matrix(
    labels: TensorLike,
    predictions: TensorLike,
    num_classes: IntLike | None = None,
    weights: TensorLike | None = None,
    dtype: DTypeLike = dtypes.int32,
    name: str | None = None,
) -> Any:
    """Count how often each label (row) was predicted as each class (column)."""
    truth, guess = native(labels), native(predictions)
    if truth.shape != guess.shape:
        raise ValueError(f"labels and predictions must have one shape, got {truth.shape} and {guess.shape}")
    n = static(num_classes)
    if n is None:
        n = max(int(tc.max(truth)), int(tc.max(guess))) + 1
    kind = dtypes.as_dtype(dtype).native
    given = tc.ones_like(truth, dtype=kind) if weights is None else tc.astype(native(weights), kind)
    # Each cell (row, column) of the matrix is a segment.
    ids = tc.astype(truth, tc.int64) * n + tc.astype(guess, tc.int64)
    return wrap(tc.reshape(tc.segment_sum(given, ids, n * n), (n, n)))


@op("math.invert_permutation", "x")
def invert_permutation(x: tc.Tensor) -> tc.Tensor:
    """Return the inverse of a permutation."""
    # The order that sorts a permutation is its inverse.
    return tc.astype(tc.argsort(x), x.dtype)


@op("histogram_fixed_width", "values", static_args="nbins")
def histogram_fixed_width(
    values: tc.Tensor, value_range: Sequence[TensorLike], nbins: int = 100, dtype: tc.DType = dtypes.int32.native
) -> tc.Tensor:
    """Count the values in `nbins` bins of equal width; values outside of the range go into the first or the last."""
    low, high = (float(native(end)) for end in value_range)
    places = tc.floor((tc.reshape(values, (-1,)) - low) * (nbins / (high - low)))
    ids = tc.astype(tc.clip(places, 0, nbins - 1), tc.int64)
    return tc.segment_sum(tc.ones_like(ids, dtype=dtype), ids, nbins)
