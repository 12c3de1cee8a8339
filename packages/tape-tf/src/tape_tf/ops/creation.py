"""Creation of tensors: zeros, ones, ranges, one-hot vectors, masks."""

from __future__ import annotations

import math
from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.coded import moves_strings
from tape_tf.conversion import as_tensor, backend_and_device, check_integers, match_dtypes, native, static, wrap
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.shapes import as_shape
from tape_tf.typing import DTypeLike, IntLike, ShapeLike, TensorLike


def _shape(shape: ShapeLike) -> tuple[int, ...]:
    return tuple(as_shape(static(shape)))


def _full(shape: ShapeLike, value: float, dtype: DTypeLike) -> Any:
    backend, device = backend_and_device()
    return wrap(tc.full(_shape(shape), value, dtype=dtypes.as_dtype(dtype).native, backend=backend, device=device))


@exported("zeros")
def zeros(shape: ShapeLike, dtype: DTypeLike = dtypes.float32, name: str | None = None, layout: object = None) -> Any:
    """Return a tensor of zeros."""
    return _full(shape, 0, dtype)


@exported("ones")
def ones(shape: ShapeLike, dtype: DTypeLike = dtypes.float32, name: str | None = None, layout: object = None) -> Any:
    """Return a tensor of ones."""
    return _full(shape, 1, dtype)


@exported("fill")
@moves_strings("value")
def fill(dims: ShapeLike, value: TensorLike, name: str | None = None, layout: object = None) -> Any:
    """Return a tensor with `value` everywhere; the gradient of `value` is the sum over all elements."""
    # A broadcast and not `tc.full`, which would take the number and leave its gradient behind.
    return wrap(tc.broadcast_to(native(value), _shape(dims)))


@op("zeros_like", "input", differs="a constant, also of a Variable, which is not watched by it")
def zeros_like(input: tc.Tensor, dtype: tc.DType | None = None) -> tc.Tensor:
    """Return zeros of the shape and dtype of a tensor."""
    return tc.zeros_like(input, dtype=dtype)


@op("ones_like", "input")
def ones_like(input: tc.Tensor, dtype: tc.DType | None = None) -> tc.Tensor:
    """Return ones of the shape and dtype of a tensor."""
    return tc.ones_like(input, dtype=dtype)


# -- matrices, ranges, masks


@exported("eye linalg.eye")
def eye(
    num_rows: IntLike,
    num_columns: IntLike | None = None,
    batch_shape: ShapeLike = None,
    dtype: DTypeLike = dtypes.float32,
    name: str | None = None,
) -> Any:
    """Return identity matrices: ones on the diagonal, zeros elsewhere."""
    backend, device = backend_and_device()
    rows, columns = static(num_rows), static(num_columns)
    found = tc.eye(rows, columns, dtype=dtypes.as_dtype(dtype).native, backend=backend, device=device)
    return wrap(found if batch_shape is None else tc.broadcast_to(found, (*_shape(batch_shape), *found.shape)))


@exported("range")
def range_(
    start: TensorLike,
    limit: TensorLike | None = None,
    delta: TensorLike = 1,
    dtype: DTypeLike = None,
    name: str | None = None,
) -> Any:
    """Return the numbers from `start` up to, but not including, `limit`, in steps of `delta`."""
    if limit is None:
        start, limit = 0, start
    parts = [native(part) for part in (start, limit, delta)]
    if dtype is None:
        # The only promotion there is: TensorFlow's range takes the widest dtype of its arguments, in this order.
        order = [tc.int32, tc.int64, tc.float16, tc.bfloat16, tc.float32, tc.float64]
        wanted = max([part.dtype for part in parts], key=order.index)
    else:
        wanted = dtypes.as_dtype(dtype).native
    first, last, step = [float(part) if wanted.inexact else int(part) for part in parts]
    if step == 0:
        raise ValueError("Requires delta != 0: 0 [Op:Range]")
    backend, device = backend_and_device(
        next((t for t in map(as_tensor, (start, limit, delta)) if t is not None), None)
    )
    count = max(0, math.ceil((last - first) / step))
    numbers = tc.arange(0, count, dtype=tc.int64, backend=backend, device=device)
    if wanted.inexact:
        # Computed in float64: adding steps in float32 would drift.
        return wrap(tc.astype(tc.astype(numbers, tc.float64) * step + first, wanted))
    return wrap(tc.astype(numbers * int(step) + int(first), wanted))


@exported("linspace")
def linspace(start: TensorLike, stop: TensorLike, num: IntLike, name: str | None = None, axis: int = 0) -> Any:
    """Return `num` evenly spaced numbers from `start` to `stop`, along a new dimension; float64 for integers."""
    first, last = match_dtypes([start, stop], "LinSpace")
    if not first.dtype.inexact:
        first, last = tc.astype(first, tc.float64), tc.astype(last, tc.float64)
    return wrap(_linspace(first, last, static(num), axis))


def _linspace(first: tc.Tensor, last: tc.Tensor, n: int, axis: int) -> tc.Tensor:
    if n < 1:
        raise ValueError(f"Requires num > 0: {n} [Op:LinSpace]")
    if n == 1:  # no steps to divide by
        return tc.expand_dims(first, axis=axis)
    first, last = tc.broadcast_arrays(first, last)
    ndim = first.ndim + 1
    axis = axis % ndim
    # In float64, and rounded once to the dtype of the result.
    steps = tc.arange(n, dtype=tc.float64, backend=first.backend.root, device=first.device)
    fractions = tc.reshape(tc.astype(steps / (n - 1), first.dtype), tuple(n if k == axis else 1 for k in range(ndim)))
    return tc.expand_dims(first, axis=axis) + tc.expand_dims(last - first, axis=axis) * fractions


@op("one_hot", "indices", static_args="depth axis")
def one_hot(
    indices: tc.Tensor,
    depth: int,
    on_value: TensorLike | None = None,
    off_value: TensorLike | None = None,
    axis: int | None = None,
    dtype: tc.DType | None = None,
) -> tc.Tensor:
    """Return a row for each index: `on_value` there, `off_value` elsewhere; an index out of range has no on_value."""
    if dtype is None:
        dtype = next((native(v).dtype for v in (on_value, off_value) if v is not None), tc.float32)
    check_integers(indices, "indices", "OneHot")
    places = tc.arange(depth, dtype=indices.dtype, backend=indices.backend.root, device=indices.device)
    axis = -1 if axis is None else axis
    # By comparison: an index out of range equals no place, and its row is off, as in TensorFlow; nothing is checked.
    hot = tc.expand_dims(indices, axis=-1) == places
    found = tc.where(hot, _on_or_off(on_value, 1, dtype, indices), _on_or_off(off_value, 0, dtype, indices))
    return found if axis in (-1, indices.ndim) else tc.moveaxis(found, -1, axis)


def _on_or_off(given: TensorLike | None, default: int, dtype: tc.DType, like: tc.Tensor) -> tc.Tensor:
    return native(default if given is None else given, dtypes.of(dtype), like=like)


@exported("sequence_mask")
def sequence_mask(
    lengths: TensorLike, maxlen: IntLike | None = None, dtype: DTypeLike = dtypes.bool_, name: str | None = None
) -> Any:
    """Return a row for each length, True in its first so many elements."""
    counts = native(lengths)
    # The longest length decides on the shape, so that a compiled function must give `maxlen`.
    n = int(tc.max(counts)) if maxlen is None else static(maxlen)
    places = tc.arange(n, dtype=counts.dtype, backend=counts.backend.root, device=counts.device)
    found = places < tc.expand_dims(counts, axis=-1)
    return wrap(tc.astype(found, dtypes.as_dtype(dtype).native))
