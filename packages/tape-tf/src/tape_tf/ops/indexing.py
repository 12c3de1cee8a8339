"""Reading parts of tensors: slices, gathers, masks, `where`, searches."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
import tape_core as tc

from tape_tf import dtypes
from tape_tf.coded import moves_strings
from tape_tf.conversion import check_integers, match_dtypes, native, static, wrap
from tape_tf.errors import InvalidArgumentError, in_tensorflow_terms
from tape_tf.function_lookup import provide, provided
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.tensor import Tensor, Value, wrap_tensor
from tape_tf.typing import DTypeLike, IndexLike, IntLike, TensorLike

# -- slices


def getitem(x: Value, key: IndexLike) -> Tensor:
    """Return `x[key]`, for integers, scalar integer tensors, slices, `...` and `tf.newaxis`, or a boolean mask."""
    parts = key if isinstance(key, tuple) else (key,)
    native_parts = tuple([_native_part(part) for part in parts])
    value = x._read_native()
    try:
        return wrap_tensor(value[native_parts if isinstance(key, tuple) else native_parts[0]])
    except IndexError as error:
        what = str(error)
        # TensorFlow names the index and the dimension; only those before a `...` or newaxis are easy to count.
        for k, (p, n) in enumerate(zip(native_parts, value.shape, strict=False)):
            if p is None or p is Ellipsis:
                break
            if type(p) is int and not -n <= p < n:
                what = f"slice index {p} of dimension {k} out of bounds."
        raise InvalidArgumentError(None, None, f"{what} [Op:StridedSlice]") from error


def _native_part(part: Any) -> Any:
    """Convert one part of a key to what tape_core's indexing takes.

    Raises:
        TypeError: TensorFlow does not take it, such as a list of integers.
    """
    kind = type(part)
    if kind is int or part is None or part is Ellipsis:
        return part
    if kind is slice:
        return slice(*[static(end) if end is None else int(static(end)) for end in (part.start, part.stop, part.step)])
    if isinstance(part, Value | tc.Tensor):
        found = native(part)
        if found.dtype is tc.bool:
            return found
        # A traced index becomes a Python number here, so that the function is not compiled.
        if not found.ndim and found.dtype.kind.endswith("integer"):
            return int(found)
    elif isinstance(part, np.integer):
        return int(part)
    elif isinstance(part, np.ndarray | list) and np.asarray(part).dtype == bool:
        return native(part)
    raise TypeError(
        "Only integers, slices (`:`), ellipsis (`...`), tf.newaxis (`None`) and scalar tf.int32/tf.int64 tensors are "
        f"valid indices, got {part!r}; use tf.gather for a list of indices"
    )


@op("slice", "input_", static_args="begin size", strings="all")
def slice_(input_: tc.Tensor, begin: tuple[int, ...], size: tuple[int, ...]) -> tc.Tensor:
    """Return the part that starts at `begin` and has the shape `size`; -1 stands for all that is left."""
    key = tuple(slice(b, None if n == -1 else b + n) for b, n in zip(begin, size, strict=True))
    # A slice in Python is cut off at the end; tf.slice raises, hence the check of the result.
    found = input_[key]
    if any(n not in (-1, got) for n, got in zip(size, found.shape, strict=True)):
        raise ValueError(f"Expected size within {input_.shape} from begin {begin}, but got {size}")
    return found


@op("strided_slice", "input_", static_args="begin end strides", strings="all")
def strided_slice(
    input_: tc.Tensor, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...] | None = None
) -> tc.Tensor:
    """Return the part from `begin` to `end`, with the given strides."""
    steps = strides or (1,) * len(begin)
    return input_[tuple(slice(*part) for part in zip(begin, end, steps, strict=True))]


# -- gathers


def _check_in_range(indices: tc.Tensor, length: int, label: str = "indices") -> None:
    """Raise an InvalidArgumentError for an index outside of [0, length): backends differ in what they do then."""
    check_integers(indices, label, "GatherV2")
    if not indices.size or indices.backend.level or indices.device != "cpu":
        return  # inside vmap the values are not known; on a GPU, reading them would wait for the device
    values = indices.backend.numpy(indices.array).ravel()
    if values.min() < 0 or values.max() >= length:
        bad = values[np.flatnonzero((values < 0) | (values >= length))[0]]
        raise InvalidArgumentError(None, None, f"{label} = {bad} is not in [0, {length}) [Op:GatherV2]")


@op("gather", "params; indices", static_args="axis batch_dims", kernel="GatherV2", strings="all")
def gather(
    params: tc.Tensor, indices: tc.Tensor, validate_indices: object = None, axis: int | None = None, batch_dims: int = 0
) -> tc.Tensor:
    """Return the parts of `params` at `indices` along `axis`. Along the first axis, the gradient is IndexedSlices.

    Args:
        axis: by default `batch_dims`.
        batch_dims: the number of leading batch dimensions: each example has indices of its own.

    Raises:
        InvalidArgumentError: an index is out of range.
    """
    batch = batch_dims % (indices.ndim + 1) if batch_dims < 0 else batch_dims
    axis = batch if axis is None else axis % params.ndim
    if axis < batch:
        raise ValueError(f"batch_dims = {batch} must be less than or equal to axis = {axis}")
    _check_in_range(indices, params.shape[axis])
    if not batch:
        if axis == 0:
            # The op whose gradient is IndexedSlices: along any other axis, and with several coordinates, the gradient
            # is dense.
            return tc.gather(params, indices)
        found = tc.take(params, tc.reshape(indices, (-1,)), axis=axis)
        return tc.reshape(found, (*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]))
    # Advanced indexing: the batch dimensions are indexed by ranges that broadcast with the indices.
    grid: list[Any] = [_range_along(params, k, indices.ndim) for k in range(batch)]
    moved = tc.moveaxis(params, axis, batch)
    found = moved[(*grid, indices)]
    inner = indices.ndim - batch
    for k in range(axis - batch):  # dimensions before the axis come before those of the indices
        found = tc.moveaxis(found, batch + inner + k, batch + k)
    return found


def _range_along(params: tc.Tensor, k: int, ndim: int) -> tc.Tensor:
    """Return 0, 1, ... along dimension k, of a shape with `ndim` dimensions that broadcasts."""
    n = params.shape[k]
    places = tc.arange(n, backend=params.backend.root, device=params.device)
    return tc.reshape(places, (1,) * k + (n,) + (1,) * (ndim - k - 1))


@exported("nn.embedding_lookup")
def embedding_lookup(
    params: TensorLike, ids: TensorLike, max_norm: TensorLike | None = None, name: str | None = None
) -> Any:
    """Return the rows of `params` at `ids`; the gradient is IndexedSlices.

    Args:
        max_norm: rows with a larger norm are scaled to this one.
    """
    found = gather(params, ids)
    if max_norm is None:
        return found
    return provided.clip_by_norm(found, max_norm, axes=list(range(len(native(ids).shape), len(found.shape))))


def check_coordinates(indices: tc.Tensor, shape: tuple[int, ...]) -> None:
    """Raise an error if coordinates in the last axis of `indices` are outside of a shape."""
    depth = indices.shape[-1]
    if depth > len(shape):
        raise ValueError(f"index innermost dimension length must be <= params rank; saw: {depth} vs. {len(shape)}")
    for k in range(depth):
        _check_in_range(indices[..., k], shape[k], f"indices[..., {k}]")


def nd_key(indices: TensorLike) -> tuple[tc.Tensor, ...]:
    """Return the key for coordinates in the last axis of `indices`: one index tensor per dimension."""
    places = native(indices)
    return tuple(places[..., k] for k in range(places.shape[-1]))


@op("gather_nd", "params; indices", static_args="batch_dims", kernel="GatherNd", strings="all")
def gather_nd(params: tc.Tensor, indices: tc.Tensor, batch_dims: int = 0) -> tc.Tensor:
    """Return the parts of `params` at the coordinates in the last axis of `indices`; of whole rows, :func:`gather`."""
    depth = indices.shape[-1]
    check_coordinates(indices, params.shape[batch_dims:])
    if not batch_dims and depth == 1:
        return tc.gather(params, indices[..., 0])
    grid = tuple(_range_along(params, k, indices.ndim - 1) for k in range(batch_dims))
    key = (*grid, *nd_key(indices))
    return params[key] if key else tc.broadcast_to(params, (*indices.shape[:-1], *params.shape))


# -- conditions and masks


@exported("where")
@moves_strings("x y")
def where(
    condition: TensorLike, x: TensorLike | None = None, y: TensorLike | None = None, name: str | None = None
) -> Any:
    """Return `x` where `condition` is true, else `y`; without them, the coordinates of true elements, int64 (n, ndim).

    NaN and infinity in the branch that is not taken reach neither the result nor the gradient.
    """
    mask = native(condition)
    if (x is None) != (y is None):
        raise ValueError("x and y must both be non-None or both be None.")
    if mask.dtype is not tc.bool:
        mask = mask != 0
    if x is None:
        places = tc.nonzero(mask) if mask.ndim else ()
        if not places:
            return wrap(tc.zeros((int(mask), 0), dtype=tc.int64, backend=mask.backend.root, device=mask.device))
        return wrap(tc.astype(tc.stack(list(places), axis=1), tc.int64))
    with in_tensorflow_terms("SelectV2"):
        return wrap(tc.where(mask, *match_dtypes([x, y], "SelectV2")))


@exported("boolean_mask")
@moves_strings("tensor")
def boolean_mask(
    tensor: TensorLike, mask: TensorLike, axis: IntLike | None = None, name: str | None = "boolean_mask"
) -> Any:
    """Return the elements where `mask` is true; it covers the dimensions from `axis` on."""
    values, chosen = native(tensor), native(mask)
    start = 0 if axis is None else static(axis) % values.ndim
    if values.shape[start : start + chosen.ndim] != chosen.shape:
        raise ValueError(f"Shapes {values.shape[start : start + chosen.ndim]} and {chosen.shape} are incompatible")
    return wrap(values[(slice(None),) * start + (chosen,)])


# -- orders and searches


@op("reverse_sequence", "input; seq_lengths", strings="all")
def reverse_sequence(
    input: tc.Tensor, seq_lengths: tc.Tensor, seq_axis: int | None = None, batch_axis: int | None = None
) -> tc.Tensor:
    """Reverse the first `seq_lengths` elements of each example along `seq_axis`."""
    # The order of each example, as indices along the axis: n - 1, ..., 0, n, n + 1, ...
    seq, batch = (seq_axis or 0) % input.ndim, (batch_axis or 0) % input.ndim
    n = input.shape[seq]
    places = tc.arange(n, dtype=tc.int64, backend=input.backend.root, device=input.device)
    lengths = tc.astype(seq_lengths, tc.int64)[:, None]
    order = tc.where(places < lengths, lengths - 1 - places, places)
    shape = tuple(n if k == seq else input.shape[k] if k == batch else 1 for k in range(input.ndim))
    order = tc.reshape(order if batch < seq else tc.matrix_transpose(order), shape)
    return tc.take_along_axis(input, tc.broadcast_to(order, input.shape), axis=seq)


@op("unravel_index", "indices", static_args="dims")
def unravel_index(indices: tc.Tensor, dims: tuple[int, ...]) -> tc.Tensor:
    """Convert flat indices into a tensor of shape `dims` to coordinates, of shape (len(dims), ...)."""
    # The digits of a number whose bases are the lengths, from the last dimension on.
    found, rest = [], indices
    for length in reversed(dims):
        found.append(rest % length)
        rest = rest // length
    return tc.stack(found[::-1])


@op("searchsorted", "sorted_sequence values", kernel="SearchSorted")
def searchsorted(
    sorted_sequence: tc.Tensor,
    values: tc.Tensor,
    side: Literal["left", "right"] = "left",
    out_type: tc.DType = dtypes.int32.native,
) -> tc.Tensor:
    """Return the indices at which `values` would be inserted to keep each row sorted."""
    if sorted_sequence.ndim == 1:
        return tc.astype(tc.searchsorted(sorted_sequence, values, side=side), out_type)
    rows = tc.reshape(sorted_sequence, (-1, sorted_sequence.shape[-1]))
    wanted = tc.reshape(values, (-1, values.shape[-1]))
    found = [tc.searchsorted(rows[k], wanted[k], side=side) for k in range(rows.shape[0])]
    return tc.astype(tc.reshape(tc.stack(found), values.shape), out_type)


class Unique(NamedTuple):
    """The result of :func:`unique`: the values, and the index of each element's value."""

    y: Any
    idx: Any


class UniqueWithCounts(NamedTuple):
    """The result of :func:`unique_with_counts`."""

    y: Any
    idx: Any
    count: Any


@op("unique", "x", strings="first")
def unique(x: tc.Tensor, out_idx: DTypeLike = dtypes.int32) -> Unique:
    """Return the distinct elements in order of appearance, and for each element the index of its value."""
    y, idx, _ = _unique(x, out_idx)
    return Unique(y, idx)


@op("unique_with_counts", "x", strings="first")
def unique_with_counts(x: tc.Tensor, out_idx: DTypeLike = dtypes.int32) -> UniqueWithCounts:
    """Return the distinct elements, each element's index among them, and how often each occurs."""
    return UniqueWithCounts(*_unique(x, out_idx))


def _unique(x: tc.Tensor, out_idx: DTypeLike) -> tuple[tc.Tensor, ...]:
    if x.ndim != 1:
        raise ValueError("unique expects a 1D vector.")
    found = tc.unique_all(x)
    # The core sorts by value, TensorFlow by first appearance.
    first = [int(tc.argmax(tc.astype(found.inverse_indices == k, tc.int32))) for k in range(found.values.shape[0])]
    place = native(np.asarray(first, dtype=np.int64), like=x)
    order = tc.argsort(place)
    rank = tc.argsort(order)
    wanted = dtypes.native_dtype(out_idx)
    return (
        tc.take(found.values, order, axis=0),
        tc.astype(tc.take(rank, found.inverse_indices, axis=0), wanted),
        tc.astype(tc.take(found.counts, order, axis=0), wanted),
    )


for _function in (getitem, nd_key):
    provide(_function)
