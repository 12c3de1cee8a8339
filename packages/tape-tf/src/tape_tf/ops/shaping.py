"""Shapes: queries, reshaping, joining and splitting, padding, sorting, diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tape_core as tc

from tape_tf import dtypes
from tape_tf.coded import moves_strings
from tape_tf.conversion import constant, match_dtypes, native, static, wrap
from tape_tf.errors import InvalidArgumentError
from tape_tf.functions import op
from tape_tf.names import exported
from tape_tf.shapes import as_shape
from tape_tf.string_tensor import as_strings, is_text
from tape_tf.tensor import Value
from tape_tf.typing import Axis, DTypeLike, IntLike, ShapeLike, TensorLike

# -- the shape itself


@exported("shape")
def shape(input: TensorLike, out_type: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """Return the shape as a tensor."""
    return constant(_shape_of(input), dtype=out_type)


@exported("size")
def size(input: TensorLike, out_type: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """Return the number of elements as a tensor."""
    total = 1
    for length in _shape_of(input):
        total *= length
    return constant(total, dtype=out_type)


@exported("rank")
def rank(input: TensorLike, name: str | None = None) -> Any:
    """Return the number of dimensions as a tensor."""
    return constant(len(_shape_of(input)), dtype=dtypes.int32)


def _shape_of(input: TensorLike) -> tuple[int, ...]:
    if isinstance(input, Value):
        return tuple(input.shape)
    return as_strings(input).shape if is_text(input) else native(input).shape


@exported("shape_n")
def shape_n(input: Sequence[TensorLike], out_type: DTypeLike = dtypes.int32, name: str | None = None) -> Any:
    """Return the shapes of several tensors."""
    return [shape(x, out_type) for x in input]


# -- the same elements in another shape or order


@op("reshape", "tensor", static_args="shape", strings="all")
def reshape(tensor: tc.Tensor, shape: int | tuple[int, ...]) -> tc.Tensor:
    """Reshape a tensor; one length may be -1, which is then inferred."""
    return tc.reshape(tensor, shape if isinstance(shape, tuple) else (shape,))


@op("squeeze", "input", static_args="axis", strings="all")
def squeeze(input: tc.Tensor, axis: int | tuple[int, ...] | None = None) -> tc.Tensor:
    """Remove the dimensions of length 1, all or those in `axis`."""
    # TensorFlow takes an empty list as all axes of length 1.
    if axis is None or axis == ():
        axis = tuple(k for k, length in enumerate(input.shape) if length == 1)
    return tc.squeeze(input, axis=axis)


@op("expand_dims", "input", static_args="axis", strings="all")
def expand_dims(input: tc.Tensor, axis: int) -> tc.Tensor:
    """Insert a dimension of length 1 at `axis`."""
    return tc.expand_dims(input, axis=axis)


@op("transpose", "a", static_args="perm", strings="all")
def transpose(a: tc.Tensor, perm: tuple[int, ...] | None = None, conjugate: bool = False) -> tc.Tensor:
    """Permute the dimensions; reverse them by default."""
    if conjugate and a.dtype.kind == "complex floating":
        a = tc.conj(a)
    return tc.permute_dims(
        a, tuple(reversed(range(a.ndim))) if perm is None else tuple(p + a.ndim if p < 0 else p for p in perm)
    )


@op("linalg.matrix_transpose", "a")
def matrix_transpose(a: tc.Tensor, conjugate: bool = False) -> tc.Tensor:
    """Transpose each matrix."""
    found = tc.matrix_transpose(a)
    return tc.conj(found) if conjugate and a.dtype.kind == "complex floating" else found


@op("linalg.adjoint", "matrix")
def adjoint(matrix: tc.Tensor) -> tc.Tensor:
    """Transpose and conjugate each matrix."""
    found = tc.matrix_transpose(matrix)
    return tc.conj(found) if matrix.dtype.kind == "complex floating" else found


# -- joining, splitting, repeating


@op("concat", "*values", static_args="axis", kernel="ConcatV2", strings="all")
def concat(values: list[tc.Tensor], axis: int) -> tc.Tensor:
    """Concatenate tensors along `axis`."""
    return tc.concat(values, axis=axis)


@op("stack", "*values", static_args="axis", kernel="Pack", strings="all")
def stack(values: list[tc.Tensor], axis: int = 0) -> tc.Tensor:
    """Stack tensors of one shape along a new dimension."""
    return tc.stack(values, axis=axis)


@op("unstack", "value", static_args="num axis", strings="all")
def unstack(value: tc.Tensor, num: int | None = None, axis: int = 0) -> list[tc.Tensor]:
    """Return the parts along `axis`, a list."""
    found = list(tc.unstack(value, axis=axis))
    if num is not None and num != len(found):
        raise ValueError(f"num={num}, and there are {len(found)} parts along axis {axis}")
    return found


@op("split", "value", static_args="num_or_size_splits axis num", strings="all")
def split(
    value: tc.Tensor, num_or_size_splits: int | tuple[int, ...], axis: int = 0, num: int | None = None
) -> list[tc.Tensor]:
    """Split a tensor along `axis` into equal parts, or parts of given lengths, one of which may be -1."""
    length = value.shape[axis]
    if isinstance(num_or_size_splits, int):
        if length % num_or_size_splits:
            raise ValueError(
                f"Number of ways to split should evenly divide the split dimension, but got split_dim {axis} (size = "
                f"{length}) and num_split {num_or_size_splits}"
            )
        sizes = [length // num_or_size_splits] * num_or_size_splits
    else:
        sizes = list(num_or_size_splits)
        if -1 in sizes:
            # The -1 itself is in the sum.
            sizes[sizes.index(-1)] = length - sum(sizes) - 1
        if sum(sizes) != length:
            raise ValueError(f"the sizes {sizes} do not add up to the length {length} of axis {axis}")
    return list(tc.split(value, sizes, axis=axis))


@op("tile", "input", static_args="multiples", strings="all")
def tile(input: tc.Tensor, multiples: tuple[int, ...]) -> tc.Tensor:
    """Repeat the whole tensor along each dimension."""
    return tc.tile(input, multiples)


@exported("repeat")
@moves_strings("input")
def repeat(input: TensorLike, repeats: IntLike | Sequence[IntLike], axis: Axis = None, name: str | None = None) -> Any:
    """Repeat each element along `axis`, all as often or each as `repeats` says."""
    times = static(repeats)
    if isinstance(times, tuple):
        # One number in a list is for all elements, and broadcasts.
        times = times[0] if len(times) == 1 else native(repeats)
    return wrap(tc.repeat(native(input), times, axis=static(axis)))


@op("broadcast_to", "input", static_args="shape", strings="all")
def broadcast_to(input: tc.Tensor, shape: tuple[int, ...]) -> tc.Tensor:
    """Broadcast a tensor to a shape."""
    return tc.broadcast_to(input, shape)


@exported("broadcast_dynamic_shape")
def broadcast_dynamic_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> Any:
    """Return the shape that two shapes broadcast to, a tensor."""
    return constant(broadcast_static_shape(static(shape_x), static(shape_y)), dtype=dtypes.int32)


@exported("broadcast_static_shape")
def broadcast_static_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> Any:
    """Return the shape that two shapes broadcast to.

    Raises:
        ValueError: they do not.
    """
    return as_shape(tc.broadcast_shapes(tuple(as_shape(shape_x)), tuple(as_shape(shape_y))))


# -- reversing, padding, grids


@op("reverse", "tensor", static_args="axis", strings="all")
def reverse(tensor: tc.Tensor, axis: int | tuple[int, ...]) -> tc.Tensor:
    """Reverse the order along `axis`."""
    return tc.flip(tensor, axis=axis)


@op("roll", "input", static_args="shift axis", strings="all")
def roll(input: tc.Tensor, shift: int | tuple[int, ...], axis: int | tuple[int, ...]) -> tc.Tensor:
    """Shift along `axis`; elements that leave at one end come in at the other."""
    return tc.roll(input, shift, axis=axis)


@op("pad", "tensor", static_args="paddings")
def pad(
    tensor: tc.Tensor, paddings: tuple[tuple[int, int], ...], mode: str = "CONSTANT", constant_values: TensorLike = 0
) -> tc.Tensor:
    """Pad a tensor: `paddings` has the number of new elements before and after, for each dimension.

    Args:
        mode: `"CONSTANT"`, `"REFLECT"` or `"SYMMETRIC"`.
    """
    widths: list[Any] = [tuple(pair) for pair in paddings]
    if len(widths) != tensor.ndim or any(len(pair) != 2 for pair in widths):
        raise ValueError(f"paddings must have shape ({tensor.ndim}, 2), one pair for each dimension; got {widths}")
    kind = mode.upper()
    if kind not in ("CONSTANT", "REFLECT", "SYMMETRIC"):
        raise ValueError(
            f"Value of argument `mode` expected to be one of 'CONSTANT', 'REFLECT', or 'SYMMETRIC'. {mode}"
        )
    if kind == "CONSTANT":
        fill = native(constant_values).item() if not isinstance(constant_values, int | float) else constant_values
        return tc.pad(tensor, widths, constant_values=fill)
    return tc.pad(tensor, widths, "reflect" if kind == "REFLECT" else "symmetric")


@exported("meshgrid")
def meshgrid(*args: Any, **kwargs: Any) -> Any:
    """Return the coordinates of all points of a grid: `tf.meshgrid(x, y, indexing="xy")`."""
    indexing = kwargs.pop("indexing", "xy")
    kwargs.pop("name", None)
    if kwargs:
        raise TypeError(f"'{next(iter(kwargs))}' is an invalid keyword argument for this function")
    return [wrap(x) for x in tc.meshgrid(*match_dtypes(list(args), "Meshgrid"), indexing=indexing)]


@op("ensure_shape", "x", strings="all")
def ensure_shape(x: tc.Tensor, shape: ShapeLike) -> tc.Tensor:
    """Return `x` after checking that its shape is compatible with `shape`, whose lengths may be None.

    Raises:
        InvalidArgumentError: it is not.
    """
    if not as_shape(x.shape).is_compatible_with(shape):
        raise InvalidArgumentError(
            None, None, f"Shape of tensor {list(x.shape)} is not compatible with expected shape {as_shape(shape)}."
        )
    return x


# -- blocks of pixels, sorting, diagonals


@op("nn.space_to_depth", "input")
def space_to_depth(input: tc.Tensor, block_size: int, data_format: str = "NHWC") -> tc.Tensor:
    """Move blocks of `block_size` x `block_size` pixels into the channels."""
    _check_channels_last(data_format)
    b, h, w, c = input.shape
    s = block_size
    parts = tc.reshape(input, (b, h // s, s, w // s, s, c))
    return tc.reshape(tc.permute_dims(parts, (0, 1, 3, 2, 4, 5)), (b, h // s, w // s, s * s * c))


@op("nn.depth_to_space", "input")
def depth_to_space(input: tc.Tensor, block_size: int, data_format: str = "NHWC") -> tc.Tensor:
    """Move channels into blocks of `block_size` x `block_size` pixels: the inverse of :func:`space_to_depth`."""
    _check_channels_last(data_format)
    b, h, w, c = input.shape
    s = block_size
    parts = tc.reshape(input, (b, h, w, s, s, c // (s * s)))
    return tc.reshape(tc.permute_dims(parts, (0, 1, 3, 2, 4, 5)), (b, h * s, w * s, c // (s * s)))


def _check_channels_last(data_format: str) -> None:
    if data_format != "NHWC":
        raise ValueError(f"data_format must be 'NHWC', got {data_format!r}")


@op("sort", "values", static_args="axis", strings="all")
def sort(values: tc.Tensor, axis: int = -1, direction: str = "ASCENDING") -> tc.Tensor:
    """Sort the elements along `axis`."""
    return tc.sort(values, axis=axis, descending=_descending(direction))


@op("argsort", "values", static_args="axis", strings="none")
def argsort(values: tc.Tensor, axis: int = -1, direction: str = "ASCENDING", stable: bool = False) -> tc.Tensor:
    """Return the indices that sort the elements along `axis`, int32."""
    return tc.astype(tc.argsort(values, axis=axis, descending=_descending(direction)), tc.int32)


def _descending(direction: str) -> bool:
    if direction not in ("ASCENDING", "DESCENDING"):
        raise ValueError(f"Argument `direction` should be one of 'ASCENDING' or 'DESCENDING'. Received: {direction}")
    return direction == "DESCENDING"


@op("linalg.diag", "diagonal")
def diag(diagonal: tc.Tensor, k: int = 0) -> tc.Tensor:
    """Return matrices with the last dimension on their `k`-th diagonal and zeros elsewhere."""
    n = diagonal.shape[-1] + abs(k)
    columns = tc.arange(diagonal.shape[-1], backend=diagonal.backend.root, device=diagonal.device)
    rows = columns + max(-k, 0)
    blank = tc.zeros((*diagonal.shape, n), dtype=diagonal.dtype, backend=diagonal.backend.root, device=diagonal.device)
    square = tc.pad(blank, [(0, 0)] * (diagonal.ndim - 1) + [(0, abs(k)), (0, 0)])
    return tc.at(square)[(..., rows, columns + max(k, 0))].set(diagonal)


@op("linalg.diag_part", "input")
def diag_part(input: tc.Tensor, k: int = 0) -> tc.Tensor:
    """Return the `k`-th diagonals of matrices."""
    return tc.linalg.diagonal(input, offset=k)
